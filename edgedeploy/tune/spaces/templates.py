"""The space of our own templates: the configurations of a task's layer, the untuned default first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import override

from edgedeploy.compile.configuration import CONFIGURATION, Configuration
from edgedeploy.tune.search import CostModel, search_for
from edgedeploy.tune.spaces.space import Candidate, Space
from edgedeploy.tune.task import Task
from edgedeploy.tune.trial import Trial

# As many of the best from other records are tried right after the default.
MOST_KNOWN = 16


class TemplateSpace(Space):
    """What `edgedeploy tune` searches unless told otherwise."""

    def __init__(
        self, task: Task, tuner: str, model: CostModel | None, known: Sequence[Trial] = (), seed: int = 0
    ) -> None:
        """Prepare a search; arguments as for `space_for`."""
        assert task.group is not None
        self.task, self.size = task, len(task.candidates)
        self._model = model
        results = [(each, trial.median_s) for trial in known if (each := configuration_of(trial))]
        if model and results:
            model.learn(task, results)
        ranked = sorted((seconds, index) for index, (_, seconds) in enumerate(results) if seconds)
        fitting = [results[index][0] for _, index in ranked if task.group.layer.fits(results[index][0], task.board)]
        self._search = search_for(tuner, task, model, list(dict.fromkeys(fitting))[:MOST_KNOWN], seed)

    @property
    @override
    def default(self) -> Candidate:
        return Candidate.configured(self.task, self.task.candidates[0])

    @override
    def of(self, trial: Trial) -> Candidate | None:
        configuration = configuration_of(trial)
        return Candidate.configured(self.task, configuration) if configuration else None

    @override
    def propose(self, count: int) -> list[Candidate]:
        return [Candidate.configured(self.task, each) for each in self._search.propose(count)]

    @override
    def learn(self, results: Iterable[tuple[Candidate, float | None]]) -> None:
        known = [(each.configuration, seconds) for each, seconds in results if each.configuration]
        self._search.learn(known)
        if self._model and known:
            self._model.learn(self.task, known)


def configuration_of(trial: Trial) -> Configuration | None:
    """The candidate of the templates' space that a trial measured; None if this version does not know its form."""
    try:
        return CONFIGURATION.validate_python(trial.configuration) if trial.configuration else None
    except ValueError:
        return None

"""The space of our own templates: the configurations of a task's layer, the untuned default first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import override

from edgedeploy.compile.backends import known_configuration
from edgedeploy.compile.configuration import Configuration
from edgedeploy.tune.search import CostModel, search_for
from edgedeploy.tune.spaces.space import MOST_KNOWN, Candidate, Space
from edgedeploy.tune.task import Task
from edgedeploy.tune.trial import Trial


class TemplateSpace(Space):
    """What `edgedeploy tune` searches unless told otherwise."""

    def __init__(
        self, task: Task, tuner: str, model: CostModel | None, known: Sequence[Trial] = (), seed: int = 0
    ) -> None:
        """Prepare a search.

        Args:
            task: with a layer.
            tuner: one of `search.TUNERS`.
            model: of all tasks of the run, for the tuner `xgb`.
            known: trials of the task from other records, to begin with.
            seed: of random choices.
        """
        assert task.group is not None
        self.task, self.size = task, len(task.candidates)
        self._model = model
        results = [(each, trial.median_s) for trial in known if (each := self._configuration_of(trial))]
        if model and results:
            model.learn(task, results)
        ranked = sorted((seconds, index) for index, (_, seconds) in enumerate(results) if seconds)
        liked = [results[index][0] for _, index in ranked]
        fitting = [each for each in liked if task.strategy.fits(each)]
        self._search = search_for(tuner, task, model, list(dict.fromkeys(fitting))[:MOST_KNOWN], seed)

    @property
    @override
    def default(self) -> Candidate:
        return Candidate.configured(self.task, self.task.candidates[0])

    @override
    def of(self, trial: Trial) -> Candidate | None:
        configuration = self._configuration_of(trial)
        return Candidate.configured(self.task, configuration) if configuration else None

    def _configuration_of(self, trial: Trial) -> Configuration | None:
        """What a trial measured, if what the task runs on knows configurations of that form."""
        found = known_configuration(trial.configuration)
        return found if isinstance(found, self.task.processor.forms) else None

    @override
    def propose(self, count: int) -> list[Candidate]:
        return [Candidate.configured(self.task, each) for each in self._search.propose(count)]

    @override
    def learn(self, results: Iterable[tuple[Candidate, float | None]]) -> None:
        known = [(each.configuration, seconds) for each, seconds in results if each.configuration]
        self._search.learn(known)
        if self._model and known:
            self._model.learn(self.task, known)

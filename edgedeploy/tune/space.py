"""The candidates of a task: the configurations of its layer, the untuned default first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgedeploy.compile.backends import known_configuration
from edgedeploy.compile.configuration import Configuration
from edgedeploy.records.trial import Trial
from edgedeploy.tune.search import CostModel, search_for
from edgedeploy.tune.task import Task

# As many of the best from other records are tried right after the default.
MOST_KNOWN = 16


class Space:
    """The candidates of one task, and which are tried next."""

    def __init__(
        self, task: Task, tuner: str, model: CostModel | None, known: Sequence[Trial] = (), seed: int = 0
    ) -> None:
        """Prepare a search.

        Args:
            task: whose candidates are searched.
            tuner: one of `search.TUNERS`.
            model: of all tasks of the run, for the tuner `xgb`.
            known: trials of the task from other records, to begin with.
            seed: of random choices.
        """
        self.task, self.default = task, task.candidates[0]
        self._model = model
        results = [(each, trial.median_s) for trial in known if (each := self.of(trial))]
        if model and results:
            model.learn(task, results)
        ranked = sorted((seconds, index) for index, (_, seconds) in enumerate(results) if seconds)
        liked = [results[index][0] for _, index in ranked]
        fitting = [each for each in liked if task.strategy.fits(each)]
        self._search = search_for(tuner, task, model, list(dict.fromkeys(fitting))[:MOST_KNOWN], seed)

    def of(self, trial: Trial) -> Configuration | None:
        """What a trial measured, if what the task runs on knows configurations of that form."""
        found = known_configuration(trial.configuration)
        return found if isinstance(found, self.task.processor.forms) else None

    def propose(self, count: int) -> list[Configuration]:
        """Up to so many candidates that were not tried yet; none if there are none left."""
        return self._search.propose(count)

    def learn(self, results: Iterable[tuple[Configuration, float | None]]) -> None:
        """Take note of what candidates took, in seconds; None for one that failed."""
        known = list(results)
        self._search.learn(known)
        if self._model and known:
            self._model.learn(self.task, known)

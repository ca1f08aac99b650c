"""A tuning run: tasks one after the other, each in batches that are built, measured and recorded, then a final.

In the final the default and the best few take turns on one board: what won a batch by chance does not win there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from edgedeploy.compile.configuration import CONFIGURATION, Configuration
from edgedeploy.tune.building import Batch, Builder
from edgedeploy.tune.events import Listener, Measured, Noted, TaskEnded, TaskResult, TaskStarted, TaskSummary
from edgedeploy.tune.measuring import Outcome
from edgedeploy.tune.records import Records
from edgedeploy.tune.search import CostModel, Search, search_for
from edgedeploy.tune.task import Task
from edgedeploy.tune.trial import Conditions, Trial

# Candidates that are built into one library and measured in one session.
BATCH = 16

# Candidates of the final beside the default, and how often they take turns.
FINALISTS = 3
ROUNDS = 5

# What the best must save of the default's time to be preferred: less may be chance.
LEAST_GAIN = 0.02

# How often a batch is measured again because the board had slowed down.
MOST_REPETITIONS = 3


class Farm(Protocol):
    """The boards that measure."""

    def measure(self, batch: Batch) -> list[Outcome]:
        """Time each candidate of a batch, whatever becomes of boards meanwhile.

        Raises:
            BoardConnectionError, RpcError: there is no board any more, and none comes back in time.
        """

    def measure_in_turns(self, batch: Batch, rounds: int) -> list[Outcome]:
        """Time candidates one after the other, `rounds` times over, on one board.

        Raises:
            BoardConnectionError, RpcError: as `measure`.
        """

    def conditions(self) -> Mapping[str, Conditions]:
        """The state of each board, by what outcomes call it; `throttled` tells of the time since the last reading."""


@dataclass(frozen=True)
class Options:
    """How tasks are searched.

    Attributes:
        tuner: one of `search.TUNERS`.
        trials: candidates of a task that are measured at most, those of earlier runs among them.
        early_stopping: trials without a better one after which a task ends; None for no such limit.
        resume: whether trials of earlier runs count.
        seed: of random choices.
    """

    tuner: str = "xgb"
    trials: int = 64
    early_stopping: int | None = None
    resume: bool = True
    seed: int = 0


class TuningRun:
    """One run over the tasks of a network."""

    def __init__(
        self,
        tasks: Sequence[Task],
        records: Records,
        builder: Builder,
        farm: Farm,
        options: Options,
        listener: Listener,
        *,
        known: Callable[[Task], Iterable[Trial]] = lambda task: (),
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare it.

        Args:
            tasks: what is tuned, in that order.
            records: where trials go, and those of earlier runs are.
            builder, farm: build and measure.
            options: of the search.
            listener: is told what happens.
            known: trials of a task from other records, to begin with.
            stopping: whether the user asked for an end.

        Raises:
            UnsupportedError: XGBoost is needed and not installed.
        """
        self.identity = f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self._tasks, self._records, self._builder, self._farm = tasks, records, builder, farm
        self._options, self._listener, self._known, self._stopping = options, listener, known, stopping
        self._model = CostModel() if options.tuner == "xgb" else None

    def summaries(self) -> list[TaskSummary]:
        """The tasks, with what earlier runs did of them."""
        return [self._summary(task) for task in self._tasks]

    def run(self) -> list[TaskResult]:
        """Tune all tasks.

        Returns:
            One result for each task that was begun; fewer than there are tasks if the user asked for an end.

        Raises:
            OutputError: records cannot be written.
            BoardConnectionError, RpcError: as `Farm.measure`.
        """
        results = []
        for task in self._tasks:
            if self._stopping():
                break
            results.append(self._tune(task))
        return results

    def _tune(self, task: Task) -> TaskResult:
        summary = self._summary(task)
        self._listener(TaskStarted(task=summary))
        earlier = self._earlier(task)
        progress = _Progress(task, [trial for trial in earlier if not trial.final])
        search = self._search(task, earlier)
        while progress.count < summary.trials and not self._stopping() and not self._is_settled(progress):
            proposed = search.propose(min(BATCH, summary.trials - progress.count))
            if not proposed:
                break
            trials = self._batch(task, proposed, progress)
            self._learn(task, search, trials)
        result = self._final(task, progress)
        event = TaskEnded(result=result)
        self._records.note(event)
        self._listener(event)
        return result

    def _summary(self, task: Task) -> TaskSummary:
        done = len([trial for trial in self._earlier(task) if not trial.final])
        return TaskSummary(
            number=task.number,
            name=task.name,
            workload=task.key,
            weight=task.weight,
            mflop=task.mflop,
            candidates=len(task.candidates),
            trials=min(max(self._options.trials, done), len(task.candidates)),
            done=done,
        )

    def _earlier(self, task: Task) -> list[Trial]:
        """Trials of earlier runs of this space, of which none is repeated."""
        if not self._options.resume:
            return []
        return [trial for trial in self._records.trials(task.key) if _configuration(trial) is not None]

    def _search(self, task: Task, earlier: Sequence[Trial]) -> Search:
        assert task.group is not None
        known = sorted((trial for trial in self._known(task) if trial.seconds), key=lambda trial: trial.median_s or 0)
        fitting = [
            each for trial in known if (each := _configuration(trial)) and task.group.layer.fits(each, task.board)
        ]
        search = search_for(self._options.tuner, task, self._model, fitting[:BATCH], self._options.seed)
        if self._model:
            self._model.learn(task, [(each, trial.median_s) for trial in known if (each := _configuration(trial))])
        self._learn(task, search, earlier)
        return search

    def _learn(self, task: Task, search: Search, trials: Iterable[Trial]) -> None:
        results = [(each, trial.median_s) for trial in trials if (each := _configuration(trial))]
        search.learn(results)
        if self._model and results:
            self._model.learn(task, results)

    def _is_settled(self, progress: _Progress) -> bool:
        limit = self._options.early_stopping
        return limit is not None and progress.since_better >= limit

    def _batch(self, task: Task, proposed: Sequence[Configuration], progress: _Progress) -> list[Trial]:
        """Build, measure and record candidates."""
        batch = self._builder.build([task.scheduled(each) for each in proposed])
        try:
            outcomes, conditions = self._measured(lambda: self._farm.measure(batch))
        finally:
            batch.remove()
        trials = []
        for configuration, outcome in zip(proposed, outcomes, strict=True):
            trial = self._trial(task, progress.count, configuration, outcome, conditions)
            self._records.add(task.workload, trial)
            progress.add(trial)
            self._listener(Measured(trial=trial, best_s=progress.best_s, gflops=progress.gflops))
            trials.append(trial)
        return trials

    def _measured(self, measure: Callable[[], list[Outcome]]) -> tuple[list[Outcome], Mapping[str, Conditions]]:
        """Measure, and again where a board slowed itself down meanwhile."""
        for repetition in range(MOST_REPETITIONS):
            self._farm.conditions()  # what happened before is no concern of this measurement
            outcomes = measure()
            conditions = self._farm.conditions()
            throttled = sorted(name for name, state in conditions.items() if state.throttled)
            if not throttled or repetition == MOST_REPETITIONS - 1:
                break
            self._listener(Noted(text=f"{', '.join(throttled)} slowed down from heat or low voltage: measuring again"))
        return outcomes, conditions

    def _final(self, task: Task, progress: _Progress) -> TaskResult:
        """Let the default and the best take turns, and record the winner as the one to build with."""
        default = task.candidates[0]
        best = [each for each in progress.best(FINALISTS) if each != default]
        default_s, winner, winner_s = progress.seconds.get(default), default, progress.seconds.get(default)
        if best and not self._stopping():
            contenders = [default, *best]
            batch = self._builder.build([task.scheduled(each) for each in contenders])
            try:
                outcomes, conditions = self._measured(lambda: self._farm.measure_in_turns(batch, ROUNDS))
            finally:
                batch.remove()
            trials = [
                self._trial(task, progress.count, each, outcome, conditions, final=True)
                for each, outcome in zip(contenders, outcomes, strict=True)
            ]
            default_s = trials[0].median_s
            quickest = min((trial for trial in trials if trial.seconds), key=_median, default=trials[0])
            gained = default_s is None or _median(quickest) < (1 - LEAST_GAIN) * default_s
            chosen = quickest if gained else trials[0]
            # Only what may be chosen is recorded as final, so that a build takes the winner.
            for trial in [trials[0]] if chosen is trials[0] else [trials[0], chosen]:
                self._records.add(task.workload, trial)
            winner, winner_s = contenders[trials.index(chosen)], chosen.median_s
        return TaskResult(
            number=task.number,
            name=task.name,
            workload=task.key,
            weight=task.weight,
            default_ms=None if default_s is None else 1000 * default_s,
            best_ms=None if winner_s is None else 1000 * winner_s,
            trials=progress.count,
            failures=progress.failures,
            configuration=winner.model_dump(mode="json"),
        )

    def _trial(
        self,
        task: Task,
        number: int,
        configuration: Configuration,
        outcome: Outcome,
        conditions: Mapping[str, Conditions],
        *,
        final: bool = False,
    ) -> Trial:
        host = outcome.device or "local"
        return Trial(
            time=datetime.now(timezone.utc),
            run=self.identity,
            task=task.name,
            workload=task.key,
            number=number,
            configuration=configuration.model_dump(mode="json"),
            seconds=outcome.seconds,
            failure=outcome.failure,
            error=outcome.error,
            final=final,
            host=host,
            conditions=conditions.get(host),
        )


class _Progress:
    """What is known of a task so far.

    Attributes:
        seconds: the median of each candidate that could be measured.
        count: trials, failures among them.
        failures: those that failed.
        since_better: trials since the best one.
    """

    def __init__(self, task: Task, earlier: Iterable[Trial]) -> None:
        self._mflop = task.mflop
        self.seconds: dict[Configuration, float] = {}
        self.count = self.failures = self.since_better = 0
        for trial in earlier:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Take note of a trial."""
        self.count += 1
        self.since_better += 1
        configuration, seconds = _configuration(trial), trial.median_s
        if seconds is None or configuration is None:
            self.failures += 1
            return
        if self.best_s is None or seconds < self.best_s:
            self.since_better = 0
        self.seconds[configuration] = seconds

    @property
    def best_s(self) -> float | None:
        """The shortest median."""
        return min(self.seconds.values(), default=None)

    @property
    def gflops(self) -> float | None:
        """The rate of the best."""
        return self._mflop / 1000 / self.best_s if self.best_s else None

    def best(self, count: int) -> list[Configuration]:
        """The quickest candidates."""
        return sorted(self.seconds, key=self.seconds.__getitem__)[:count]


def _configuration(trial: Trial) -> Configuration | None:
    """The candidate of the templates' space that a trial measured; None if this version does not know its form."""
    try:
        return CONFIGURATION.validate_python(trial.configuration) if trial.configuration else None
    except ValueError:
        return None


def _median(trial: Trial) -> float:
    assert trial.median_s is not None
    return trial.median_s

"""A tuning run: tasks one after the other, each in batches that are built, measured and recorded, then a final.

In the final the default and the best few run interleaved on one board: what won a batch by chance does not win there.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from edgedeploy.compile.configuration import Configuration
from edgedeploy.records.database import Records
from edgedeploy.records.schema import Listener, Measured, Noted, TaskEnded, TaskResult, TaskStarted, TaskSummary, Trial
from edgedeploy.tuning.building import Builder
from edgedeploy.tuning.finals import Finals, preferred
from edgedeploy.tuning.measuring import Farm
from edgedeploy.tuning.search import CostModel, search_for
from edgedeploy.tuning.task import Task

# Candidates that are built into one library and measured in one session.
BATCH = 16

# Candidates of the final besides the default, and how often they run interleaved. Several: the best of a search may be
# just lucky.
FINALISTS = 11
ROUNDS = 7

# How often a batch is measured again because the board had slowed down.
MOST_REPETITIONS = 3


@dataclass(frozen=True)
class Options:
    """How tasks are searched."""

    tuner: str = "xgb"  # one of `search.TUNERS`
    trials: int = 64  # the most candidates of a task that are measured, with those of earlier runs
    early_stopping: int | None = None  # trials without a better one after which a task ends; None for no limit
    resume: bool = True  # whether trials of earlier runs count
    seed: int = 0


@dataclass
class TuningRun:
    """One run over the tasks of a network, which begins with what other records know."""

    tasks: Sequence[Task]
    records: Records
    builder: Builder
    farm: Farm
    options: Options
    listener: Listener
    others: Sequence[Records] = ()
    stopping: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.identity = f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        self.finals = Finals(self.identity, self.tasks, self.records.add)
        self._model = CostModel() if self.options.tuner == "xgb" else None

    def summary(self, task: Task) -> TaskSummary:
        """A task, with the count of its earlier trials."""
        candidates, done = len(task.candidates), len(self._earlier(task))
        return TaskSummary(
            **task.identity,
            mflop=task.mflop,
            candidates=candidates,
            trials=min(max(self.options.trials, done), candidates),
            done=done,
        )

    def run(self) -> None:
        """Tune all tasks."""
        for task in self.tasks:
            if self.stopping():
                break
            self.finals.results[task.key] = self._tune(task)

    def _tune(self, task: Task) -> TaskResult:
        options = self.options
        elsewhere = task.measured(trial for each in self.others for trial in each.trials(task.key))
        known = [(candidate, trial.median_s) for candidate, trial in elsewhere]
        search = search_for(options.tuner, task, self._model, known, options.seed)
        summary = self.summary(task)
        self.listener(TaskStarted(task=summary))
        progress = _Progress(task)
        search.learn([progress.add(candidate, trial) for candidate, trial in task.measured(self._earlier(task))])
        limit = math.inf if options.early_stopping is None else options.early_stopping
        while progress.count < summary.trials and progress.since_better < limit and not self.stopping():
            proposed = search.propose(min(BATCH, summary.trials - progress.count))
            if not proposed:
                break
            search.learn(self._batch(task, proposed, progress))
        result = self._final(task, progress)
        event = TaskEnded(run=self.identity, result=result)
        self.records.note(event)
        self.listener(event)
        return result

    def _earlier(self, task: Task) -> list[Trial]:
        """Trials of earlier runs, which are not repeated."""
        trials = self.records.trials(task.key) if self.options.resume else []
        return [trial for trial in trials if not trial.final]

    def _batch(
        self, task: Task, proposed: Sequence[Configuration], progress: _Progress
    ) -> list[tuple[Configuration, float | None]]:
        """Build, measure and record candidates; returns their times in seconds."""
        results = []
        trials = self._measured(task, {each: progress.count + place for place, each in enumerate(proposed)})
        for candidate, trial in zip(proposed, trials, strict=True):
            self.records.add(trial)
            results.append(progress.add(candidate, trial))
            self.listener(Measured(trial=trial, best_s=progress.best_s, gflops=progress.gflops))
        return results

    def _measured(self, task: Task, numbers: Mapping[Configuration, int], rounds: int | None = None) -> list[Trial]:
        """Build and measure numbered candidates, again if a board slowed itself down; trials of `rounds` are final."""
        batch = self.builder.build(map(task.scheduled, numbers))
        try:
            for repetition in range(MOST_REPETITIONS):
                self.farm.conditions()  # resets the counters
                outcomes = self.farm.measure(batch, rounds)
                conditions = self.farm.conditions()
                slow = sorted(name for name, state in conditions.items() if state.throttled)
                if not slow or repetition == MOST_REPETITIONS - 1:
                    break
                self.listener(Noted(text=f"{', '.join(slow)} slowed down from heat or low voltage: measuring again"))
        finally:
            batch.remove()
        trials = []
        for (candidate, number), outcome in zip(numbers.items(), outcomes, strict=True):
            host = outcome.device or "local"
            trials.append(
                Trial(
                    time=datetime.now(timezone.utc),
                    run=self.identity,
                    task=task.name,
                    workload=task.key,
                    number=number,
                    configuration=candidate.model_dump(mode="json"),
                    seconds=outcome.seconds,
                    failure=outcome.failure,
                    error=outcome.error,
                    final=rounds is not None,
                    host=host,
                    conditions=conditions.get(host),
                )
            )
        return trials

    def _final(self, task: Task, progress: _Progress) -> TaskResult:
        """Run the default and the best interleaved, and record the winner as the one to build with."""
        winner = default = task.candidates[0]
        default_s = winner_s = progress.seconds.get(default)
        fastest = sorted(progress.seconds, key=progress.seconds.__getitem__)
        best = [each for each in fastest if each != default][:FINALISTS]
        if best and not self.stopping():
            finalists = [default, *best, *self._present(task)]
            numbers = {each: progress.numbers.get(each, progress.count) for each in finalists}
            contenders, trials = list(numbers), self._measured(task, numbers, ROUNDS)
            chosen = preferred([trial.median_s for trial in trials])
            winner, default_s, winner_s = contenders[chosen], trials[0].median_s, trials[chosen].median_s
            self.finals.enter(task, list(zip(contenders, trials, strict=True)))
            # Only what may be chosen is recorded as final, so that a build takes the winner.
            for index in sorted({0, chosen}):
                self.records.add(trials[index])
        return TaskResult(
            **task.identity,
            default_ms=None if default_s is None else 1000 * default_s,
            best_ms=None if winner_s is None else 1000 * winner_s,
            trials=progress.count,
            failures=progress.failures,
            configuration=winner.model_dump(mode="json"),
        )

    def _present(self, task: Task) -> list[Configuration]:
        """The candidate that builds take at present; nothing if it cannot be built for this board."""
        best = self.records.best(task.key) if self.options.resume else None
        return [each for each, _ in task.measured([best] if best else []) if task.strategy.fits(each)]


class _Progress:
    """The trials of a task so far."""

    def __init__(self, task: Task) -> None:
        self._mflop = task.mflop
        self.seconds: dict[Configuration, float] = {}  # the median of each candidate that could be measured
        self.numbers: dict[Configuration, int] = {}  # of each candidate's trial
        self.count = self.failures = self.since_better = 0

    def add(self, candidate: Configuration, trial: Trial) -> tuple[Configuration, float | None]:
        """Count a trial; returns what a search learns from it."""
        self.numbers[candidate] = trial.number
        self.count += 1
        self.since_better += 1
        seconds = trial.median_s
        if seconds is None:
            self.failures += 1
        else:
            if self.best_s is None or seconds < self.best_s:
                self.since_better = 0
            self.seconds[candidate] = seconds
        return candidate, seconds

    @property
    def best_s(self) -> float | None:
        return min(self.seconds.values(), default=None)

    @property
    def gflops(self) -> float | None:
        return self._mflop / 1000 / self.best_s if self.best_s and self._mflop else None

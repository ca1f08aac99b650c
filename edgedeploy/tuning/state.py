"""How far a tuning run is, from its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from edgedeploy.records.events import (
    Event,
    Measured,
    RunStarted,
    TaskEnded,
    TaskResult,
    TaskStarted,
    TaskSummary,
)
from edgedeploy.records.trial import Conditions


@dataclass
class TaskState:
    """A task as far as it is known.

    Attributes:
        summary: what was said of it at its start.
        measured: the numbers of the trials of this run; a trial that is measured again counts once.
        failed: those of them that failed.
        default_s: the median of the untuned default, in seconds, if it was measured in this run.
        best_s: the best median so far, in seconds.
        result: what it ended with.
    """

    summary: TaskSummary
    measured: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    default_s: float | None = None
    best_s: float | None = None
    result: TaskResult | None = None

    @property
    def done(self) -> int:
        """How many trials are done, with those of earlier runs."""
        return self.summary.done + len(self.measured)

    @property
    def left(self) -> int:
        """How many trials may be to come."""
        return 0 if self.result else max(0, self.summary.trials - self.done)

    @property
    def gflops(self) -> float | None:
        """The rate of the best so far, in 10^9 operations a second."""
        return self.summary.mflop / self.best_s / 1e3 if self.best_s else None

    def count(self, measured: Measured) -> None:
        """Take in a trial. Those at a task's end measure anew what was counted already."""
        trial = measured.trial
        if trial.final:
            return
        self.best_s = measured.best_s
        if trial.number == 0:
            self.default_s = trial.median_s
        self.measured.add(trial.number)
        (self.failed.discard if trial.failure is None else self.failed.add)(trial.number)


class RunState:
    """A run as far as it is known.

    Attributes:
        started: what was said at its start.
        tasks: by workload, in the order of the run.
        current: the task that is being tuned.
        conditions: of each board that measured, by its name, as last told.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Follow a run whose events come as they happen; `clock` gives seconds."""
        self._clock = clock
        self._begin = clock()
        self.started: RunStarted | None = None
        self.tasks: dict[str, TaskState] = {}
        self.current: TaskState | None = None
        self.conditions: dict[str, Conditions] = {}

    def follow(self, event: Event) -> None:
        """Take in an event."""
        match event:
            case RunStarted():
                # One network may be tuned after the other.
                self.started, self._begin = event, self._clock()
                self.current, self.conditions = None, {}
                self.tasks = {task.workload: TaskState(task) for task in event.tasks}
                if event.conditions and event.hosts:
                    self.conditions[event.hosts[0]] = event.conditions
            case TaskStarted(task=summary):
                self.current = self.tasks.setdefault(summary.workload, TaskState(summary))
                if not self.current.measured:  # else it goes on: what is done now was counted already
                    self.current.summary = summary
            case Measured(trial=trial):
                if task := self.tasks.get(trial.workload):
                    task.count(event)
                if trial.conditions:
                    self.conditions[trial.host] = trial.conditions
            case TaskEnded(result=result):
                if task := self.tasks.get(result.workload):
                    task.result = result

    @property
    def done(self) -> int:
        """How many trials of this run are done."""
        return sum(len(task.measured) for task in self.tasks.values())

    @property
    def left(self) -> int:
        """How many trials of this run may be to come."""
        return sum(task.left for task in self.tasks.values())

    @property
    def failures(self) -> int:
        """How many trials of this run failed."""
        return sum(len(task.failed) for task in self.tasks.values())

    @property
    def tasks_done(self) -> int:
        """How many tasks have ended."""
        return sum(task.result is not None for task in self.tasks.values())

    @property
    def seconds_left(self) -> float | None:
        """How long the run may still take at the pace it had so far; None before the first trial."""
        return (self._clock() - self._begin) / self.done * self.left if self.done else None

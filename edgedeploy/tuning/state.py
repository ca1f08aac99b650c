"""How far a tuning run is, from its events, and its results as cells of tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from edgedeploy.base.text import milliseconds, printable, significant, times
from edgedeploy.records import schema
from edgedeploy.records.schema import Conditions

TITLES = ("task", "weight", "default ms", "best ms", "speed-up", "trials", "failures")


@dataclass
class TaskState:
    """A task so far."""

    summary: schema.TaskSummary
    # The numbers of the trials of this run; a trial that is measured again counts once
    measured: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)  # the numbers of the failures among them
    default_s: float | None = None  # the median of the untuned default, in seconds, if it was measured in this run
    best_s: float | None = None  # the best median so far, in seconds
    result: schema.TaskResult | None = None

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

    def count(self, measured: schema.Measured) -> None:
        """Count a trial. Those at a task's end repeat others, and do not count."""
        trial = measured.trial
        if trial.final:
            return
        self.best_s = measured.best_s
        if trial.number == 0:
            self.default_s = trial.median_s
        self.measured.add(trial.number)
        (self.failed.discard if trial.failure is None else self.failed.add)(trial.number)


class RunState:
    """A run so far: its tasks by workload, in order, and the conditions that each board last reported, by its name."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Follow a run whose events come as they happen; `clock` gives seconds."""
        self._clock = clock
        self._begin = clock()
        self.started: schema.RunStarted | None = None
        self.tasks: dict[str, TaskState] = {}
        self.current: TaskState | None = None
        self.conditions: dict[str, Conditions] = {}

    def follow(self, event: schema.Event) -> None:
        """Update the state by an event."""
        match event:
            case schema.RunStarted():
                # One network may be tuned after the other.
                self.started, self._begin = event, self._clock()
                self.current, self.conditions = None, {}
                self.tasks = {task.workload: TaskState(task) for task in event.tasks}
                if event.conditions and event.hosts:
                    self.conditions[event.hosts[0]] = event.conditions
            case schema.TaskStarted(task=summary):
                self.current = self.tasks.setdefault(summary.workload, TaskState(summary))
                if not self.current.measured:  # else it continues, and its trials were counted already
                    self.current.summary = summary
            case schema.Measured(trial=trial):
                if task := self.tasks.get(trial.workload):
                    task.count(event)
                if trial.conditions:
                    self.conditions[trial.host] = trial.conditions
            case schema.TaskEnded(result=result):
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
        """How long the run may still take at its pace so far; None before the first trial."""
        return (self._clock() - self._begin) / self.done * self.left if self.done else None


def cells(results: Sequence[schema.TaskResult]) -> list[list[str]]:
    """The rows of the table: one for each task, and their weighted sum if there are several."""

    def row(title: str, weight: str, default: float | None, best: float | None, *counts: int) -> list[str]:
        gain = times(schema.speed_up(default, best))
        return [title, weight, milliseconds(default), milliseconds(best), gain, *map(str, counts)]

    def total(values: Iterable[float | None]) -> float | None:
        known = [result.weight * value for result, value in zip(results, values, strict=True) if value is not None]
        return sum(known) if len(known) == len(results) else None

    lines = []
    for each in results:
        title = f"{each.number}  {printable(each.name)}"
        lines.append(row(title, str(each.weight), each.default_ms, each.best_ms, each.trials, each.failures))
    if len(results) > 1:
        default, best = total(result.default_ms for result in results), total(result.best_ms for result in results)
        counts = sum(result.trials for result in results), sum(result.failures for result in results)
        lines.append(row("all, by weight", "", default, best, *counts))
    return lines


def end_to_end(before_ms: float | None, after_ms: float | None) -> str:
    """The time of one inference before and after, in a sentence without a full stop."""
    if not before_ms or not after_ms:
        return "one inference was not measured before and after"
    return (
        f"one inference: {significant(before_ms)} ms before, {significant(after_ms)} ms after, "
        f"{times(before_ms / after_ms)}, interleaved"
    )

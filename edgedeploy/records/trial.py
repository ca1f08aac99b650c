"""Trials: candidates of tasks, as they were built and measured; and a summary for each task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from edgedeploy.base.documents import Listed, Record

# Records come from files that may be hostile: impossible counts and measurements are refused when they are read, so
# that code that calculates or draws can rely on them.
Count = Annotated[int, Field(ge=0, lt=2**53)]
Quantity = Annotated[float, Field(ge=0, lt=1e15, allow_inf_nan=False)]
Temperature = Annotated[float, Field(gt=-274, lt=1e6)]


# Times without a zone are in UTC.
Time = Annotated[datetime, AfterValidator(lambda time: time if time.tzinfo else time.replace(tzinfo=timezone.utc))]


class Conditions(Record):
    """The state of a board while it measured; None if the board does not report it."""

    governor: str | None = None  # of the first core, as is the frequency
    frequency_mhz: Quantity | None = None
    temperature_c: Temperature | None = None  # of the hottest zone, in degrees Celsius
    throttled: bool | None = None  # whether the board slowed itself down since the batch began


Failure = Literal["build", "timeout", "crash", "error"]


class Trial(Record):
    """The result of one candidate."""

    time: Time  # in UTC
    run: str
    task: str
    workload: str  # the structural hash of the task's function, which names the task in records
    number: Count  # of the trial in its task, counted from 0, which is the untuned default
    configuration: dict[str, Any]
    seconds: Listed[Quantity] = []  # each measurement of one run of the kernel; empty if it failed
    failure: Failure | None = None
    error: str | None = None
    final: bool = False  # measured again at the end of its task, interleaved with the default and the other best
    host: str = "local"
    conditions: Conditions | None = None

    @property
    def median_s(self) -> float | None:
        """The median of its measurements, or None if it failed."""
        return median(self.seconds) if self.seconds else None

    @property
    def median_ms(self) -> float | None:
        """The same in milliseconds."""
        return None if self.median_s is None else self.median_s * 1e3


def by_workload(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """Trials by the hash of their workload, each in their order."""
    grouped: dict[str, list[Trial]] = {}
    for trial in trials:
        grouped.setdefault(trial.workload, []).append(trial)
    return grouped


def best_of(trials: Iterable[Trial]) -> Trial | None:
    """The best trial of one workload, or None if none succeeded.

    It is the fastest that the latest run measured interleaved at its end; without any, the fastest of all.
    """
    contenders = [trial for trial in trials if trial.seconds]
    if finals := [trial for trial in contenders if trial.final]:
        latest = max(finals, key=lambda trial: trial.time).run
        contenders = [trial for trial in finals if trial.run == latest]
    return min(contenders, key=lambda trial: trial.median_s or 0.0, default=None)


def speed_up(default: float | None, best: float | None) -> float | None:
    """The default's time divided by the best one's; None if one is not known."""
    return default / best if default and best else None


@dataclass(frozen=True)
class TaskOverview:
    """The records of one task in numbers: its name in the last trial, and medians of the trial that a build uses."""

    task: str
    workload: str
    trials: int
    failures: int
    default_ms: float | None  # of the untuned default, measured interleaved with the best one if that was
    best_ms: float | None
    speed_up: float | None
    configuration: dict[str, Any] | None


def overview(trials: Iterable[Trial]) -> list[TaskOverview]:
    """Each task of some records, in the order in which they were first tuned."""
    return [_task(workload, grouped) for workload, grouped in by_workload(trials).items()]


def _task(workload: str, trials: list[Trial]) -> TaskOverview:
    best = best_of(trials)
    default = best_of(
        trial
        for trial in trials
        if best and trial.number == 0 and trial.final == best.final and (trial.run == best.run or not best.final)
    )
    default_ms, best_ms = (trial.median_ms if trial else None for trial in (default, best))
    return TaskOverview(
        task=trials[-1].task,
        workload=workload,
        trials=len(trials),
        failures=sum(trial.failure is not None for trial in trials),
        default_ms=default_ms,
        best_ms=best_ms,
        speed_up=speed_up(default_ms, best_ms),
        configuration=best.configuration if best else None,
    )

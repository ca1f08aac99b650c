"""Records in numbers: for each task its trials, its default and its best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgedeploy.records.trial import Trial, best_of, by_workload, speed_up


@dataclass(frozen=True)
class TaskOverview:
    """What records hold of one task.

    Attributes:
        task: the name of its function, as the last trial has it.
        workload: the structural hash of its function.
        trials: how many there are, failures among them.
        failures: how many failed.
        default_ms: the median of the untuned default, of the same kind as the best one: measured interleaved with it,
            or not.
        best_ms: the median of the trial that a build uses.
        speed_up: how many times as fast that is as the default.
        configuration: its candidate.
    """

    task: str
    workload: str
    trials: int
    failures: int
    default_ms: float | None
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

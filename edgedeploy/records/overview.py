"""Records in numbers: for each task its trials, its default and its best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from edgedeploy.records.trial import Trial, best_of, by_workload


@dataclass(frozen=True)
class TaskOverview:
    """What records hold of one task.

    Attributes:
        name: of its function, as the last trial has it.
        workload: the structural hash of its function.
        trials: how many there are, failures among them.
        failures: how many failed.
        default: the untuned default's trial, of the same kind as the best one: measured interleaved with it, or not.
        best: the trial that a build uses.
    """

    name: str
    workload: str
    trials: int
    failures: int
    default: Trial | None
    best: Trial | None

    @property
    def default_ms(self) -> float | None:
        """The median of the default's times."""
        return self.default.median_ms if self.default else None

    @property
    def best_ms(self) -> float | None:
        """The median of the best's times."""
        return self.best.median_ms if self.best else None

    @property
    def speed_up(self) -> float | None:
        """How many times as fast the best is as the default."""
        return self.default_ms / self.best_ms if self.default_ms and self.best_ms else None

    def as_json(self) -> dict[str, Any]:
        """The same for scripts."""
        return {
            "task": self.name,
            "workload": self.workload,
            "trials": self.trials,
            "failures": self.failures,
            "default_ms": self.default_ms,
            "best_ms": self.best_ms,
            "speed_up": self.speed_up,
            "configuration": self.best.configuration if self.best else None,
        }


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
    return TaskOverview(
        name=trials[-1].task,
        workload=workload,
        trials=len(trials),
        failures=sum(trial.failure is not None for trial in trials),
        default=default,
        best=best,
    )

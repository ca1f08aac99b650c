"""What every search space offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgedeploy.compile.backends import known_configuration
from edgedeploy.compile.configuration import Configuration
from edgedeploy.tune.database import schedule_of, workload_hash
from edgedeploy.tune.records import Best
from edgedeploy.tune.task import Task
from edgedeploy.tune.trial import Trial

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.tirx import PrimFunc


# As many of the best from other records are tried right after the default.
MOST_KNOWN = 16


@dataclass(frozen=True)
class Candidate:
    """A way to compute a task.

    Attributes:
        key: names it among the candidates of the task.
        task: what it computes.
        configuration: of the task's layer; None for one of MetaSchedule's, and for the default of a task without one.
        schedule: how MetaSchedule made it; None for one of the templates'.
    """

    key: str
    task: Task = field(compare=False, repr=False)
    configuration: Configuration | None = field(default=None, compare=False)
    schedule: Schedule | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def configured(task: Task, configuration: Configuration) -> Candidate:
        """The task with its layer in a configuration."""
        return Candidate(configuration.model_dump_json(), task, configuration)

    @staticmethod
    def scheduled(task: Task, schedule: Schedule) -> Candidate:
        """The task as MetaSchedule scheduled it, known by the function that this makes."""
        return Candidate(workload_hash(schedule.mod), task, schedule=schedule)

    @staticmethod
    def recorded(task: Task, best: Best) -> Candidate | None:
        """What a record holds; None if this version cannot make it.

        Raises:
            RecordsError: it is damaged.
        """
        if best.trace is not None:
            return Candidate.scheduled(task, schedule_of(best.trace, task.workload))
        configuration = known_configuration(best.trial.configuration)
        if configuration is None or task.group is None or not task.strategy.fits(configuration):
            return None
        return Candidate.configured(task, configuration)

    @property
    def function(self) -> PrimFunc:
        """The task's function, scheduled."""
        if self.schedule is not None:
            return self.schedule.mod["main"]
        return self.task.scheduled(self.configuration)


class Space(ABC):
    """The candidates of one task.

    Attributes:
        task: it.
        size: how many there are; None if that is not known.
    """

    task: Task
    size: int | None

    @property
    @abstractmethod
    def default(self) -> Candidate:
        """What a build without records takes."""

    @abstractmethod
    def of(self, trial: Trial) -> Candidate | None:
        """The candidate that an earlier trial measured; None if it is none of this space."""

    @abstractmethod
    def propose(self, count: int) -> list[Candidate]:
        """Up to so many candidates that were not tried yet; none if there are none left."""

    @abstractmethod
    def learn(self, results: Iterable[tuple[Candidate, float | None]]) -> None:
        """Take note of what candidates took, in seconds; None for one that failed."""

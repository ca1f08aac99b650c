"""One trial: a candidate of a task, as it was built and measured."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from edgedeploy.documents import Listed, Record

# Records come from files, which may say anything: what no run can have counted or measured is refused where it is read,
# so that nothing that calculates or draws has to look again.
Count = Annotated[int, Field(ge=0, lt=2**53)]
Quantity = Annotated[float, Field(ge=0, lt=1e15, allow_inf_nan=False)]
Temperature = Annotated[float, Field(gt=-274, lt=1e6)]


def _in_utc(time: datetime) -> datetime:
    """A time without a zone is taken for one in UTC."""
    return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time


Time = Annotated[datetime, AfterValidator(_in_utc)]


class Conditions(Record):
    """The state of a board while it measured. What it does not tell is None.

    Attributes:
        governor: of the first core's frequency.
        frequency_mhz: of the first core.
        temperature_c: of the hottest zone, in degrees Celsius.
        throttled: whether the board says that it slowed itself down since the batch began.
    """

    governor: str | None = None
    frequency_mhz: Quantity | None = None
    temperature_c: Temperature | None = None
    throttled: bool | None = None


Failure = Literal["build", "timeout", "crash", "error"]


class Trial(Record):
    """What came out of one candidate.

    Attributes:
        time: when it was measured, in UTC.
        run: the tuning run that it belongs to, by its identity.
        task: the task's name, for people.
        workload: the structural hash of the task's function, which names the task in records.
        number: of the trial in its task, counted from 0, which is the untuned default.
        configuration: the candidate, as JSON.
        seconds: each measurement of one run of the kernel; empty if it failed.
        failure: of which kind, or None.
        error: what went wrong, or None.
        final: measured again at the end of its task, interleaved with the default and the other best.
        host: the board that measured it.
        conditions: of that board.
    """

    time: Time
    run: str
    task: str
    workload: str
    number: Count
    configuration: dict[str, Any]
    seconds: Listed[Quantity] = []
    failure: Failure | None = None
    error: str | None = None
    final: bool = False
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
    """The trial of one workload that counts as the best, or None if none succeeded.

    It is the fastest of those that the latest run measured interleaved at its end; if no run came so far, the fastest
    of all.
    """
    contenders = [trial for trial in trials if trial.seconds]
    if finals := [trial for trial in contenders if trial.final]:
        latest = max(finals, key=lambda trial: trial.time).run
        contenders = [trial for trial in finals if trial.run == latest]
    return min(contenders, key=lambda trial: trial.median_s or 0.0, default=None)


def speed_up(default: float | None, best: float | None) -> float | None:
    """How many times as fast the best is as the default, by their times; None if one is not known."""
    return default / best if default and best else None

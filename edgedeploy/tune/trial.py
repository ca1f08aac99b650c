"""One trial: a candidate of a task, as it was built and measured."""

from __future__ import annotations

from datetime import datetime, timezone
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from edgedeploy.documents import Record

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
        space: where the candidate is from.
        configuration: the candidate of the templates' space, as JSON; None for one of MetaSchedule's.
        scheduled: the hash of the function as MetaSchedule scheduled it; None for one of the templates' space, and for
            the default.
        seconds: each measurement of one run of the kernel; empty if it failed.
        failure: of which kind, or None.
        error: what went wrong, or None.
        final: measured again at the end of its task, in turns with the default and the other best.
        host: the board that measured it.
        conditions: of that board.
    """

    time: Time
    run: str
    task: str
    workload: str
    number: Count
    space: Literal["templates", "metaschedule"] = "templates"
    configuration: dict[str, Any] | None = None
    scheduled: str | None = None
    seconds: list[Quantity] = []
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

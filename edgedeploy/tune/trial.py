"""One trial: a candidate of a task, as it was built and measured."""

from __future__ import annotations

from datetime import datetime
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field

from edgedeploy.documents import Record


class Conditions(Record):
    """The state of a board while it measured. What it does not tell is None.

    Attributes:
        governor: of the first core's frequency.
        frequency_mhz: of the first core.
        temperature_c: of the hottest zone, in degrees Celsius.
        throttled: whether the board says that it slowed itself down since the batch began.
    """

    governor: str | None = None
    frequency_mhz: float | None = None
    temperature_c: float | None = None
    throttled: bool | None = None


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
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
        seconds: each measurement of one run of the kernel; empty if it failed.
        failure: of which kind, or None.
        error: what went wrong, or None.
        final: measured again at the end of its task, in turns with the default and the other best.
        host: the board that measured it.
        conditions: of that board.
    """

    time: datetime
    run: str
    task: str
    workload: str
    number: Annotated[int, Field(ge=0)]
    space: Literal["templates", "metaschedule"] = "templates"
    configuration: dict[str, Any] | None = None
    seconds: list[Seconds] = []
    failure: Failure | None = None
    error: str | None = None
    final: bool = False
    host: str = "local"
    conditions: Conditions | None = None

    @property
    def median_s(self) -> float | None:
        """The median of its measurements, or None if it failed."""
        return median(self.seconds) if self.seconds else None

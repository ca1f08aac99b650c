"""Events of a tuning run: for a display, a script that reads JSON, a report.

Each event is one record that can be written as one line of JSON; `event` names its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from edgedeploy.base.documents import Listed, Record
from edgedeploy.records.trial import Conditions, Count, Quantity, Trial, speed_up


class _TaskRecord(Record):
    """A task: its number for `--tasks`, the structural hash of its function, and how often one inference runs it."""

    number: Count
    name: str
    workload: str
    weight: Count


class TaskSummary(_TaskRecord):
    """A task before it is tuned."""

    mflop: Quantity  # millions of arithmetic operations of one run
    candidates: Count | None  # how many there are, with the default; None if no event of a run states it
    trials: Count  # how many it has at most, with those of earlier runs
    done: Count = 0  # how many earlier runs measured


class TaskResult(_TaskRecord):
    """A task after it was tuned."""

    default_ms: Quantity | None  # of the untuned default; None if it could not be measured
    best_ms: Quantity | None  # of the best candidate, measured interleaved with the default
    trials: Count  # of all runs that count, with failures
    failures: Count
    configuration: dict[str, Any] | None = None

    @property
    def speed_up(self) -> float | None:
        """The default's time divided by the best one's."""
        return speed_up(self.default_ms, self.best_ms)


class RunStarted(Record):
    """A run begins, on these boards; the conditions are those of the first one."""

    event: Literal["run started"] = "run started"
    run: str
    model: str
    board: str
    hosts: Listed[str]
    tuner: str
    seed: int = 0
    folder: str
    tasks: Listed[TaskSummary]
    conditions: Conditions | None = None


class TaskStarted(Record):
    """A task begins."""

    event: Literal["task started"] = "task started"
    task: TaskSummary


class Measured(Record):
    """A candidate was measured, or failed. `best_s` is the best median of the task so far, in seconds."""

    event: Literal["measured"] = "measured"
    trial: Trial
    best_s: Quantity | None
    gflops: Quantity | None


class Noted(Record):
    """A line that the user should see: a board is awaited, a batch is measured again."""

    event: Literal["note"] = "note"
    text: str


class Progressed(Record):
    """Steps of a long operation are done: candidates of a batch, turns at the end of a run."""

    event: Literal["progress"] = "progress"
    title: str
    done: Count
    total: Count


class TaskEnded(Record):
    """A task of a run is done."""

    event: Literal["task ended"] = "task ended"
    run: str
    result: TaskResult


class RunEnded(Record):
    """A run is done. Times are of one inference in ms, measured interleaved on the board; None if not measured."""

    event: Literal["run ended"] = "run ended"
    run: str
    results: Listed[TaskResult]
    before_ms: Quantity | None = None
    after_ms: Quantity | None = None
    seconds: Quantity
    interrupted: bool = False


Event = RunStarted | TaskStarted | Measured | Noted | Progressed | TaskEnded | RunEnded
Listener = Callable[[Event], None]

EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])

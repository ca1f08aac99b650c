"""What records consist of: a header, trials of candidates, and events of runs; and the folders of records.

Each event is one record that can be written as one line of JSON: for a display, a script that reads JSON, a report.
`event` names its kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from edgedeploy.base.catalog import MOST_LISTED
from edgedeploy.base.documents import Listed, Record
from edgedeploy.base.files import is_file, is_folder
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import UnknownNameError
from edgedeploy.version import __version__

DATABASE = "records.sqlite"


class Header(Record):
    """Which board profile and which of TVM's targets records are of; which versions began them, and when, in UTC."""

    format: Literal[1] = 1
    board: Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*$", max_length=200)]
    target: dict[str, Any]
    tvm: str
    edgedeploy: str = __version__
    created: datetime

    @staticmethod
    def of(board: str, target: dict[str, Any]) -> Header:
        """A new header for a board profile, by name, and TVM's target, as `Board.target` gives it."""
        from importlib.metadata import version

        now = datetime.now(timezone.utc).replace(microsecond=0)
        return Header(board=board, target=target, tvm=version("apache-tvm"), created=now)

    def difference(self, other: Header) -> str | None:
        """Why records of `other` do not belong to these, or None if they do."""
        for name in ("board", "target", "tvm"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return f"its {name} is {json.dumps(there)} and not {json.dumps(here)}"
        return None


def default_folder(board: str) -> Path:
    """The folder of a board's records, by its name, unless the user chooses another one."""
    return user_folder("data") / "records" / board


def holds_records(folder: Path) -> bool:
    """Whether a folder has a file of records."""
    return is_file(folder / DATABASE)


def folders() -> list[Path]:
    """The default folders that hold records, sorted by name."""
    return sorted(filter(holds_records, user_folder("data").glob("records/*")))


def find_folder(name: str) -> Path:
    """The folder of records that `name` means: a path, or a board's name."""
    known = default_folder(name) if "/" not in name else Path(name)
    if is_folder(known):
        return known
    if is_folder(Path(name)):
        return Path(name)
    names = [folder.name for folder in folders()]
    raise UnknownNameError(
        f"no tuning records for {name!r}",
        why=f"records exist for {', '.join(names[:MOST_LISTED])}" if names else "no records exist yet",
        hints=["list them with `edgedeploy records list`", "create some with `edgedeploy tune`"],
    )


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

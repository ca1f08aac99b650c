"""MetaSchedule's JSON database, line by line: TVM's `JSONDatabase` reads what is written here.

One file has a line for each workload, `["hash", "module"]`, the other one has a line for each success,
`[workload's line, record]`, as TVM's `meta_schedule/database/json_database.cc` writes them. Modules are written and
never read: a workload is known by its hash.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from edgedeploy.errors import RecordsError, last_line

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.s_tir.schedule import Schedule, Trace

    from edgedeploy.tune.proving import Prover

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

CONFIGURATION = "edgedeploy.configuration"

_WORKLOAD = re.compile(rb'\s*\[\s*"(\d{1,20})"\s*,\s*"[A-Za-z0-9+/]*={0,2}"\s*\]\s*')


def workload_hash(workload: IRModule) -> str:
    """The structural hash of a module, by which records know it: 16 hexadecimal digits, the same in every process."""
    from tvm_ffi import structural_hash

    return _hexadecimal(int(structural_hash(workload)))


def _hexadecimal(number: int) -> str:
    return format(number & (2**64 - 1), "016x")


def trace_of(workload: IRModule, configuration: dict[str, Any]) -> Trace:
    """A candidate of the templates' space as a trace: its configuration, noted at the function's root block."""
    from tvm.s_tir import Schedule

    schedule = Schedule(workload)
    schedule.annotate(schedule.get_sblock("root"), CONFIGURATION, json.dumps(configuration, sort_keys=True))
    return schedule.trace


def _configuration(text: str) -> dict[str, Any]:
    try:
        configuration = json_value(text)
    except ValueError as error:
        raise RecordsError("a trace has a damaged configuration", why=str(error)) from error
    if not isinstance(configuration, dict):
        raise RecordsError("a trace has a damaged configuration", why="it is not an object")
    return configuration


def workload_line(workload: IRModule) -> bytes:
    """A workload as a line of the database."""
    from tvm.s_tir.meta_schedule.database import Workload

    return _line(Workload(workload).as_json())


class WorkloadLine(NamedTuple):
    """A line of the workloads' file, and the hash that it gives."""

    hash: str
    line: bytes

    @staticmethod
    def parse(line: bytes) -> WorkloadLine:
        """Read a line.

        Raises:
            ValueError: it is no workload.
        """
        match = _WORKLOAD.fullmatch(line)
        if match is None or int(match[1]) >= 2**64:
            raise ValueError("it is no workload")
        return WorkloadLine(_hexadecimal(int(match[1])), line)


def record_line(index: int, workload: IRModule, trace: Trace, seconds: list[float], target: dict[str, Any]) -> bytes:
    """A success as a line of the database.

    Args:
        index: the line of its workload, counted from 0.
        workload: the module.
        trace: what makes the candidate of it.
        seconds: each measurement.
        target: TVM's target.
    """
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

    arguments = ArgInfo.from_prim_func(workload["main"])
    record = TuningRecord(trace, Workload(workload), seconds, tvm.target.Target(target), arguments)
    return _line([index, record.as_json()])


class RecordLine(NamedTuple):
    """A line of the records' file, and the workload's line, from 0, that it names."""

    owner: int
    line: bytes

    @staticmethod
    def parse(line: bytes) -> RecordLine:
        """Read a line.

        Raises:
            ValueError: it is no record.
        """
        match json_value(line):
            case [owner, [[list(), list()], times, dict(), list() | None]] if type(owner) is int and owner >= 0:
                if times is None or _are_times(times):
                    return RecordLine(owner, line)
        raise ValueError("it is no tuning record")

    def owned_by(self, owner: int) -> RecordLine:
        """The same record of a workload at another line."""
        return RecordLine(owner, b"[%d%s" % (owner, self.line[self.line.index(b",") :]))

    def seconds(self) -> list[float]:
        """Its measurements; TVM notes 1e10 for a failure."""
        return json_value(self.line)[1][1] or []

    def configuration(self) -> dict[str, Any] | None:
        """The candidate, if it is one of the templates' space; see `trace_of`.

        Raises:
            RecordsError: it is damaged.
        """
        for instruction in json_value(self.line)[1][0][0]:
            match instruction:
                case ["Annotate", [_, str(text)], [str(key)], _] if key == CONFIGURATION:
                    return _configuration(text[1:-1])  # TVM puts strings into quotes as they are
        return None

    def target(self) -> dict[str, Any]:
        """TVM's target that it was measured on."""
        return json_value(self.line)[1][2]


def _are_times(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) in (int, float) and 0 <= value < float("inf") for value in values
    )


def json_value(line: bytes | str) -> Any:
    """The JSON value in a line.

    Raises:
        ValueError: it is none, or is nested too deeply.
    """
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def trace_in(line: bytes, workload: IRModule, seconds: list[float], prover: Prover) -> Trace:
    """The trace of a line of the records' file, applied to its workload.

    Args:
        line: the line.
        workload: the module.
        seconds: what its trial measured.
        prover: tries it first.

    Raises:
        RecordsError: it is damaged, or is of another function or trial.
    """
    from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

    try:
        content = json_value(RecordLine.parse(line).line)[1]
    except ValueError as error:
        raise RecordsError("a tuning record cannot be read", why=str(error)) from error
    prover.check(workload, content)
    record = TuningRecord.from_json(content, Workload(workload))
    measured = [float(value) for value in record.run_secs or ()]
    if measured != seconds:
        raise RecordsError("a tuning record is not of its trial", hints=["do it again, if the records just changed"])
    return record.trace


def schedule_of(trace: Trace, workload: IRModule) -> Schedule:
    """A workload as a trace schedules it.

    Raises:
        RecordsError: the trace does not fit the workload.
    """
    from tvm.s_tir import Schedule

    schedule = Schedule(workload)
    try:
        trace.apply_to_schedule(schedule, remove_postproc=False)
    except Exception as error:  # TVM raises errors of many types
        raise RecordsError("a tuning record does not fit its function", why=last_line(error)) from error
    return schedule


def _line(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()

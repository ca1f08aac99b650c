"""MetaSchedule's JSON database, line by line: TVM's `JSONDatabase` reads what is written here.

One file has a line for each workload, `["hash", "module"]`, the other one has a line for each success,
`[workload's line, record]`, as TVM's `meta_schedule/database/json_database.cc` writes them. Modules are written and
never read: a workload is known by its hash.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from edgedeploy.errors import RecordsError, last_line

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.schedule import Trace

WORKLOADS = "database_workload.json"
RECORDS = "database_tuning_record.json"

CONFIGURATION = "edgedeploy.configuration"

_WORKLOAD = re.compile(rb'\s*\[\s*"(\d{1,20})"\s*,\s*"[A-Za-z0-9+/]*={0,2}"\s*\]\s*')
_RECORD = re.compile(rb"\s*\[\s*(\d{1,9})\s*,\s*\[.*\]\s*\]\s*")


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


def configuration_of(trace: Trace) -> dict[str, Any] | None:
    """The configuration that `trace_of` noted in a trace, or None if there is none.

    Raises:
        RecordsError: it is not one JSON object.
    """
    for instruction in trace.insts:
        if instruction.kind.name == "Annotate" and str(instruction.attrs[0]) == CONFIGURATION:
            try:
                configuration = json.loads(str(instruction.inputs[1]))
            except (ValueError, RecursionError) as error:
                raise RecordsError("a trace has a damaged configuration", why=str(error)) from error
            if not isinstance(configuration, dict):
                raise RecordsError("a trace has a damaged configuration", why="it is not an object")
            return configuration
    return None


def workload_line(workload: IRModule) -> bytes:
    """A workload as a line of the database."""
    from tvm.s_tir.meta_schedule.database import Workload

    return _line(Workload(workload).as_json())


def hash_in(line: bytes) -> str:
    """The hash that a line of the workloads' file gives.

    Raises:
        ValueError: it is no such line.
    """
    match = _WORKLOAD.fullmatch(line)
    if match is None or int(match[1]) >= 2**64:
        raise ValueError("it is no workload")
    return _hexadecimal(int(match[1]))


def record_line(
    index: int,
    workload: IRModule,
    trace: Trace,
    seconds: list[float],
    target: dict[str, Any],
    arguments: list[ArgInfo] | None = None,
) -> bytes:
    """A success as a line of the database.

    Args:
        index: the line of its workload, counted from 0.
        workload: the module.
        trace: what makes the candidate of it.
        seconds: each measurement.
        target: TVM's target.
        arguments: of the function; read from it if None.
    """
    import tvm
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

    arguments = arguments or ArgInfo.from_prim_func(workload["main"])
    record = TuningRecord(trace, Workload(workload), seconds, tvm.target.Target(target), arguments)
    return _line([index, record.as_json()])


def owner_in(line: bytes) -> int:
    """The workload's line, counted from 0, that a line of the records' file names.

    Raises:
        ValueError: it is no such line.
    """
    match = _RECORD.fullmatch(line)
    if match is None:
        raise ValueError("it is no tuning record")
    return int(match[1])


def trace_in(line: bytes, workload: IRModule) -> Trace:
    """The trace of a line of the records' file, applied to its workload.

    Raises:
        RecordsError: it is damaged, or is of another function.
    """
    from tvm.s_tir.meta_schedule.database import TuningRecord, Workload

    try:
        [_, record] = json.loads(line)
        return TuningRecord.from_json(record, Workload(workload)).trace
    except Exception as error:  # TVM raises errors of many types
        raise RecordsError("a tuning record cannot be read", why=last_line(error)) from error


def _line(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()

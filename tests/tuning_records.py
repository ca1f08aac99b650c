"""Small tuning records that tests make: matrix products as workloads, trials with made-up times."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import Any

import tvm
from edgedeploy.tune.database import CONFIGURATION, workload_hash
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from edgedeploy.tune.header import Header
from edgedeploy.tune.records import Records
from edgedeploy.tune.trial import Trial

TARGET = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@cache
def product(size: int = 16) -> tvm.IRModule:
    """The product of two square matrices."""
    left, right = (te.placeholder((size, size), name=name) for name in "AB")
    along = te.reduce_axis((0, size), "k")
    result = te.compute((size, size), lambda i, j: te.sum(left[i, along] * right[along, j], axis=along), name="C")
    return tvm.IRModule({"main": te.create_prim_func([left, right, result]).with_attr("global_symbol", "main")})


def scheduled(module: tvm.IRModule, factor: int = 8) -> Schedule:
    """A candidate of the kind that MetaSchedule finds."""
    schedule = Schedule(module)
    block = schedule.get_sblock("C")
    rows, columns, along = schedule.get_loops(block)
    outer, inner = schedule.split(columns, [None, factor])
    schedule.reorder(rows, outer, along, inner)
    schedule.vectorize(inner)
    return schedule


def header(**changes: Any) -> Header:
    """Of a Raspberry Pi 4."""
    return Header.of("rpi4", TARGET).model_copy(update={"created": START, **changes})


def trial(number: int, *milliseconds: float, module: tvm.IRModule | None = None, **fields: Any) -> Trial:
    """A trial that took so long, or failed if no time is given; of the templates' space unless said otherwise."""
    space = fields.get("space", "templates")
    failed = {} if milliseconds else {"failure": "build", "error": "no\ncode"}
    return Trial(
        **{
            "time": START + timedelta(seconds=number),
            "run": "first",
            "task": "product",
            "workload": workload_hash(module or product()),
            "number": number,
            "configuration": {"tile": [number, 4], "order": 'a "b" \\ é'} if space == "templates" else None,
            "seconds": [value / 1e3 for value in milliseconds],
            **failed,
            **fields,
        }
    )


def filled(folder: Path) -> Path:
    """A folder with two tasks, three successes of the templates' space, one of MetaSchedule's, and a failure."""
    with Records.open(folder, header()) as records:
        records.add(product(), trial(0, 4.0, 4.2))
        records.add(product(), trial(1, 2.0, 2.2))
        records.add(product(), trial(2))
        records.add(product(), trial(3, 3.0, space="metaschedule"), scheduled(product()).trace)
        records.add(product(32), trial(0, 8.0, module=product(32), task="larger"))
    return folder


def configuration_in(trace: Trace) -> Any:
    """The configuration that is noted in a trace; None if there is none."""
    for instruction in trace.insts:
        if instruction.kind.name == "Annotate" and str(instruction.attrs[0]) == CONFIGURATION:
            return json.loads(str(instruction.inputs[1]))
    return None


def files_of(folder: Path) -> dict[str, bytes]:
    """What lies in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}

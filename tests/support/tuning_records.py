"""Small tuning records that tests make: matrix products as workloads, trials with made-up times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.records.database import Records, read_records
from edgedeploy.records.events import RunStarted, TaskResult
from edgedeploy.records.header import Header
from edgedeploy.records.lines import Content
from edgedeploy.records.trial import Trial

if TYPE_CHECKING:
    from edgedeploy.tuning.task import Task

TARGET = {"kind": "llvm", "mtriple": "aarch64-unknown-linux-gnu", "mcpu": "cortex-a72", "num-cores": 4}
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

# Workloads as records name them.
PRODUCT, LARGER, SMALLER = "00a1b2c3d4e5f607", "10a1b2c3d4e5f607", "20a1b2c3d4e5f607"


def header(**changes: Any) -> Header:
    """Of a Raspberry Pi 4."""
    fields = {"board": "rpi4", "target": TARGET, "tvm": "0.27.0", "created": START, **changes}
    return Header.model_validate(fields)


def trial(number: int, *milliseconds: float, **fields: Any) -> Trial:
    """A trial that took so long, or failed if no time is given."""
    failed = {} if milliseconds else {"failure": "build", "error": "no\ncode"}
    return Trial(
        **{
            "time": START + timedelta(seconds=number),
            "run": "first",
            "task": "product",
            "workload": PRODUCT,
            "number": number,
            "configuration": {"tile": [number, 4], "order": 'a "b" \\ é'},
            "seconds": [value / 1e3 for value in milliseconds],
            **failed,
            **fields,
        }
    )


def trial_of(task: Task, number: int, milliseconds: float, **fields: Any) -> Trial:
    """A trial of a network's task, of the candidate of that number."""
    configuration = task.candidates[number].model_dump(mode="json")
    return trial(number, milliseconds, task=task.name, workload=task.key, configuration=configuration, **fields)


def started(**changes: Any) -> RunStarted:
    fields = {"run": "first", "model": "net", "board": "rpi4", "hosts": ["a"], "tuner": "xgb"}
    return RunStarted.model_validate({**fields, "folder": "f", "tasks": [], **changes})


def result(**changes: Any) -> TaskResult:
    fields = {"number": 0, "name": "product", "workload": PRODUCT, "weight": 1, "default_ms": 3, "best_ms": 2}
    return TaskResult.model_validate({**fields, "trials": 4, "failures": 1, **changes})


TRIALS = [
    trial(0, 4.0, 4.2),
    trial(1, 2.0, 2.2),
    trial(2),
    trial(3, 3.0),
    trial(0, 8.0, workload=LARGER, task="larger"),
]


def filled(folder: Path) -> Path:
    """A folder with two tasks, four successes and a failure."""
    with Records.open(folder, header()) as records:
        for each in TRIALS:
            records.add(each)
    return folder


def content_of(folder: Path) -> Content:
    content = read_records(folder)
    return Content(content.header, sorted(content.trials, key=Trial.model_dump_json), content.events)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}

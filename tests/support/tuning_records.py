"""Tuning records with made-up times, and tuning runs as they could happen, made up from a seed."""

import random
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.records.database import Records, read_records
from edgedeploy.records.lines import Content
from edgedeploy.records.schema import (
    DATABASE,
    Conditions,
    Event,
    Header,
    Measured,
    RunEnded,
    RunStarted,
    TaskEnded,
    TaskResult,
    TaskStarted,
    TaskSummary,
    Trial,
)

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


def trial_of(task: "Task", number: int, milliseconds: float, **fields: Any) -> Trial:
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


def changed(folder: Path, *statements: str) -> Path:
    """Records whose database was changed by hand, with statements of SQL."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return folder


def content_of(folder: Path) -> Content:
    content = read_records(folder)
    return Content(content.header, sorted(content.trials, key=Trial.model_dump_json), content.events)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


BEGIN = datetime(2026, 5, 4, 12, 0, tzinfo=timezone.utc)
HOSTILE = "conv\x1b[2J\n[bold red]<script>alert('x')</script>&amp;\u202e</svg>"


@dataclass(frozen=True)
class Simulation:
    """A run of several tasks, of which every seventh trial fails, on boards that get warmer."""

    names: Sequence[str] = ("fused_conv2d", "fused_matmul", "fused_pool")
    run: str = "run-1"
    model: str = "mobilenet_v1"
    board: str = "rpi4"
    hosts: Sequence[str] = ("pi@a",)
    trials: int = 16
    done: int = 0
    seed: int = 1

    def summaries(self) -> list[TaskSummary]:
        return [
            TaskSummary(
                number=10 + index,
                name=name,
                workload=f"{self.model}-{index}",
                weight=index + 1,
                mflop=10.0 * (index + 1),
                candidates=100,
                trials=self.trials,
                done=self.done,
            )
            for index, name in enumerate(self.names)
        ]

    def begin(self) -> RunStarted:
        conditions = Conditions(governor="ondemand", frequency_mhz=1500, temperature_c=40)
        about = {"run": self.run, "model": self.model, "board": self.board, "hosts": list(self.hosts)}
        return started(**about, folder="/home/user/records/rpi4", tasks=self.summaries(), conditions=conditions)

    def task(self, summary: TaskSummary) -> list[Event]:
        """The events of one task: its trials, the default and the best of them again, its end."""
        chance = random.Random(f"{self.seed} {summary.workload}")
        events: list[Event] = [TaskStarted(task=summary)]
        trials: list[Trial] = []
        for number in range(summary.done, summary.trials):
            trials.append(self._trial(summary, number, chance))
            times = [trial.median_s for trial in trials if trial.median_s is not None]
            best = min(times, default=None)
            gflops = summary.mflop / best / 1e3 if best else None
            events.append(Measured(trial=trials[-1], best_s=best, gflops=gflops))
        measured = [trial for trial in trials if trial.seconds]
        finals = [
            trial.model_copy(update={"final": True, "number": summary.trials})
            for trial in (measured[0], min(measured, key=lambda trial: trial.median_s or 0))
        ]
        default, best = (trial.median_s for trial in finals)
        events += [Measured(trial=trial, best_s=best, gflops=summary.mflop / best / 1e3) for trial in finals]
        result = TaskResult(
            **summary.model_dump(include={"number", "name", "workload", "weight", "trials"}),
            default_ms=default * 1e3,
            best_ms=best * 1e3,
            failures=sum(trial.failure is not None for trial in trials),
            configuration=finals[1].configuration,
        )
        return [*events, TaskEnded(run=self.run, result=result)]

    def _trial(self, summary: TaskSummary, number: int, chance: random.Random) -> Trial:
        failed = number % 7 == 3
        seconds = [1e-3 * (1.5 if number == 0 else chance.uniform(0.8, 3)) * chance.uniform(0.99, 1.01) for _ in "123"]
        return Trial(
            time=BEGIN + timedelta(minutes=10 * summary.number, seconds=number * 5),
            run=self.run,
            task=summary.name,
            workload=summary.workload,
            number=number,
            configuration={"tile": number, "unroll": True},
            seconds=[] if failed else seconds,
            failure="timeout" if failed else None,
            error=f"{HOSTILE} took too long" if failed else None,
            host=self.hosts[number % len(self.hosts)],
            conditions=Conditions(
                governor="ondemand", frequency_mhz=1500, temperature_c=50 + number, throttled=number == 9
            ),
        )

    def events(self) -> list[Event]:
        """All of them, as a run tells them that nothing disturbs."""
        events: list[Event] = [self.begin()]
        for summary in self.summaries():
            events += self.task(summary)
        results = [event.result for event in events if isinstance(event, TaskEnded)]
        return [*events, RunEnded(run=self.run, results=results, before_ms=30, after_ms=20, seconds=200)]

    def until(self, kind: type, count: int) -> list[Event]:
        """The events up to and with the one that is the `count`-th of its kind."""
        events = self.events()
        places = [place for place, event in enumerate(events) if isinstance(event, kind)]
        return events[: places[count - 1] + 1]


def trials_of(events: Iterable[Event]) -> list[Trial]:
    return [event.trial for event in events if isinstance(event, Measured)]


def write_records(folder: Path, *runs: Iterable[Event], board: str = "rpi4") -> Path:
    """A folder with what is kept of the events of some runs."""
    events = [event for run in runs for event in run]
    told = [event for event in events if isinstance(event, (RunStarted, TaskEnded, RunEnded))]
    of_board = header(board=board)
    with Records.open(folder, of_board) as records:
        records.absorb(Content(of_board, trials_of(events), told))
    return folder

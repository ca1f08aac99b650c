"""`edgedeploy records`: list, show, merge, export, import and prune tuning records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from edgedeploy.base.text import count, milliseconds, times
from edgedeploy.cli.console import as_table, print_result, shown_progress, stderr
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import RecordsArgument, complete_records
from edgedeploy.errors import RecordsError, UnknownNameError

if TYPE_CHECKING:
    from rich.table import Table

    from edgedeploy.records.exchange import Merged
    from edgedeploy.records.schema import TaskOverview, Trial

# Characters of an error's end, where compilers and TVM put the cause.
_ERROR_LETTERS = 100

app = Commands(help="List, show, merge, export, import and prune tuning records.", no_args_is_help=True)


@app.command("list")
def list_records() -> None:
    """List the tuning records on this machine, by board.

    Example: edgedeploy records list
    """
    from rich.filesize import decimal

    from edgedeploy.records.database import read_records
    from edgedeploy.records.schema import folders, overview

    summaries: list[dict[str, Any]] = []
    for folder in folders():
        try:
            content = read_records(folder)
        except RecordsError as error:
            stderr().print(f"warning: {folder} is left out: {error.cause}")
            continue
        tasks = overview(content.trials)
        summaries.append(
            {
                "folder": str(folder),
                **content.header.model_dump(mode="json"),
                "workloads": len(tasks),
                "trials": sum(task.trials for task in tasks),
                "failures": sum(task.failures for task in tasks),
                "best_speed_up": max((task.speed_up for task in tasks if task.speed_up), default=None),
                "bytes": sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
            }
        )
    if not summaries:
        print_result([], "no tuning records; `edgedeploy tune` creates some")
        return
    rows = []
    for each in summaries:
        host = each["target"].get("host")
        cpu = host if isinstance(host, dict) else each["target"]  # TVM's target may be a device with its host
        named = [each["board"], str(cpu.get("mcpu", "")), str(cpu.get("mtriple", ""))]
        counts = [str(each[key]) for key in ("workloads", "trials", "failures")]
        rows.append([*named, *counts, times(each["best_speed_up"]), decimal(each["bytes"])])
    numbers = ["tasks", "trials", "failures", "best speed-up", "size"]
    print_result(summaries, as_table(["board", "cpu", "triple", *numbers], rows, right=numbers))


@app.command()
def show(
    name: RecordsArgument,
    task: str | None = Option(None, help="Show each trial of one task: its name, or the start of its workload's hash."),
) -> None:
    """Show records: their board and target, the runs that created them, and each task; or each trial of one task.

    Examples: edgedeploy records show rpi4; edgedeploy records show rpi4 --task conv2d_3
    """
    from edgedeploy.records.database import read_records
    from edgedeploy.records.schema import RunStarted, find_folder, overview

    folder = find_folder(name)
    content = read_records(folder)
    if task is not None:
        _show_task(_of_task(content.trials, task, folder))
        return
    header, tasks = content.header, overview(content.trials)
    runs = [event for event in content.events if isinstance(event, RunStarted)]
    shown = {"folder": str(folder), **header.model_dump(mode="json")}
    shown["runs"] = [run.model_dump(mode="json") for run in runs]
    lines = [f"{folder}: {header.board}, begun {header.created:%Y-%m-%d %H:%M} UTC with TVM {header.tvm}"]
    lines.append(" ".join(f"{key}={value}" for key, value in header.target.items()))
    for run in runs:
        how = f"{count(len(run.tasks), 'task')}, {run.tuner}, seed {run.seed}"
        lines.append(f"run {run.run}: {run.model} on {', '.join(run.hosts)}, {how}")
    print_result({**shown, "tasks": [vars(each) for each in tasks]}, *lines, _task_table(tasks))


@app.command()
def best(name: RecordsArgument) -> None:
    """Show the candidate that builds use for each task.

    Example: edgedeploy records best rpi4
    """
    from edgedeploy.records.database import read_records
    from edgedeploy.records.schema import find_folder, overview

    tasks = overview(read_records(find_folder(name)).trials)
    print_result([vars(each) for each in tasks], _task_table(tasks, candidates=True))


@app.command()
def merge(
    sources: list[str] = Argument(..., metavar="BOARD|DIR...", help="Records to add.", autocompletion=complete_records),
    into: str = Option(..., metavar="BOARD|DIR", help="Add them to these; a missing folder is created."),
) -> None:
    """Add records to others of the same board and target. Trials that exist already count once.

    Example: edgedeploy records merge laptop/records desk/records --into all/records
    """
    from edgedeploy.records.exchange import merge as merge_records
    from edgedeploy.records.schema import find_folder

    folders, progress = [find_folder(source) for source in sources], shown_progress()
    _print_merged(merge_records(folders, _destination(into), progress))


@app.command()
def export(
    name: RecordsArgument, output: Path = Argument(..., metavar="FILE", help="The file to write, .jsonl.")
) -> None:
    """Write records as JSON lines; equal records give equal bytes.

    Example: edgedeploy records export rpi4 rpi4-records.jsonl
    """
    from edgedeploy.records.exchange import export as export_records
    from edgedeploy.records.schema import find_folder

    trials = export_records(find_folder(name), output)
    size = output.stat().st_size
    about = {"file": str(output), "trials": trials, "bytes": size}
    print_result(about, f"{output}: {count(trials, 'trial')}, {size:,} bytes")


@app.command(name="import")
def import_records(
    source: Path = Argument(..., metavar="FILE|DIR", help="A file from `records export`, or a records folder."),
    into: str | None = Option(None, metavar="BOARD|DIR", help="Add them to these; default: those of their board."),
) -> None:
    """Add the records in a file or a folder to those of their board. Each line is validated.

    Examples: edgedeploy records import rpi4-records.jsonl; edgedeploy records import desk/records --into rpi4
    """
    from edgedeploy.records.exchange import import_records as add_records

    merged = add_records(source, _destination(into) if into else None, shown_progress())
    _print_merged(merged)


@app.command()
def prune(
    name: RecordsArgument,
    keep: int = Option(16, min=1, help="How many of each task's best trials to keep."),
    dry_run: bool = Option(False, "--dry-run", help="Report what would be dropped, and drop nothing."),
) -> None:
    """Drop failed trials, and all but the best of each task. Builds stay the same.

    The untuned default is kept, and so are the last run's final measurements. A resumed run may try dropped candidates
    again.

    Example: edgedeploy records prune rpi4 --keep 8
    """
    from edgedeploy.records.exchange import prune as prune_records
    from edgedeploy.records.schema import find_folder

    folder = find_folder(name)
    pruned = prune_records(folder, keep, dry_run=dry_run)
    verb = "would be removed" if dry_run else "removed"
    print_result(
        {"folder": str(folder), "removed": pruned.removed, "kept": pruned.kept, "dry_run": dry_run},
        f"{folder}: {count(pruned.removed, 'trial')} {verb}, {pruned.kept} kept",
    )


def _of_task(trials: list[Trial], task: str, folder: Path) -> list[Trial]:
    found = [trial for trial in trials if trial.task == task]
    found = found or [trial for trial in trials if task and trial.workload.startswith(task)]
    if not found:
        hints = ["list them with `edgedeploy records show`"]
        raise UnknownNameError(f"no task {task!r} in {folder}", hints=hints)
    return found


def _show_task(trials: list[Trial]) -> None:
    rows = []
    for trial in trials:
        warmth = trial.conditions.temperature_c if trial.conditions else None
        error = " ".join((trial.error or "").split())[-_ERROR_LETTERS:]
        result = f"{trial.failure}: {error}" if trial.failure else _candidate(trial.configuration)
        name = f"{trial.number}{' final' if trial.final else ''}"
        measured = [milliseconds(trial.median_ms), f"{warmth:.0f} °C" if warmth is not None else ""]
        rows.append([name, f"{trial.time:%Y-%m-%d %H:%M:%S}", trial.host, *measured, result])
    numbers = ["ms", "temperature"]
    table = as_table(["trial", "time (UTC)", "host", *numbers, "candidate or failure"], rows, right=numbers)
    print_result([trial.model_dump(mode="json") for trial in trials], table)


def _task_table(tasks: list[TaskOverview], *, candidates: bool = False) -> Table:
    rows = []
    for each in tasks:
        measured = [milliseconds(each.default_ms), milliseconds(each.best_ms), times(each.speed_up)]
        cells = [each.task, each.workload, str(each.trials), str(each.failures), *measured]
        rows.append([*cells, *([_candidate(each.configuration)] if candidates else [])])
    numbers = ["trials", "failures", "default ms", "best ms", "speed-up"]
    return as_table(["task", "workload", *numbers, *(["candidate"] if candidates else [])], rows, right=numbers)


def _candidate(configuration: dict[str, Any] | None) -> str:
    return json.dumps(configuration, sort_keys=True) if configuration is not None else ""


def _print_merged(merged: Merged) -> None:
    line = f"{merged.folder}: {count(merged.added, 'trial')} added, {merged.known} known"
    print_result({**vars(merged), "folder": str(merged.folder)}, line)


def _destination(name: str) -> Path:
    """The records folder of a board's name or a path, which need not exist."""
    from edgedeploy.records.schema import default_folder
    from edgedeploy.target.board import BOARDS

    return default_folder(name) if "/" not in name and name in BOARDS.names() else Path(name)

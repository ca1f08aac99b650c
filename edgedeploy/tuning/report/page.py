"""The page about tuning records: the values of its template `tuning.html`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from edgedeploy.compile.types import lanes_for
from edgedeploy.errors import EdgedeployError
from edgedeploy.files import replacing
from edgedeploy.records.database import read_records
from edgedeploy.records.header import Header
from edgedeploy.records.lines import Content
from edgedeploy.records.trial import Trial
from edgedeploy.report import require_report
from edgedeploy.report.page import html, render
from edgedeploy.resolved import resolve
from edgedeploy.text import count, duration, significant
from edgedeploy.tuning.report.charts import convergence, temperatures
from edgedeploy.tuning.report.history import Network, Run, Task, networks_of
from edgedeploy.tuning.state import TITLES, cells, end_to_end

# Errors can be whole logs of a compiler.
_LONGEST_ERROR = 600
_MOST_ERRORS = 20

_OPERATIONS = 2  # a multiplication and an addition


def write_report(folder: Path, output: Path) -> Path:
    """Write the page of a folder of records to an HTML file; a run may be adding records meanwhile."""
    require_report()
    text = _page(folder, read_records(folder))
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return output


def _page(folder: Path, content: Content) -> str:
    header = content.header
    return render(
        __package__,
        "tuning.html",
        title=f"Tuning of {header.board}",
        header={
            "target": json.dumps(header.target, ensure_ascii=False),
            "Apache TVM": header.tvm,
            "edgedeploy": header.edgedeploy,
            "records begun": header.created.isoformat(),
            "folder": str(folder),
        },
        titles=TITLES,
        networks=[_network(network, header) for network in networks_of(content)],
    )


def _network(network: Network, header: Header) -> dict[str, Any]:
    peak_gflops, explanation = _peak(header, [trial for task in network.tasks for trial in task.trials])
    ends = [(run.ended.before_ms, run.ended.after_ms) for run in network.runs if run.ended]
    whole = [end for end in ends if all(end)]
    rows: list[dict[str, Any]] = [
        {"cells": line, "rate": "", "share": None} for line in cells([task.result for task in network.tasks])
    ]
    for row, task in zip(rows, network.tasks, strict=False):  # below the tasks their sum
        row["rate"] = significant(task.gflops) if task.gflops else "-"
        row["share"] = task.gflops / peak_gflops if task.gflops and peak_gflops else None
    return {
        "name": "Tasks of no run that is recorded" if network.name is None else network.name,
        "before_and_after": end_to_end(*whole[-1] if whole else (None, None)),
        "rows": rows,
        "unfinished": [task.result.number for task in network.tasks if not task.ended],
        "peak": explanation,
        "tasks": [_task(task) for task in network.tasks],
        "runs": [_run(run) for run in network.runs],
    }


def _task(task: Task) -> dict[str, Any]:
    result = task.result
    failed = [trial for trial in task.trials if trial.failure is not None]
    errors = Counter((str(trial.failure), (trial.error or "")[:_LONGEST_ERROR]) for trial in failed)
    more = len(errors) - _MOST_ERRORS
    return {
        "result": result,
        "mflop": task.mflop,
        "chart": html(convergence(task.trials, result.default_ms)),
        "configuration": json.dumps(result.configuration, ensure_ascii=False, sort_keys=True)
        if result.configuration is not None
        else None,
        "failures": count(len(failed), "failure") if failed else None,
        "errors": [(kind, number, error) for (kind, error), number in errors.most_common(_MOST_ERRORS)],
        "more_errors": count(more, "more error") if more > 0 else None,
    }


def _run(run: Run) -> dict[str, Any]:
    started, ended = run.started, run.ended
    begin = f", {min(trial.time for trial in run.trials).isoformat(timespec='seconds')}" if run.trials else ""
    if ended is None:
        end = "cut off, or still running"
    else:
        end = f"{'interrupted' if ended.interrupted else 'done'} after {duration(ended.seconds)}"
    hosts = list(dict.fromkeys([*started.hosts, *(trial.host for trial in run.trials)]))
    return {
        "summary": f"Run {started.run}{begin}: {end}",
        "facts": {
            "tuner": started.tuner,
            "boards": ", ".join(started.hosts),
            "tasks": ", ".join(str(task.number) for task in started.tasks),
            "trials": f"{sum(not trial.final for trial in run.trials):,}",
            "tasks ended": f"{len(run.results):,}",
        },
        "before_and_after": end_to_end(ended.before_ms, ended.after_ms) if ended else None,
        "conditions": [line for host in hosts if (line := _conditions(run.trials, host))],
        "chart": html(temperatures(run.trials, hosts)),
    }


def _conditions(trials: Sequence[Trial], host: str) -> list[str] | None:
    """The conditions that a board reported during a run; None if it reported none."""
    told = [trial.conditions for trial in trials if trial.host == host and trial.conditions]
    if not told:
        return None
    throttled = sum(bool(each.throttled) for each in told)
    unknown = all(each.throttled is None for each in told)
    return [
        host,
        ", ".join(sorted({each.governor for each in told if each.governor})) or "-",
        _range([each.frequency_mhz for each in told], 0),
        _range([each.temperature_c for each in told], 1),
        "not told" if unknown else f"{throttled:,} of {len(told):,}",
    ]


def _range(values: Sequence[float | None], decimals: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = f"{min(known):.{decimals}f}", f"{max(known):.{decimals}f}"
    return low if low == high else f"{low} to {high}"


def _peak(header: Header, trials: Iterable[Trial]) -> tuple[float | None, str]:
    """The most operations on float32 a second, in 10^9, that a board could do, if known, and an explanation.

    It is cores x frequency x fused multiply-adds that start per cycle x float32 lanes x 2, as the board's profile
    states them, at the highest frequency that was read with the trials.
    """
    if header.target.get("kind") != "llvm":
        return None, "the peak is not known: networks run on a device beside the CPU, whose rate is not stated"
    try:
        board = resolve(header.board).profile
    except EdgedeployError as error:
        return None, f"the peak is not known: {error.what}"
    read = [trial.conditions.frequency_mhz for trial in trials if trial.conditions]
    frequencies = [frequency for frequency in read if frequency]
    if not frequencies:
        return None, "the peak is not known: no trial tells the frequency of the board"
    cores = header.target.get("num-cores")
    if not isinstance(cores, int) or not 0 < cores <= 1 << 16:
        cores = board.cores
    lanes, frequency = lanes_for(board, "float32"), max(frequencies)
    gflops = cores * frequency / 1e3 * board.fma.per_cycle * lanes * _OPERATIONS
    return gflops, (
        f"the peak is {significant(gflops)} GFLOP/s: {cores} cores x {frequency:.0f} MHz, the highest frequency "
        f"that was read, x {board.fma.per_cycle:g} fused multiply-adds per cycle x {lanes} lanes x {_OPERATIONS}"
    )

"""The page about tuning records: their networks with runs and tasks, as values of the template `tuning.html`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgedeploy.base.files import write_text
from edgedeploy.base.text import count, duration, significant
from edgedeploy.compile.ir.types import lanes_for
from edgedeploy.errors import EdgedeployError
from edgedeploy.records import schema
from edgedeploy.records.database import read_records
from edgedeploy.records.lines import Content
from edgedeploy.records.schema import Header, Trial, by_workload
from edgedeploy.report import html, render, require_report
from edgedeploy.target.resolved import resolve
from edgedeploy.tuning.report.charts import convergence, temperatures
from edgedeploy.tuning.state import TITLES, cells, end_to_end

# Errors can be whole logs of a compiler.
_LONGEST_ERROR = 600
_MOST_ERRORS = 20

_OPERATIONS = 2  # a multiplication and an addition


@dataclass
class _Run:
    """A run with its own results, by workload, and trials; one that was killed has no end."""

    started: schema.RunStarted
    ended: schema.RunEnded | None = None
    results: dict[str, schema.TaskResult] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)


@dataclass(frozen=True)
class _Task:
    result: schema.TaskResult  # of the last run that ended it, otherwise from its trials
    ended: bool
    mflop: float  # 0 if no run stated it
    trials: list[Trial]

    @property
    def gflops(self) -> float | None:
        """The rate of the best candidate, in 10^9 operations a second."""
        return self.mflop / self.result.best_ms if self.mflop and self.result.best_ms else None


def _networks_of(content: Content) -> list[tuple[str, list[_Run], list[_Task]]]:
    """The networks of records by name, with their runs and tasks, in the order in which they were first tuned.

    The tasks that no run names, such as those of imported records, come last.
    """
    trials = by_workload(content.trials)
    runs = _runs(content.events)
    for trial in content.trials:
        if run := runs.get(trial.run):
            run.trials.append(trial)
    named: dict[str, list[_Run]] = {}
    for run in runs.values():
        named.setdefault(run.started.model, []).append(run)
    networks = [(name, own, _tasks(own, trials)) for name, own in named.items()]
    named_tasks = {task.result.workload for _, _, tasks in networks for task in tasks}
    strays = [
        schema.TaskSummary(
            number=number, name=each[-1].task, workload=key, weight=1, mflop=0, candidates=None, trials=0
        )
        for number, (key, each) in enumerate(trials.items())
        if key not in named_tasks
    ]
    if strays:
        tasks = [_task_of(stray, trials[stray.workload]) for stray in strays]
        networks.append(("Tasks of no run that is recorded", [], tasks))
    return networks


def _runs(events: Iterable[schema.Event]) -> dict[str, _Run]:
    runs: dict[str, _Run] = {}
    for event in events:
        if isinstance(event, schema.RunStarted):
            runs[event.run] = _Run(event)
        elif isinstance(event, schema.TaskEnded) and (run := runs.get(event.run)):
            run.results[event.result.workload] = event.result
        elif isinstance(event, schema.RunEnded) and (run := runs.get(event.run)):
            run.ended = event
    return runs


def _tasks(runs: list[_Run], trials: dict[str, list[Trial]]) -> list[_Task]:
    summaries = {summary.workload: summary for run in runs for summary in run.started.tasks}
    results = {workload: result for run in runs for workload, result in run.results.items()}
    tasks = [_task_of(summary, trials.get(key, []), results.get(key)) for key, summary in summaries.items()]
    return sorted(tasks, key=lambda task: task.result.number)


def _task_of(summary: schema.TaskSummary, trials: list[Trial], result: schema.TaskResult | None = None) -> _Task:
    if result:
        return _Task(result, True, summary.mflop, trials)
    searched = [trial for trial in trials if not trial.final]
    known = vars(schema.overview(trials)[0]) if trials else {}
    best: dict[str, Any] = {name: known.get(name) for name in ("default_ms", "best_ms", "configuration")}
    derived = schema.TaskResult(
        **summary.model_dump(include={"number", "name", "workload", "weight"}),
        **best,
        trials=len(searched),
        failures=sum(trial.failure is not None for trial in searched),
    )
    return _Task(derived, False, summary.mflop, trials)


def write_report(folder: Path, output: Path) -> Path:
    """Write the page of a folder of records to an HTML file; a run may be adding records at the same time."""
    require_report()
    content = read_records(folder)
    header = content.header
    text = render(
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
        networks=[_network(header, *network) for network in _networks_of(content)],
    )
    write_text(output, text)
    return output


def _network(header: Header, name: str, runs: list[_Run], tasks: list[_Task]) -> dict[str, Any]:
    peak_gflops, explanation = _peak(header, [trial for task in tasks for trial in task.trials])
    whole = [(end.before_ms, end.after_ms) for run in runs if (end := run.ended) and end.before_ms and end.after_ms]
    rows: list[dict[str, Any]] = [
        {"cells": line, "rate": "", "share": None} for line in cells([task.result for task in tasks])
    ]
    for row, task in zip(rows, tasks, strict=False):  # below the tasks their sum
        row["rate"] = significant(task.gflops) if task.gflops else "-"
        row["share"] = task.gflops / peak_gflops if task.gflops and peak_gflops else None
    return {
        "name": name,
        "before_and_after": end_to_end(*whole[-1] if whole else (None, None)),
        "rows": rows,
        "unfinished": [task.result.number for task in tasks if not task.ended],
        "peak": explanation,
        "tasks": list(map(_task, tasks)),
        "runs": list(map(_run, runs)),
    }


def _task(task: _Task) -> dict[str, Any]:
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


def _run(run: _Run) -> dict[str, Any]:
    started, ended = run.started, run.ended
    begin = f", {min(trial.time for trial in run.trials).isoformat(timespec='seconds')}" if run.trials else ""
    end = f"{'interrupted' if ended.interrupted else 'done'} after {duration(ended.seconds)}" if ended else None
    hosts = list(dict.fromkeys([*started.hosts, *(trial.host for trial in run.trials)]))
    return {
        "summary": f"Run {started.run}{begin}: {end or 'cut off, or still running'}",
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
    reported = [trial.conditions for trial in trials if trial.host == host and trial.conditions]
    if not reported:
        return None
    throttled = sum(bool(each.throttled) for each in reported)
    unknown = all(each.throttled is None for each in reported)
    return [
        host,
        ", ".join(sorted({each.governor for each in reported if each.governor})) or "-",
        _range([each.frequency_mhz for each in reported], 0),
        _range([each.temperature_c for each in reported], 1),
        "not reported" if unknown else f"{throttled:,} of {len(reported):,}",
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
        return None, "the peak is not known: networks run on a device other than the CPU, whose rate is not stated"
    try:
        board = resolve(header.board).profile
    except EdgedeployError as error:
        return None, f"the peak is not known: {error.what}"
    read = [trial.conditions.frequency_mhz for trial in trials if trial.conditions]
    frequencies = [frequency for frequency in read if frequency]
    if not frequencies:
        return None, "the peak is not known: no trial has the frequency of the board"
    cores = header.target.get("num-cores")
    if not isinstance(cores, int) or not 0 < cores <= 1 << 16:
        cores = board.cores
    lanes, frequency = lanes_for(board, "float32"), max(frequencies)
    gflops = cores * frequency / 1e3 * board.fma.per_cycle * lanes * _OPERATIONS
    return gflops, (
        f"the peak is {significant(gflops)} GFLOP/s: {cores} cores x {frequency:.0f} MHz, the highest frequency "
        f"that was read, x {board.fma.per_cycle:g} fused multiply-adds per cycle x {lanes} lanes x {_OPERATIONS}"
    )

"""The page of a report: tables, drawings and what they mean."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from edgedeploy import __version__
from edgedeploy.text import count, duration, significant
from edgedeploy.tune.report.charts import board_class, convergence, legend, temperatures
from edgedeploy.tune.report.history import History, Network, Run, Task
from edgedeploy.tune.report.markup import Content, document, element
from edgedeploy.tune.report.peak import Peak, peak_of
from edgedeploy.tune.results import TITLES, cells, end_to_end
from edgedeploy.tune.trial import Trial

# Errors can be whole logs of a compiler.
_LONGEST_ERROR = 600
_MOST_ERRORS = 20


def page(history: History) -> str:
    """The page as HTML."""
    header = history.header
    return document(
        f"Tuning of {header.board}",
        element("h1", f"Tuning of {header.board}"),
        _facts(
            {
                "target": json.dumps(header.target, ensure_ascii=False),
                "Apache TVM": header.tvm,
                "edgedeploy": header.edgedeploy,
                "records begun": header.created.isoformat(),
                "folder": str(history.folder),
            }
        ),
        None if history.networks else element("p", "Nothing was measured yet."),
        *(_network(network, history) for network in history.networks),
        element("footer", f"Written by edgedeploy {__version__}."),
    )


def _network(network: Network, history: History) -> Element:
    peak = peak_of(history.header, [trial for task in network.tasks for trial in task.trials])
    unfinished = [str(task.result.number) for task in network.tasks if not task.ended]
    open_ended = "Not finished, with times of the search alone: task " + ", ".join(unfinished)
    return element(
        "section",
        element("h2", "Tasks of no run that is recorded" if network.name is None else network.name),
        element("p", _before_and_after(network), class_="headline"),
        _results(network.tasks, peak),
        element("p", f"{open_ended}.", class_="remark") if unfinished else None,
        element("p", _sentence(peak.explanation), class_="remark"),
        element("h3", "Tasks"),
        legend(),
        element("div", *(_task(task) for task in network.tasks), class_="figures"),
        element("h3", "Runs") if network.runs else None,
        *(_run(run, last=run is network.runs[-1]) for run in network.runs),
    )


def _before_and_after(network: Network) -> str:
    ends = [(run.ended.before_ms, run.ended.after_ms) for run in network.runs if run.ended]
    whole = [end for end in ends if all(end)]
    return _sentence(end_to_end(*whole[-1] if whole else (None, None)))


def _results(tasks: Sequence[Task], peak: Peak) -> Element:
    lines: list[list[Content]] = []
    for index, line in enumerate(cells([task.result for task in tasks])):
        gflops = tasks[index].gflops if index < len(tasks) else None
        rate = significant(gflops) if gflops else "" if index >= len(tasks) else "-"
        lines.append([*line, rate, _share(gflops / peak.gflops) if gflops and peak.gflops else ""])
    return _table([*TITLES, "GFLOP/s", "of the peak"], lines)


def _share(share: float) -> Element:
    """A part of the peak as a number and a bar. Winograd's method can have a task do more than it seems to."""
    drawn = element(
        "svg",
        element("path", d="M0 5H60", class_="track"),
        element("path", d=f"M0 5H{min(1.0, share) * 60:.2f}", class_="bar"),
        viewBox="0 0 60 10",
        class_="share",
    )
    return element("span", drawn, f" {share:.0%}")


def _task(task: Task) -> Element:
    result = task.result
    drawing = convergence(task.trials, result.default_ms)
    operations = f", {significant(task.mflop)} MFLOP" if task.mflop else ""
    settings = None
    if result.configuration is not None:
        text = json.dumps(result.configuration, ensure_ascii=False, sort_keys=True)
        settings = element("details", element("summary", "The best configuration"), element("pre", text))
    return element(
        "figure",
        element(
            "figcaption",
            element("strong", f"{result.number}  {result.name}"),
            element("span", f"weight {result.weight}{operations}, workload {result.workload}"),
        ),
        drawing if drawing is not None else element("p", "No trial succeeded.", class_="remark"),
        settings,
        _failures(task.trials),
    )


def _failures(trials: Sequence[Trial]) -> Element | None:
    """How often trials failed in each way; None if none did."""
    failed = [trial for trial in trials if trial.failure is not None]
    kinds = Counter((str(trial.failure), (trial.error or "")[:_LONGEST_ERROR]) for trial in failed)
    if not kinds:
        return None
    lines = [[kind, str(number), error] for (kind, error), number in kinds.most_common(_MOST_ERRORS)]
    more = len(kinds) - len(lines)
    return element(
        "details",
        element("summary", count(len(failed), "failure")),
        _table(["kind", "times", "error"], lines, class_="errors"),
        element("p", f"and {count(more, 'more error')}", class_="remark") if more else None,
    )


def _run(run: Run, *, last: bool) -> Element:
    started, ended = run.started, run.ended
    begin = f", {min(trial.time for trial in run.trials).isoformat(timespec='seconds')}" if run.trials else ""
    if ended is None:
        end = "cut off, or still running"
    else:
        end = f"{'interrupted' if ended.interrupted else 'done'} after {duration(ended.seconds)}"
    whole = _sentence(end_to_end(ended.before_ms, ended.after_ms)) if ended else None
    hosts = list(dict.fromkeys([*started.hosts, *(trial.host for trial in run.trials)]))
    drawing = temperatures(run.trials, hosts)
    made = element(
        "details",
        element("summary", f"Run {started.run}{begin}: {end}"),
        _facts(
            {
                "tuner": started.tuner,
                "boards": ", ".join(started.hosts),
                "tasks": ", ".join(str(task.number) for task in started.tasks),
                "trials": f"{sum(not trial.final for trial in run.trials):,}",
                "tasks ended": f"{len(run.results):,}",
            }
        ),
        element("p", whole) if whole else None,
        _conditions(run.trials, hosts),
        element("p", "Temperatures over the run; crosses where a board slowed itself down:")
        if drawing is not None
        else element("p", "No trial tells the temperature of its board.", class_="remark"),
        drawing,
        class_="run",
    )
    if last:
        made.set("open", "")
    return made


def _conditions(trials: Sequence[Trial], hosts: Sequence[str]) -> Element | None:
    """What each board told of itself during a run; None if none told anything."""
    lines: list[list[Content]] = []
    for host in hosts:
        told = [trial.conditions for trial in trials if trial.host == host and trial.conditions]
        if not told:
            continue
        throttled = sum(bool(each.throttled) for each in told)
        unknown = all(each.throttled is None for each in told)
        key = element(
            "svg", element("path", d="M0 6H18"), viewBox="0 0 18 12", class_=f"key {board_class(host, hosts)}"
        )
        lines.append(
            [
                element("span", key, f" {host}"),
                ", ".join(sorted({each.governor for each in told if each.governor})) or "-",
                _range([each.frequency_mhz for each in told], 0),
                _range([each.temperature_c for each in told], 1),
                "not told" if unknown else f"{throttled:,} of {len(told):,}",
            ]
        )
    return _table(["board", "governor", "MHz", "°C", "trials while it slowed itself down"], lines) if lines else None


def _range(values: Sequence[float | None], decimals: int) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = f"{min(known):.{decimals}f}", f"{max(known):.{decimals}f}"
    return low if low == high else f"{low} to {high}"


def _facts(facts: dict[str, str]) -> Element:
    return element(
        "dl", *(part for name, value in facts.items() for part in (element("dt", name), element("dd", value)))
    )


def _table(titles: Sequence[str], lines: Sequence[Sequence[Content]], *, class_: str | None = None) -> Element:
    head = element("thead", element("tr", *(element("th", title, scope="col") for title in titles)))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in line)) for line in lines))
    return element("div", element("table", head, body, class_=class_), class_="wide")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

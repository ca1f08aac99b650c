"""The charts of a report: medians side by side, compiling beside running, and how times spread."""

from __future__ import annotations

from edgedeploy.benchmarking.report import Report, Row
from edgedeploy.report.charts import chart
from edgedeploy.text import count, printable, significant

# Colours that are told apart by most people, in the order of the engines; ours is the first.
COLOURS = (
    "#2a78d6",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#7b5ea7",
    "#56b4e9",
    "#a6761d",
    "#999999",
    "#c4549b",
    "#0b0b0b",
)

# Of a name below an axis; more would leave no room for the chart.
_LONGEST_NAME = 24


def medians(report: Report) -> str | None:
    """Bars of the median times, a group for each network and batch; None if nothing was measured."""
    if not report.rows:
        return None
    engines, cases = report.engines, report.cases
    width = 0.8 / len(engines)
    with chart(f"median times of {count(len(engines), 'engine')} on {count(len(cases), 'network')}") as made:
        times = [row.times.total.median_ms for row in report.rows]
        made.scale_vertical(times)
        # A logarithmic axis has no zero to begin at.
        floor = min(times) / 2 if made.axes.get_yscale() == "log" else 0.0
        made.axes.set(ylabel="ms")
        made.axes.set_axisbelow(True)
        for place, engine in enumerate(engines):
            found = [(x, row) for x, case in enumerate(cases) if (row := report.row(case, engine))]
            for x, row in found:
                height = row.times.total.median_ms
                [bar] = made.axes.bar(
                    x + (place - (len(engines) - 1) / 2) * width,
                    height - floor,
                    width,
                    floor,
                    color=COLOURS[place % len(COLOURS)],
                    label=engine if row is found[0][1] else None,
                )
                made.tell(bar, "bar", [f"{engine} on {row.case}: {_median(row)}"])
        made.axes.set_xticks(range(len(cases)), [_short(case) for case in cases], rotation=25, ha="right")
    return made.svg


def compile_and_run(report: Report) -> str | None:
    """The time that compiling takes, against the median of running; None if less than two were compiled."""
    rows = [row for row in report.rows if row.costs.compile_s]
    if len(rows) < 2:
        return None
    with chart("what compiling takes, against what an inference takes") as made:
        made.scale_vertical([row.times.total.median_ms for row in rows])
        made.axes.set(xlabel="compiling, s", ylabel="running, ms")
        made.axes.set_xlim(left=0, right=1.1 * max(row.costs.compile_s or 0.0 for row in rows))
        for place, engine in enumerate(report.engines):
            own = [row for row in rows if row.engine == engine]
            if own:
                [marks] = made.axes.plot(
                    [row.costs.compile_s or 0.0 for row in own],
                    [row.times.total.median_ms for row in own],
                    "o",
                    color=COLOURS[place % len(COLOURS)],
                    label=engine,
                )
                made.tell(marks, "engine", [_compiled(row) for row in own])
    return made.svg


def spreads(report: Report, case: str) -> str:
    """Boxes of all timed inferences of one network, by engine."""
    rows = [row for row in report.rows if row.case == case]
    ends = [tuple(map(row.times.total.percentile, (5, 25, 50, 75, 95))) for row in rows]
    boxes = [
        dict(zip(("whislo", "q1", "med", "q3", "whishi"), each, strict=True)) | {"label": _short(row.engine)}
        for row, each in zip(rows, ends, strict=True)
    ]
    told = [f"{row.engine}: {_median(row)} of {count(len(row.times.total.runs_ms), 'inference')}" for row in rows]
    with chart(f"spread of times on {case}: {'; '.join(told)}") as made:
        made.scale_vertical([end for each in ends for end in each])
        made.axes.set(ylabel="ms")
        drawn = made.axes.bxp(boxes, showfliers=False, patch_artist=True)
        for place, (box, text) in enumerate(zip(drawn["boxes"], told, strict=True)):
            box.set_facecolor(COLOURS[report.engines.index(rows[place].engine) % len(COLOURS)])
            made.tell(box, "box", [text])
        for line in drawn["medians"]:
            line.set_color("#0b0b0b")
    return made.svg


def _compiled(row: Row) -> str:
    return f"{row.engine} on {row.case}: {significant(row.costs.compile_s or 0.0)} s, then {_median(row)}"


def _median(row: Row) -> str:
    return f"{significant(row.times.total.median_ms)} ms"


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"

"""The page about a report, by the template `bench.html`, with its charts."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.base.files import write_text
from edgedeploy.base.text import count, json_text, significant
from edgedeploy.benchmarking.report import BEST, Report, Row, notes
from edgedeploy.benchmarking.tables import columns_called, profile_tables, tables
from edgedeploy.report import html, render
from edgedeploy.report.charts import chart, short

# Colours that most people can tell apart, in the order of the engines; ours is the first.
COLOURS = (
    *("#2a78d6", "#e69f00", "#009e73", "#d55e00", "#7b5ea7"),
    *("#56b4e9", "#a6761d", "#999999", "#c4549b", "#0b0b0b"),
)

# Letters of a name below an axis; more would leave no room for the chart.
_LONGEST_NAME = 24

_HOW = (
    "Every engine runs in a process of its own, gets the same file and the same inputs, and uses the same number of "
    "threads, with its own defaults in single precision otherwise. They take turns, round after round, so that changes "
    "on the machine affect all of them; before each turn are inferences that are not timed, and after it the engine's "
    "threads come to rest. An inference is timed from inputs to outputs in the processor's memory. Outputs of the last "
    "one are compared with the reference's."
)


def write_page(report: Report, output: Path) -> None:
    """Write the page of a report: one file of HTML that needs neither a network nor a script."""
    write_text(output, page(report))


def page(report: Report) -> str:
    """The page about a report, as HTML."""
    versions = dict.fromkeys(f"{row.engine} {row.version} on {row.device}" for row in report.rows)
    threads = sorted({row.threads for row in report.rows})
    timed = count(report.runs, "inference") if report.runs else "as many inferences as fit into a tenth of a second"
    return render(
        __package__,
        "bench.html",
        title=f"{report.ours} beside other engines",
        headline=_headline(report),
        facts_shown={
            "machine": report.machine.line(),
            "engines": ", ".join(versions),
            "threads": ", ".join(map(str, threads)),
            "measured": f"{count(report.rounds, 'round')}; {timed} each{' in all' if report.runs else ' round'}",
            "reference": f"outputs of {report.reference}",
        },
        how=_HOW,
        charts=[
            ("Median times, by network and batch", html(medians(report))),
            ("Compiling and running", html(compile_and_run(report))),
        ],
        spreads=[(case, html(spreads(report, case))) for case in report.cases],
        tables=[
            (f"{title[0].upper()}{title[1:]}", cells[0], cells[1:])
            for title, cells in (*tables(report, columns_called(None)), *profile_tables(report))
        ],
        notes=notes(report),
        # Nothing in it can end the element that it stands in.
        json=html(json_text(report.to_dict()).replace("<", r"\u003c")),
    )


def _headline(report: Report) -> str:
    means = {name: mean for name, mean in report.geometric_means().items() if name != report.untuned}
    if not means:
        return "no other engine was measured"
    parts = [
        f"{significant(mean)} of the time of {'the quickest other engine' if name == BEST else name}"
        for name, mean in means.items()
    ]
    return f"in geometric means, {report.ours} takes {', '.join(parts)}"


def medians(report: Report) -> str | None:
    """Bars of the median times, a group for each network and batch; None if nothing was measured."""
    if not report.rows:
        return None
    engines, cases = report.engines, report.cases
    width = 0.8 / len(engines)
    with chart(f"median times of {count(len(engines), 'engine')} on {count(len(cases), 'network')}") as made:
        times = [row.median_ms for row in report.rows]
        made.scale_vertical(times)
        # A logarithmic axis has no zero to begin at.
        floor = min(times) / 2 if made.axes.get_yscale() == "log" else 0.0
        made.axes.set(ylabel="ms")
        made.axes.set_axisbelow(True)
        for place, engine in enumerate(engines):
            found = [(x, row) for x, case in enumerate(cases) if (row := report.row(case, engine))]
            middles = [x + (place - (len(engines) - 1) / 2) * width for x, _ in found]
            heights = [row.median_ms - floor for _, row in found]
            colour = COLOURS[place % len(COLOURS)]
            bars = made.axes.bar(middles, heights, width, floor, color=colour, label=engine)
            for bar, (_, row) in zip(bars, found, strict=True):
                made.tell(bar, "bar", [f"{engine} on {row.case}: {_median(row)}"])
        made.axes.set_xticks(range(len(cases)), [short(case, _LONGEST_NAME) for case in cases], rotation=25, ha="right")
    return made.svg


def compile_and_run(report: Report) -> str | None:
    """The time that compiling takes, against the median of running; None if less than two were compiled."""
    rows = [row for row in report.rows if row.costs.compile_s]
    if len(rows) < 2:
        return None
    with chart("what compiling takes, against what an inference takes") as made:
        made.scale_vertical([row.median_ms for row in rows])
        made.axes.set(xlabel="compiling, s", ylabel="running, ms")
        made.axes.set_xlim(left=0, right=1.1 * max(row.costs.compile_s or 0.0 for row in rows))
        for place, engine in enumerate(report.engines):
            own = [(row.costs.compile_s or 0.0, row) for row in rows if row.engine == engine]
            if own:
                places = [seconds for seconds, _ in own], [row.median_ms for _, row in own]
                [marks] = made.axes.plot(*places, "o", color=COLOURS[place % len(COLOURS)], label=engine)
                texts = [
                    f"{engine} on {row.case}: {significant(seconds)} s, then {_median(row)}" for seconds, row in own
                ]
                made.tell(marks, "engine", texts)
    return made.svg


def spreads(report: Report, case: str) -> str:
    """Boxes of all timed inferences of one network, by engine."""
    rows = [row for row in report.rows if row.case == case]
    ends = [tuple(map(row.times.total.percentile, (5, 25, 50, 75, 95))) for row in rows]
    boxes = [
        dict(zip(("whislo", "q1", "med", "q3", "whishi"), each, strict=True))
        | {"label": short(row.engine, _LONGEST_NAME)}
        for row, each in zip(rows, ends, strict=True)
    ]
    labels = [f"{row.engine}: {_median(row)} of {count(len(row.times.total.runs_ms), 'inference')}" for row in rows]
    with chart(f"spread of times on {case}: {'; '.join(labels)}") as made:
        made.scale_vertical([end for each in ends for end in each])
        made.axes.set(ylabel="ms")
        drawn = made.axes.bxp(boxes, showfliers=False, patch_artist=True)
        for place, (box, text) in enumerate(zip(drawn["boxes"], labels, strict=True)):
            box.set_facecolor(COLOURS[report.engines.index(rows[place].engine) % len(COLOURS)])
            made.tell(box, "box", [text])
        for line in drawn["medians"]:
            line.set_color("#0b0b0b")
    return made.svg


def _median(row: Row) -> str:
    return f"{significant(row.median_ms)} ms"

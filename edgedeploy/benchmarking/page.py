"""The page about a report: what its template `bench.html` says."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.benchmarking.charts import compile_and_run, medians, spreads
from edgedeploy.benchmarking.columns import columns_called
from edgedeploy.benchmarking.report import Report, notes
from edgedeploy.benchmarking.tables import profile_tables, tables
from edgedeploy.files import replacing
from edgedeploy.report.page import html, render
from edgedeploy.text import count, json_text, significant

_HOW = (
    "Every engine runs in a process of its own, is given the same file and the same inputs, and uses the same number "
    "of threads, with its own defaults in single precision otherwise. They take turns, round after round, so that what "
    "changes on the machine meets them all; before each turn are inferences that are not timed, and after it the "
    "engine's threads come to rest. An inference is timed from inputs to outputs in the processor's memory. Outputs of "
    "the last one are compared with the reference's."
)


def write_page(report: Report, output: Path) -> Path:
    """Write the page of a report: one file of HTML that needs neither a network nor a script.

    Args:
        report: the report.
        output: the HTML file; one that is there is replaced.

    Returns:
        `output`.
    """
    text = page(report)
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return output


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
        tables=[(f"{title[0].upper()}{title[1:]}", cells[0], cells[1:]) for title, cells in _tables(report)],
        notes=notes(report),
        # Nothing in it can end the element that it stands in.
        json=html(json_text(report.to_dict()).replace("<", r"\u003c")),
    )


def _tables(report: Report) -> list[tuple[str, list[list[str]]]]:
    return [*tables(report, columns_called(None)), *profile_tables(report)]


def _headline(report: Report) -> str:
    means = {name: mean for name, mean in report.geometric_means().items() if name != report.untuned}
    if not means:
        return "no other engine was measured"
    told = [
        f"{significant(mean)} of the time of {'the quickest other engine' if name == 'best' else name}"
        for name, mean in means.items()
    ]
    return f"in geometric means, {report.ours} takes {', '.join(told)}"

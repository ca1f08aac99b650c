"""The tables of a report as cells, and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgedeploy.benchmarking.columns import Column, columns_called, engine_table
from edgedeploy.benchmarking.report import BEST, Report, Row, heading, notes
from edgedeploy.runtime.profile import profile_table
from edgedeploy.runtime.timing import Timing
from edgedeploy.text import count, significant

# Functions of each engine that a table has unless it has all.
MOST_FUNCTIONS = 12

# Columns that say what a line of the table of engines is about.
_TITLES = 2


def time_table(report: Report) -> list[list[str]]:
    """The cells of the table of times, titles first: a line per network, the geometric means last."""
    others = [engine for engine in report.engines if engine != report.ours]
    lines = [["model", f"{report.ours} ms", *(f"{engine} ms (ratio)" for engine in others), "ratio to the best"]]
    for case in report.cases:
        best = report.best(case)
        own = report.row(case, report.ours)
        cells = [_time(own)]
        for engine in others:
            row = report.row(case, engine)
            cells.append(f"{_time(row)} ({row.ratio:.2f})" if row else "-")
        lines.append([case, *cells, f"{best.ratio:.2f} ({best.engine})" if best else "-"])
    means = report.geometric_means()
    if len(report.cases) > 1 and means:
        lines.append(["geometric mean", "", *(f"{means[engine]:.2f}" for engine in others), f"{means[BEST]:.2f}"])
    return lines


def spread_table(report: Report) -> list[list[str]]:
    """The cells of the table of means and standard deviations, titles first: a line per network.

    The times that kernels took stand before those of their engine, where any are known.
    """
    columns = []
    for engine in report.engines:
        rows = {case: report.row(case, engine) for case in report.cases}
        if any(row and row.times.kernels for row in rows.values()):
            kernels = [_spread(row.times.kernels if row else None) for row in rows.values()]
            columns.append([f"{engine} kernels", *kernels])
        columns.append([engine, *(_spread(row.times.total if row else None) for row in rows.values())])
    return [list(line) for line in zip(["model", *report.cases], *columns, strict=True)]


def difference_table(report: Report) -> list[list[str]]:
    """The cells of the table of differences from the reference, titles first: a line per network."""
    engines = [engine for engine in report.engines if engine != report.reference]
    lines = [["model", *engines]]
    for case in report.cases:
        rows = [report.row(case, engine) for engine in engines]
        lines.append([case, *(f"{row.max_rel_diff:.1e}" if row else "-" for row in rows)])
    return lines


def tables(
    report: Report, columns: Sequence[Column], width: int | None = None
) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables with a line on what each shows; the columns are of the one of engines, which may have a width."""
    ours = report.ours
    one = "one batch" if any((row.batch or 1) > 1 for row in report.rows) else "one inference"
    yield (
        f"milliseconds of {one}, medians; in brackets {ours}'s divided by the other's, below 1 where {ours} is quicker",
        time_table(report),
    )
    if report.runs:
        title = f"milliseconds of {one}, mean ± standard deviation of {count(report.runs, 'run')}"
        if any(row.times.kernels for row in report.rows):
            title += "; kernels: what the device's kernels took of it, summed"
        yield title, spread_table(report)
    engines = engine_table(report, columns, width)
    if len(engines[0]) > _TITLES:
        yield "what engines need", engines
    differences = difference_table(report)
    if len(differences[0]) > 1:
        yield (
            f"largest difference from the outputs of {report.reference}, as a fraction of their largest value",
            differences,
        )


def profile_tables(report: Report, most: int | None = None) -> Iterator[tuple[str, list[list[str]]]]:
    """The time by function of each engine that was asked, with a line on what it is; `most` functions of each."""
    for row in report.rows:
        if row.functions:
            total = sum(each.ms for each in row.functions)
            title = f"functions of {row.engine} on {row.case}, {significant(total)} ms in all"
            yield title, profile_table(row.functions, most)


def as_markdown(report: Report, columns: Sequence[Column] | None = None) -> str:
    """The report as a section of a Markdown page, without a title; with all columns unless they are given."""
    parts = [heading(report)]
    shown = columns_called(None) if columns is None else columns
    for title, cells in (*tables(report, shown), *profile_tables(report, MOST_FUNCTIONS)):
        parts += [f"{title[0].upper()}{title[1:]}:", _markdown(cells)]
    if lines := notes(report):
        parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def _time(row: Row | None) -> str:
    return significant(row.times.total.median_ms) if row else "-"


def _spread(timing: Timing | None) -> str:
    return f"{significant(timing.mean_ms)} ± {significant(timing.std_ms)}" if timing else "-"


def _markdown(lines: list[list[str]]) -> str:
    head, *body = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *body])

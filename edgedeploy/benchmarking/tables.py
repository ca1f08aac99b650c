"""The tables of a report as cells, and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgedeploy.base.text import count, significant
from edgedeploy.benchmarking.report import BEST, Report, Row, heading, notes
from edgedeploy.errors import UnknownNameError
from edgedeploy.runtime.profile import profile_table
from edgedeploy.runtime.timing import Timing

# The most functions of each engine in short tables.
MOST_FUNCTIONS = 12

# Instead of names: all columns.
ALL = "all"

# Blanks between two columns of a table on a terminal.
_GAP = 1


@dataclass(frozen=True)
class Column:
    """One column; `value` is None for rows without one."""

    name: str
    title: str
    value: Callable[[Row], float | None]
    text: Callable[[float], str] = significant

    def cell(self, row: Row | None) -> str:
        """The cell of a row, if there is one."""
        value = self.value(row) if row else None
        return "-" if value is None else self.text(value)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# On a narrow terminal, the last ones are left out first.
COLUMNS = {
    column.name: column
    for column in (
        Column("median", "median ms", lambda row: row.median_ms),
        Column("compile", "compile s", lambda row: row.costs.compile_s),
        Column("load", "load s", lambda row: row.costs.load_s),
        Column("energy", "energy mJ", lambda row: row.energy.joules * 1e3 if row.energy else None),
        Column("power", "power W", lambda row: row.energy.watts if row.energy else None),
        Column("memory", "peak MB", lambda row: _scaled(row.costs.peak_bytes, 1e-6)),
        Column("size", "size MB", lambda row: _scaled(row.costs.size_bytes, 1e-6)),
        Column("p99", "p99 ms", lambda row: row.times.total.p99_ms),
        Column("first", "first ms", lambda row: _scaled(row.costs.first_s, 1e3)),
        Column("per-second", "per second", lambda row: row.per_second),
        Column("deviation", "deviation ms", lambda row: row.times.total.std_ms),
        Column("mean", "mean ms", lambda row: row.times.total.mean_ms),
        Column("p90", "p90 ms", lambda row: row.times.total.p90_ms),
        Column("difference", "difference", lambda row: row.max_rel_diff, lambda value: f"{value:.1e}"),
        Column("top-1", "same top-1", lambda row: row.same_top1, lambda value: "yes" if value else "no"),
    )
}


def columns_called(names: Sequence[str] | None) -> list[Column]:
    """The columns of these names, each once and in their order; all if there are no names, or for `all`."""
    if names is None or ALL in names:
        return list(COLUMNS.values())
    for name in names:
        if name not in COLUMNS:
            raise UnknownNameError(f"unknown column {name!r}", why=f"columns: {', '.join(COLUMNS)}, {ALL}")
    return [COLUMNS[name] for name in dict.fromkeys(names)]


def engine_table(report: Report, columns: Sequence[Column], width: int | None = None) -> list[list[str]]:
    """The cells of the table with a line for each engine on each network, titles first.

    Columns without any value are left out, and those from the first one on that does not fit into `width` letters.
    """
    table = [["model", *(row.case for row in report.rows)], ["engine", *(row.engine for row in report.rows)]]
    for column in columns:
        cells = [column.cell(row) for row in report.rows]
        if set(cells) == {"-"}:
            continue
        table.append([column.title, *cells])
        if width is not None and sum(max(map(len, each)) + _GAP for each in table) - _GAP > width:
            table.pop()
            break
    return [list(line) for line in zip(*table, strict=True)]


def time_table(report: Report) -> list[list[str]]:
    """The cells of the table of times, titles first: a line per network, the geometric means last."""
    others = [engine for engine in report.engines if engine != report.ours]
    lines = [["model", f"{report.ours} ms", *(f"{engine} ms (ratio)" for engine in others), "ratio to the best"]]
    for case in report.cases:
        best = report.best(case)
        cells = [COLUMNS["median"].cell(report.row(case, report.ours))]
        for engine in others:
            row = report.row(case, engine)
            cells.append(f"{significant(row.median_ms)} ({row.ratio:.2f})" if row else "-")
        lines.append([case, *cells, f"{best.ratio:.2f} ({best.engine})" if best else "-"])
    means = report.geometric_means()
    if len(report.cases) > 1 and means:
        lines.append(["geometric mean", "", *(f"{means[engine]:.2f}" for engine in others), f"{means[BEST]:.2f}"])
    return lines


def spread_table(report: Report) -> list[list[str]]:
    """The cells of the table of means and standard deviations, titles first: a line per network.

    The times of kernels come before those of their engine, if any are known.
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
        lines.append([case, *(COLUMNS["difference"].cell(report.row(case, engine)) for engine in engines)])
    return lines


def tables(
    report: Report, columns: Sequence[Column], width: int | None = None
) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables, each with a title; `columns` and `width` are of the table of engines."""
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
    if len(engines[0]) > 2:  # more than the network and the engine
        yield "what engines need", engines
    differences = difference_table(report)
    if len(differences[0]) > 1:
        yield (
            f"largest difference from the outputs of {report.reference}, as a fraction of their largest value",
            differences,
        )


def profile_tables(report: Report, most: int | None = None) -> Iterator[tuple[str, list[list[str]]]]:
    """The time by function of each profiled engine, with a title; `most` functions of each."""
    for row in report.rows:
        if row.functions:
            total = sum(each.ms for each in row.functions)
            title = f"functions of {row.engine} on {row.case}, {significant(total)} ms in all"
            yield title, profile_table(row.functions, most)


def as_markdown(report: Report, columns: Sequence[Column] | None = None) -> str:
    """The report as a section of a Markdown page, without a title; with all columns by default."""
    parts = [heading(report)]
    shown = columns_called(None) if columns is None else columns
    for title, cells in (*tables(report, shown), *profile_tables(report, MOST_FUNCTIONS)):
        parts += [f"{title[0].upper()}{title[1:]}:", _markdown(cells)]
    if lines := notes(report):
        parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def _spread(timing: Timing | None) -> str:
    return f"{significant(timing.mean_ms)} ± {significant(timing.std_ms)}" if timing else "-"


def _markdown(lines: list[list[str]]) -> str:
    head, *body = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *body])

"""The columns of the table that has a line for each engine on each network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgedeploy.benchmarking.report import Report, Row
from edgedeploy.errors import UnknownNameError
from edgedeploy.text import significant

# In the place of names: all columns.
ALL = "all"

# Letters between two columns of a table on a terminal.
_GAP = 1


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: what the command line calls it.
        title: what stands above it, with the unit.
        value: the number that a row has there, None if it is not known.
        text: how it is written.
    """

    name: str
    title: str
    value: Callable[[Row], float | None]
    text: Callable[[float], str] = significant

    def cell(self, row: Row) -> str:
        """The cell of a row."""
        value = self.value(row)
        return "-" if value is None else self.text(value)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# The first of them are the last to be left out where a terminal is narrow.
COLUMNS = {
    column.name: column
    for column in (
        Column("median", "median ms", lambda row: row.times.total.median_ms),
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

    Columns that nothing is known of are left out, and where a table may have `width` letters, those from the first one
    on that does not fit.
    """
    table = [
        ["model", *(row.case for row in report.rows)],
        ["engine", *(row.engine for row in report.rows)],
    ]
    for column in columns:
        cells = [column.cell(row) for row in report.rows]
        if set(cells) == {"-"}:
            continue
        table.append([column.title, *cells])
        if width is not None and sum(max(map(len, each)) + _GAP for each in table) - _GAP > width:
            table.pop()
            break
    return [list(line) for line in zip(*table, strict=True)]

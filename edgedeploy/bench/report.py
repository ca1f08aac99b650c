"""What a benchmark found, and the forms in which it is told: JSON, Markdown, a table's cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgedeploy.bench.machine import Machine
from edgedeploy.text import significant

# Outputs that differ from the reference's by more than this part of their largest value are pointed out: such an
# engine may do other work. Below the absolute bound, the part is large because the output is nearly zero.
SUSPICIOUS, NEARLY_ZERO = 1e-3, 1e-6

# The column of the quickest of the other engines.
BEST = "best"


@dataclass(frozen=True)
class Row:
    """One engine on one network.

    Attributes:
        model, engine, version, threads: what ran.
        median_ms: the median time of one inference in milliseconds.
        ratio: edgedeploy's median divided by this one; below 1, edgedeploy is quicker.
        max_rel_diff: the largest |difference| from the reference divided by the largest |reference|, of the
            output where that is largest.
        max_abs_diff: the largest |difference| of that output, which tells whether the output is nearly zero.
    """

    model: str
    engine: str
    version: str
    threads: int
    median_ms: float
    ratio: float
    max_rel_diff: float
    max_abs_diff: float


@dataclass(frozen=True)
class Skipped:
    """An engine that was not measured on some networks, and why."""

    engine: str
    models: list[str]
    reason: str


@dataclass(frozen=True)
class Report:
    """All that a benchmark found.

    Attributes:
        machine: where.
        ours, reference: the names of our engine and of the one whose outputs are taken for right.
        rounds: how often each engine had its turn.
        rows: by network, in the order of measurement.
        skipped: what is missing in `rows`.
    """

    machine: Machine
    ours: str
    reference: str
    rounds: int
    rows: list[Row]
    skipped: list[Skipped]

    @property
    def models(self) -> list[str]:
        """The networks in order."""
        return list(dict.fromkeys(row.model for row in self.rows))

    @property
    def engines(self) -> list[str]:
        """The engines in order, ours first."""
        return list(dict.fromkeys([self.ours, *(row.engine for row in self.rows)]))

    def row(self, model: str, engine: str) -> Row | None:
        """The row of an engine on a network, if it ran there."""
        return next((row for row in self.rows if (row.model, row.engine) == (model, engine)), None)

    def best(self, model: str) -> Row | None:
        """The row of the quickest engine other than ours, if there is any."""
        others = [row for row in self.rows if row.model == model and row.engine != self.ours]
        return min(others, key=lambda row: row.median_ms, default=None)

    def geometric_means(self) -> dict[str, float]:
        """By engine, and under "best" for the quickest of each network: the mean ratio over the networks it ran."""
        ratios = {
            engine: [row.ratio for row in self.rows if row.engine == engine]
            for engine in self.engines
            if engine != self.ours
        }
        ratios[BEST] = [row.ratio for model in self.models if (row := self.best(model))]
        return {engine: geometric_mean(values) for engine, values in ratios.items() if values}


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def as_dict(report: Report) -> dict[str, Any]:
    """The report for scripts."""
    return {
        "machine": report.machine.model_dump(exclude_none=True),
        "rounds": report.rounds,
        "reference": report.reference,
        "rows": [asdict(row) for row in report.rows],
        "geometric_means": report.geometric_means(),
        "skipped": [asdict(entry) for entry in report.skipped],
    }


def time_table(report: Report) -> list[list[str]]:
    """The cells of the table of times, titles first: a line per network, the geometric means last."""
    others = [engine for engine in report.engines if engine != report.ours]
    lines = [["model", f"{report.ours} ms", *(f"{engine} ms (ratio)" for engine in others), "ratio to the best"]]
    for model in report.models:
        best = report.best(model)
        own = report.row(model, report.ours)
        cells = [_time(own)]
        for engine in others:
            row = report.row(model, engine)
            cells.append(f"{_time(row)} ({row.ratio:.2f})" if row else "-")
        lines.append([model, *cells, f"{best.ratio:.2f} ({best.engine})" if best else "-"])
    means = report.geometric_means()
    if len(report.models) > 1 and means:
        lines.append(["geometric mean", "", *(f"{means[engine]:.2f}" for engine in others), f"{means[BEST]:.2f}"])
    return lines


def difference_table(report: Report) -> list[list[str]]:
    """The cells of the table of differences from the reference, titles first: a line per network."""
    engines = [engine for engine in report.engines if engine != report.reference]
    lines = [["model", *engines]]
    for model in report.models:
        rows = [report.row(model, engine) for engine in engines]
        lines.append([model, *(f"{row.max_rel_diff:.1e}" if row else "-" for row in rows)])
    return lines


def notes(report: Report) -> list[str]:
    """One line for each thing that a reader of the tables must know: what was skipped, what looks wrong."""
    lines = []
    alike: dict[tuple[str, str], list[str]] = {}
    for entry in report.skipped:
        alike.setdefault((", ".join(entry.models), entry.reason), []).append(entry.engine)
    for (models, reason), skipped in alike.items():
        lines.append(
            f"{', '.join(skipped)} {'was' if len(skipped) == 1 else 'were'} not measured on {models}: {reason}"
        )
    for row in report.rows:
        if row.max_rel_diff > SUSPICIOUS and row.max_abs_diff > NEARLY_ZERO:
            lines.append(
                f"{row.engine} on {row.model}: outputs differ from {report.reference}'s by {row.max_rel_diff:.1e} "
                "of the largest value; its time may be that of other work"
            )
    for model in report.models:
        tiny = [row for row in report.rows if row.model == model and row.max_rel_diff > SUSPICIOUS]
        tiny = [row for row in tiny if row.max_abs_diff <= NEARLY_ZERO]
        if tiny:
            largest = max(row.max_abs_diff for row in tiny)
            lines.append(
                f"{', '.join(row.engine for row in tiny)} on {model}: the relative difference is that of an output "
                f"which is nearly zero everywhere; in absolute terms it is at most {largest:.1e}"
            )
    return lines


def heading(report: Report) -> str:
    """One sentence: the machine, the engines' versions, how it was measured."""
    versions = {row.engine: row.version for row in report.rows}
    threads = {row.threads for row in report.rows}
    return (
        f"{report.machine.line()}; "
        f"threads: {', '.join(map(str, sorted(threads)))}; medians of {report.rounds} rounds; "
        + ", ".join(f"{engine} {version}" for engine, version in versions.items())
        + "."
    )


def as_markdown(report: Report) -> str:
    """The report as a section of a Markdown page, without a title."""
    others = [engine for engine in report.engines if engine != report.ours]
    parts = [
        heading(report),
        f"Milliseconds of one inference; in brackets {report.ours}'s time divided by the other's, "
        f"below 1 where {report.ours} is quicker.",
        _markdown(time_table(report)),
    ]
    if others:
        parts += [
            f"Largest difference from the outputs of {report.reference}, as a fraction of their largest value:",
            _markdown(difference_table(report)),
        ]
    if lines := notes(report):
        parts.append("\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def _time(row: Row | None) -> str:
    return significant(row.median_ms) if row else "-"


def _markdown(lines: list[list[str]]) -> str:
    head, *body = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *body])

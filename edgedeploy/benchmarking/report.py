"""What a benchmark found, and the forms in which it is told: JSON, Markdown, a table's cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from edgedeploy.benchmarking.engines.engine import CPU
from edgedeploy.benchmarking.machine import Machine
from edgedeploy.runtime.timing import EndToEnd, Timing
from edgedeploy.text import count, significant

# Outputs that differ from the reference's by more than this part of their largest value are pointed out: such an
# engine may do other work. Below the absolute bound, the part is large because the output is nearly zero.
SUSPICIOUS, NEARLY_ZERO = 1e-3, 1e-6

# The column of the fastest of the other engines.
BEST = "best"


@dataclass(frozen=True)
class Row:
    """One engine on one network.

    Attributes:
        model, engine, version, threads: what ran.
        device: what it ran on: the processor, or what another device calls itself.
        times: of the inferences that were timed.
        ratio: edgedeploy's median divided by this one; below 1, edgedeploy is quicker.
        max_rel_diff: the largest |difference| from the reference divided by the largest |reference|, of the
            output where that is largest.
        max_abs_diff: the largest |difference| of that output, which tells whether the output is nearly zero.
    """

    model: str
    engine: str
    version: str
    device: str
    threads: int
    times: EndToEnd
    ratio: float
    max_rel_diff: float
    max_abs_diff: float

    def to_dict(self) -> dict[str, Any]:
        """The row for scripts: times as their number and statistics, in milliseconds."""
        total, kernels = self.times.total, self.times.kernels
        return {
            "model": self.model,
            "engine": self.engine,
            "version": self.version,
            "device": self.device,
            "threads": self.threads,
            "runs": len(total.runs_ms),
            **total.to_dict(),
            **({"kernels": kernels.to_dict()} if kernels else {}),
            "ratio": self.ratio,
            "max_rel_diff": self.max_rel_diff,
            "max_abs_diff": self.max_abs_diff,
        }


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
        runs: how many inferences of each engine were timed, if that was asked for.
        random_weights: the networks whose weights are random.
    """

    machine: Machine
    ours: str
    reference: str
    rounds: int
    rows: list[Row]
    skipped: list[Skipped]
    runs: int | None = None
    random_weights: list[str] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        """The networks in order."""
        return list(dict.fromkeys(row.model for row in self.rows))

    @property
    def engines(self) -> list[str]:
        """The engines in order, ours first."""
        return list(dict.fromkeys([self.ours, *(row.engine for row in self.rows)]))

    def to_dict(self) -> dict[str, Any]:
        """The report for scripts."""
        return {
            "machine": self.machine.model_dump(exclude_none=True),
            "rounds": self.rounds,
            "runs": self.runs,
            "reference": self.reference,
            "random_weights": self.random_weights,
            "rows": [row.to_dict() for row in self.rows],
            "geometric_means": self.geometric_means(),
            "skipped": [asdict(entry) for entry in self.skipped],
        }

    def row(self, model: str, engine: str) -> Row | None:
        """The row of an engine on a network, if it ran there."""
        return next((row for row in self.rows if (row.model, row.engine) == (model, engine)), None)

    def best(self, model: str) -> Row | None:
        """The row of the fastest engine other than ours, if there is any."""
        others = [row for row in self.rows if row.model == model and row.engine != self.ours]
        return min(others, key=lambda row: row.times.total.median_ms, default=None)

    def geometric_means(self) -> dict[str, float]:
        """By engine, and under "best" for the fastest of each network: the mean ratio over the networks it ran."""
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


def spread_table(report: Report) -> list[list[str]]:
    """The cells of the table of means and standard deviations, titles first: a line per network.

    The times that kernels took stand before those of their engine, where any are known.
    """
    columns = []
    for engine in report.engines:
        rows = {model: report.row(model, engine) for model in report.models}
        if any(row and row.times.kernels for row in rows.values()):
            kernels = [_spread(row.times.kernels if row else None) for row in rows.values()]
            columns.append([f"{engine} kernels", *kernels])
        columns.append([engine, *(_spread(row.times.total if row else None) for row in rows.values())])
    return [list(line) for line in zip(["model", *report.models], *columns, strict=True)]


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
    if report.random_weights:
        lines.append(f"weights are random in {', '.join(report.random_weights)}: times are those of the true layers")
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
    threads = {row.threads for row in report.rows}
    elsewhere = any(row.device != CPU for row in report.rows)
    engines = {f"{row.engine} {row.version}{f' on {row.device}' if elsewhere else ''}": None for row in report.rows}
    how = f"medians of {count(report.rounds, 'round')}"
    if report.runs:
        how = f"{count(report.runs, 'run')} of each in {count(min(report.rounds, report.runs), 'round')}"
    return f"{report.machine.line()}; threads: {', '.join(map(str, sorted(threads)))}; {how}; {', '.join(engines)}."


def tables(report: Report) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables with a line on what each shows."""
    ours = report.ours
    yield (
        f"milliseconds of one inference, medians; in brackets {ours}'s divided by the other's, below 1 where {ours} "
        "is quicker",
        time_table(report),
    )
    if report.runs:
        title = f"milliseconds of one inference, mean ± standard deviation of {count(report.runs, 'run')}"
        if any(row.times.kernels for row in report.rows):
            title += "; kernels: what the device's kernels took of it, summed"
        yield title, spread_table(report)
    differences = difference_table(report)
    if len(differences[0]) > 1:
        yield (
            f"largest difference from the outputs of {report.reference}, as a fraction of their largest value",
            differences,
        )


def as_markdown(report: Report) -> str:
    """The report as a section of a Markdown page, without a title."""
    parts = [heading(report)]
    for title, cells in tables(report):
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

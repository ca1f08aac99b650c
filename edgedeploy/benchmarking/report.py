"""The results of a benchmark: the machine, the rows, and notes for readers."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from edgedeploy.base.documents import Record
from edgedeploy.base.text import count, significant
from edgedeploy.benchmarking.energy import SOURCES, Energy
from edgedeploy.benchmarking.engines.engine import CPU
from edgedeploy.benchmarking.turns import Costs
from edgedeploy.errors import EdgedeployError
from edgedeploy.runtime.profile import FunctionProfile
from edgedeploy.runtime.timing import EndToEnd
from edgedeploy.target.facts import Facts
from edgedeploy.target.hosts import cpu_name

# A note names outputs that differ from the reference's by more than this part of their largest value: such an engine
# may do other work. Below the absolute bound, the part is large because the output is nearly zero.
SUSPICIOUS, NEARLY_ZERO = 1e-3, 1e-6

# The column of the fastest of the other engines.
BEST = "best"

# The most networks that `repr` shows.
_MOST_SHOWN = 5


class Machine(Record):
    """Where times were measured."""

    cpu: str
    cores: int  # how many processors this process may use
    os: str
    # How many processes ran or waited to, on average over the minute before the first measurement; None if unknown
    load: float | None = None
    governor: str | None = None  # of a board's first core
    temperature_c: float | None = None  # of a board's hottest zone, in degrees Celsius, before the first measurement
    temperature_after_c: float | None = None  # of the same zone, after the last measurement
    throttled: bool | None = None  # whether a board slowed itself down during the measurement; None if unknown
    emulated: bool | None = None  # true for a board whose processor is emulated

    def line(self) -> str:
        """The machine in one line."""
        before, after = self.temperature_c, self.temperature_after_c
        zones = [] if before is None else [f"{before:.1f} °C" + (" before" if after is not None else "")]
        zones += [f"{after:.1f} °C after"] if zones and after is not None else []
        parts = [
            self.cpu,
            f"{self.cores} cores",
            self.os,
            f"load before the start {self.load:g}" if self.load is not None else None,
            f"governor {self.governor}" if self.governor else None,
            " and ".join(zones) or None,
            None if self.throttled is None else f"{'slowed' if self.throttled else 'did not slow'} itself down",
            "emulated: its times say nothing about a real board" if self.emulated else None,
        ]
        return ", ".join(part for part in parts if part)


def this_machine() -> Machine:
    """The facts of this machine, now."""
    system = "unnamed system"
    with suppress(OSError, KeyError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return Machine(
        cpu=cpu_name(),
        cores=len(os.sched_getaffinity(0)),
        os=f"{system}, Linux {platform.release()}",
        load=round(os.getloadavg()[0], 2),
    )


def board_machine(facts: Facts, *, emulated: bool) -> Machine:
    """The machine that the facts of a board describe."""
    return Machine(
        cpu=facts.hardware or facts.machine or "unknown processor",
        cores=facts.cores or 1,
        os=f"{facts.system or 'unnamed system'}, Linux {facts.kernel or 'of an unknown version'}",
        governor=facts.governor,
        temperature_c=facts.temperature_c,
        emulated=emulated or None,
    )


def case_of(name: str, batch: int | None) -> str:
    """The name of a network with a batch in reports."""
    return name if batch is None else f"{name} (batch {batch})"


@dataclass(frozen=True)
class Row:
    """One engine on one network."""

    model: str
    engine: str
    version: str
    device: str  # the processor, or the own name of another device
    threads: int
    times: EndToEnd
    ratio: float  # edgedeploy's median divided by this one; below 1, edgedeploy is quicker
    max_rel_diff: float  # of the output where the relative `Difference` is the largest
    max_abs_diff: float  # of the same output
    same_top1: bool | None = None  # as `measure.same_top1` finds
    batch: int | None = None  # how many inferences one call makes, if requested. Times are those of a call.
    costs: Costs = field(default_factory=Costs)
    # The median of each turn, by which runs are compared: inferences of one turn are not independent
    turns_ms: tuple[float, ...] = ()
    energy: Energy | None = None
    functions: tuple[FunctionProfile, ...] | None = None  # the time by function, the longest first

    @property
    def case(self) -> str:
        """The network, with its batch."""
        return case_of(self.model, self.batch)

    @property
    def median_ms(self) -> float:
        """The median time of a call."""
        return self.times.total.median_ms

    @property
    def per_second(self) -> float:
        """Inferences in a second at the median time; a call makes as many as there are in a batch."""
        return (self.batch or 1) * 1e3 / self.median_ms

    def to_dict(self) -> dict[str, Any]:
        """The row for scripts: times as their number and statistics, in milliseconds."""
        total, kernels = self.times.total, self.times.kernels
        return {
            **{name: getattr(self, name) for name in ("model", "batch", "engine", "version", "device", "threads")},
            "runs": len(total.runs_ms),
            **total.to_dict(),
            "p90_ms": total.p90_ms,
            "p99_ms": total.p99_ms,
            "per_second": self.per_second,
            "turns_ms": list(self.turns_ms),
            **asdict(self.costs),
            **({"kernels": kernels.to_dict()} if kernels else {}),
            **({"energy": asdict(self.energy)} if self.energy else {}),
            **({} if self.functions is None else {"functions": [each.as_dict() for each in self.functions]}),
            **{name: getattr(self, name) for name in ("ratio", "max_rel_diff", "max_abs_diff", "same_top1")},
        }


@dataclass(frozen=True)
class Skipped:
    """An engine that was not measured on some networks, and why."""

    engine: str
    models: list[str]
    reason: str


@dataclass(frozen=True, repr=False)
class Report:
    """The results of a benchmark."""

    machine: Machine
    ours: str  # the name of our engine
    reference: str  # the name of the engine whose outputs are taken for right
    rounds: int
    rows: list[Row]
    skipped: list[Skipped]
    runs: int | None = None  # how many inferences of each engine were timed, if requested
    random_weights: list[str] = field(default_factory=list)
    untuned: str | None = None  # the name of our engine without tuning records, if both were measured
    failed: dict[str, EdgedeployError] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [
            f"{case}: " + ", ".join(f"{row.engine} {row.median_ms:.3f} ms" for row in self.rows if row.case == case)
            for case in self.cases
        ]
        more = [f"{len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
        return "\n  ".join([f"<edgedeploy.Report, medians of {self.rounds} rounds", *lines[:_MOST_SHOWN], *more]) + ">"

    @property
    def cases(self) -> list[str]:
        """The networks in order, each with each batch."""
        return list(dict.fromkeys(row.case for row in self.rows))

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
            "failed": [{"model": name, **error.to_dict()} for name, error in self.failed.items()],
        }

    def row(self, case: str, engine: str) -> Row | None:
        """The row of an engine on a network, if it ran there."""
        return next((row for row in self.rows if (row.case, row.engine) == (case, engine)), None)

    def best(self, case: str) -> Row | None:
        """The row of the fastest engine other than ours, if there is any."""
        own = {self.ours, self.untuned}
        others = [row for row in self.rows if row.case == case and row.engine not in own]
        return min(others, key=lambda row: row.median_ms, default=None)

    def geometric_means(self) -> dict[str, float]:
        """By engine, and under "best" for the fastest of each network: the mean ratio over the networks it ran."""
        ratios = {
            engine: [row.ratio for row in self.rows if row.engine == engine]
            for engine in self.engines
            if engine != self.ours
        }
        ratios[BEST] = [row.ratio for case in self.cases if (row := self.best(case))]
        return {engine: geometric_mean(values) for engine, values in ratios.items() if values}


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def notes(report: Report) -> list[str]:
    """Lines that a reader of the tables must know: what was skipped, what looks wrong."""
    lines = []
    if report.random_weights:
        lines.append(f"weights are random in {', '.join(report.random_weights)}: times are those of the true layers")
    if energy := next((row.energy for row in report.rows if row.energy), None):  # one meter reads all
        lines.append(
            f"energy is {'estimated' if energy.estimated else 'measured'} by {SOURCES[energy.source].description}, "
            f"while inferences follow one another; the board takes {significant(energy.idle_watts)} W while it does "
            "nothing"
        )
    lines += [f"{name} was not measured: {error.cause}" for name, error in report.failed.items()]
    alike: dict[tuple[str, str], list[str]] = {}
    for entry in report.skipped:
        alike.setdefault((", ".join(entry.models), entry.reason), []).append(entry.engine)
    for (models, reason), skipped in alike.items():
        lines.append(
            f"{', '.join(skipped)} {'was' if len(skipped) == 1 else 'were'} not measured on {models}: {reason}"
        )
    suspicious = [row for row in report.rows if row.max_rel_diff > SUSPICIOUS]
    lines += [
        f"{row.engine} on {row.case}: outputs differ from {report.reference}'s by {row.max_rel_diff:.1e} of the "
        "largest value; its time may be that of other work"
        for row in suspicious
        if row.max_abs_diff > NEARLY_ZERO
    ]
    for case in report.cases:
        if tiny := [row for row in suspicious if row.case == case and row.max_abs_diff <= NEARLY_ZERO]:
            largest = max(row.max_abs_diff for row in tiny)
            lines.append(
                f"{', '.join(row.engine for row in tiny)} on {case}: the relative difference is that of an output "
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

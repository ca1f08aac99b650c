"""How far outputs are and may be from the reference's: a fixed fraction, or more if rounding alone changes more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.compile.ir.types import unit_roundoff
from edgedeploy.model.tensors import Tensors
from edgedeploy.package.entry import Case, Measure
from edgedeploy.package.manifest import Manifest
from edgedeploy.selftest.inputs import computed_types, uses_of

if TYPE_CHECKING:
    from edgedeploy.model.network import Network
    from edgedeploy.target.board import Board

# |difference| <= relative * max|reference| + absolute, for networks in float32. The absolute part is for outputs that
# are nearly zero. About half of a type's digits survive a network: both grow as the root of the machine epsilon.
TOLERANCE = (1e-4, 1e-6)
EXACT = (1e-6, 1e-6)  # networks that are computed in integers throughout: dequantising their outputs rounds to float32
# Steps by which outputs of other quantised networks may differ, since values close to a half round either way; the
# reference's own kernels show the further effect of such steps upstream.
_STEPS = 2.0
# The largest tolerance of those, as a fraction. Outputs that rounding alone may change by more are compared by root
# mean squares in place of largest values: of thousands of boxes some are always far away.
_MOST_QUANTISED = 0.3
# Detection transformers select the best few hundred of thousands of places, and rounding alone reorders nearly equal
# scores. Outputs with this many rows are compared row by row, in any order: half of the rows must agree. Other rows
# change these slightly, through attention.
_ROWS = range(50, 1001)
_ROWS_TOLERANCE = 1e-3

# The tolerance, in differences between two sets of the reference's own kernels. Sound code reached two of them.
_SPREADS = 3.0
MOST = 10.0  # the largest tolerance, in usual ones: a network that rounding changes by more cannot be checked so
_STEADY = 0.1  # if rounding alone changes outputs of edge inputs by more, in usual tolerances, smaller inputs are tried
# The tolerance of a network in half precision, in errors of trials: nearly all are below three standard deviations.
_EXPECTED = 3.0
# The part of the tolerance that estimated rounding errors may take: the estimate is right within a factor of two.
_ESTIMATED = 0.5


@dataclass(frozen=True)
class Recorded:
    """One inference of the reference.

    `spread` is the effect of rounding alone, for each output in floating point of which it is known: how far other
    kernels of the reference are from it.
    """

    inputs: Tensors
    outputs: Tensors
    spread: Mapping[str, float]
    measures: Mapping[str, Measure] = field(default_factory=dict)  # for outputs not compared by `largest`

    @classmethod
    def of(cls, network: Network, inputs: Tensors, outputs: Tensors) -> Recorded:
        """An inference of the reference, with the spread of its outputs."""
        spread: dict[str, float] = {}
        uses = uses_of(network)
        rows = {count for count in uses.selected if uses.products and count in _ROWS}
        measures: dict[str, Measure] = {name: "rows" for name, each in outputs.items() if rows.intersection(each.shape)}
        try:
            others = [run(inputs) for run in network.other_kernels]
        except Exception:
            others = []  # other kernels of the reference may refuse the network
        for name, wanted in outputs.items():
            if not others or wanted.dtype.kind != "f" or any(np.shape(each[name]) != wanted.shape for each in others):
                continue
            found = [np.asarray(each[name], np.float64) for each in others]
            if name in measures:
                spread[name] = max((difference_of(each, wanted, "rows") or (0.0,))[0] for each in found)
                continue
            with np.errstate(invalid="ignore"):  # differences of infinities
                apart = [each - wanted for each in found]
            spread[name] = max(map(largest_of, apart))
            if network.quantised and _SPREADS * spread[name] > _MOST_QUANTISED * largest_of(wanted):
                measures[name] = "rms"
                spread[name] = max(map(rms_of, apart))
        return cls(inputs, outputs, spread, measures)

    def size(self, output: str) -> float:
        """What an output's tolerance is a fraction of."""
        return (rms_of if self.measures.get(output) == "rms" else largest_of)(self.outputs[output])

    def relative_spread(self, output: str) -> float | None:
        """The effect of rounding on an output, as a fraction of its size; None if unknown."""
        size = self.size(output)
        return float(f"{self.spread[output] / size:.2g}") if output in self.spread and size else None


def usual_tolerance(network: Network, board: Board, *, exact: bool = False) -> tuple[float, float]:
    """The tolerance of outputs that rounding changes little; as `tolerance_of`."""
    if exact:
        return EXACT
    relative, absolute = _usual(network)
    least = (board.device.tolerance if board.device else None) or TOLERANCE
    return max(relative, least[0]), max(absolute, least[1])


def _usual(network: Network) -> tuple[float, float]:
    in_half = network.half and network.half.used and not network.half.weights
    return tolerance_in(["float16"] if in_half else computed_types(network))


def tolerance_in(dtypes: Iterable[str]) -> tuple[float, float]:
    """The tolerance of a network that computes in some floating-point types, as `tolerance_of`.

    The coarsest of them decides, and float32 at least.
    """
    coarsest = max(unit_roundoff(dtype) for dtype in ("float32", *dtypes))
    growth = math.sqrt(coarsest / unit_roundoff("float32"))
    relative, absolute = (_rounded_up(growth * part) for part in TOLERANCE)
    return relative, absolute


def tolerance_of(
    network: Network, board: Board, case: Recorded, output: str, *, exact: bool = False
) -> tuple[float, float]:
    """By how much an output of an inference may differ: a fraction of its size, and an absolute part.

    `exact` networks are computed in integers throughout.
    """
    usual, absolute = usual_tolerance(network, board, exact=exact)
    size = case.size(output)
    if exact or not size:
        return usual, absolute
    most, steps = MOST * usual, 0.0
    if case.measures.get(output) == "rows":
        usual = max(usual, _ROWS_TOLERANCE)
    if network.quantised:
        most, steps = max(most, _MOST_QUANTISED), _STEPS * step_of(case.outputs[output])
    needed = (_SPREADS * case.spread.get(output, 0.0) + steps - absolute) / size
    if network.half and network.half.used:
        needed, most = max(needed, _EXPECTED * network.half.tested), max(most, tolerance_in(["float16"])[0])
    return min(max(usual, _rounded_up(needed)), most), absolute


def step_of(output: np.ndarray) -> float:
    """The step of an output of a quantised network: the least difference between two of its values.

    Values of dequantised tensors are whole steps apart, but for the rounding of float32.
    """
    values = np.unique(output[np.isfinite(output)].astype(np.float64))
    apart = np.diff(values)
    apart = apart[apart > 1e-6 * np.abs(values).max(initial=0)]
    return float(apart.min(initial=np.inf)) if apart.size else 0.0


def is_steady(network: Network, case: Recorded) -> bool:
    """Whether rounding alone changes a case's outputs so little that smaller inputs need not be tried.

    One step of one value of a quantised network is as large as an error: errors need only be larger than its steps.
    """
    return _unrest(network, case) <= (MOST / _SPREADS if network.quantised else _STEADY)


def steadiest(network: Network, cases: Iterable[Recorded]) -> Recorded | None:
    """The case that rounding alone changes least, if errors stand out from that."""
    best = min(cases, key=lambda case: _unrest(network, case), default=None)
    return None if best is None or _SPREADS * _unrest(network, best) > MOST else best


def _unrest(network: Network, case: Recorded) -> float:
    """The largest effect of rounding alone on an output, in usual tolerances; at most `MOST` are allowed."""
    relative, absolute = _usual(network)
    if network.quantised:
        relative = _MOST_QUANTISED / MOST
    return max(
        (spread / (relative * case.size(output) + absolute) for output, spread in case.spread.items()), default=0.0
    )


def error_limit(network: Network, board: Board, cases: Iterable[Recorded]) -> float:
    """How many times the reference's rounding error a network's may be; infinity for quantised networks."""
    if network.quantised:
        return math.inf
    limit = math.inf
    for case in cases:
        for output, spread in case.spread.items():
            relative, absolute = tolerance_of(network, board, case, output)
            allowed = relative * case.size(output) + absolute
            limit = min(limit, _ESTIMATED * allowed / spread) if spread else limit
    return limit


def largest_of(output: np.ndarray) -> float:
    """The largest finite value, without its sign."""
    values = np.abs(output.astype(np.float64))
    return float(values[np.isfinite(values)].max(initial=0))


def rms_of(output: np.ndarray) -> float:
    """The root mean square of the finite values."""
    values = output[np.isfinite(output)].astype(np.float64)
    return math.sqrt(np.square(values).mean()) if values.size else 0.0


def _rounded_up(value: float) -> float:
    """To two digits, for readable reports."""
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.2g}")


def other_outputs(manifest: Manifest) -> str:
    """The error message for a package whose outputs differ by more than is allowed."""
    return f"the code for {manifest.model} gives other outputs than {manifest.selftest.reference}"


def fractions(outputs: Tensors, expected: Tensors, case: Case) -> dict[str, float]:
    """By output, the largest difference as a fraction of the tolerance of a case; a sound result has none above 1.

    Infinities and NaN must be the same. The agent compares in the same way (agent/selftest.cc).

    `outputs` and `expected` have the same shapes and dtypes, the latter in the network's order.
    """
    found = {}
    for (name, wanted), relative in zip(expected.items(), case.relative, strict=True):
        difference, size = difference_of(outputs[name], wanted, case.measure(name)) or (math.inf, 0.0)
        found[name] = difference / (relative * size + case.absolute) if math.isfinite(difference) else math.inf
    return found


def difference_of(found: np.ndarray, expected: np.ndarray, measure: Measure = "largest") -> tuple[float, float] | None:
    """The largest |found - expected| and |expected| of two arrays of one size, where the expected values are finite.

    By `rms` the root mean squares of both; by `rows` the difference that half of the expected rows keep to, each
    from the nearest row found. None if infinities or NaN are expected, and others were found. The difference is inf or
    NaN if values are.
    """
    given, wanted = (array.astype(np.float64).reshape(-1) for array in (found, expected))
    finite = np.isfinite(wanted)
    if measure == "rows" and wanted.size and finite.all():
        width = expected.shape[-1] if expected.ndim > 1 and expected.shape[-2] > 1 else 1
        rows = np.nan_to_num(given, nan=np.inf).reshape(-1, width)
        nearest = sorted(float(np.abs(rows - row).max(axis=1).min()) for row in wanted.reshape(-1, width))
        return nearest[(len(nearest) - 1) // 2], largest_of(expected)
    if not np.array_equal(given[~finite], wanted[~finite], equal_nan=True):
        return None
    difference, wanted = np.abs(given[finite] - wanted[finite]), np.abs(wanted[finite])
    if measure == "rms" and wanted.size:
        return float(np.sqrt(np.square(difference).mean())), rms_of(wanted)
    return float(difference.max(initial=0)), float(wanted.max(initial=0))


def relative_error(found: np.ndarray, expected: np.ndarray, measure: Measure = "largest") -> float:
    """The difference as a fraction of what it is compared with; infinite if it is not a number."""
    difference, size = difference_of(found, expected, measure) or (math.inf, 0.0)
    if not math.isfinite(difference):
        return math.inf
    return difference / size if size else difference

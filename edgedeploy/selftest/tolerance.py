"""How far outputs may be from the reference's: a fixed fraction, or more where rounding alone is shown to do more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.compile.types import unit_roundoff
from edgedeploy.package.entry import Case
from edgedeploy.package.manifest import Manifest
from edgedeploy.selftest.inputs import computed_types
from edgedeploy.tensors import Tensors

if TYPE_CHECKING:
    from edgedeploy.board import Board
    from edgedeploy.network import Network

# |difference| <= relative * max|reference| + absolute, for networks in float32. The absolute part is for outputs that
# are nearly zero. A network keeps about half of its type's digits: both grow as the root of the machine epsilon.
TOLERANCE = (1e-4, 1e-6)
# Networks that are computed in integers throughout: float32 rounds what dequantises their outputs.
EXACT = (1e-6, 1e-6)
# Steps by which outputs of other quantised networks may differ, where a value falls on the other side of a half; what
# such steps of tensors upstream do comes on top, as the reference's own kernels show it.
_STEPS = 2.0
# What is allowed at most of those, as a fraction of the largest value.
_MOST_QUANTISED = 0.3

# What is allowed, in differences between two sets of the reference's own kernels. Sound code came to two of them.
_SPREADS = 3.0
# What is allowed at most, in usual tolerances: a network that rounding changes by more cannot be checked so.
MOST = 10.0
# What rounding alone may do to the outputs of edge inputs, in usual tolerances, before smaller inputs are tried.
_STEADY = 0.1
# What estimated rounding errors may take of what is allowed: the estimate is right within a factor of two.
_ESTIMATED = 0.5


@dataclass(frozen=True)
class Recorded:
    """One inference of the reference.

    Attributes:
        inputs, outputs: by name.
        spread: by output, what rounding alone does to it, as `spread_of` gives it.
    """

    inputs: Tensors
    outputs: Tensors
    spread: Mapping[str, float]


def spread_of(network: Network, inputs: Tensors, expected: Tensors) -> dict[str, float]:
    """What rounding alone does to a network: how far other kernels of the reference are from it.

    Args:
        network: the network.
        inputs: by name.
        expected: what the reference made of them, by name.

    Returns:
        By name of each output in floating point, the largest difference. Nothing where it cannot be known.
    """
    if network.other_kernels is None:
        return {}
    try:
        others = network.other_kernels(inputs)
    except Exception:
        return {}  # what the reference computes, other kernels of it need not
    return {
        name: _difference(np.asarray(others[name]), wanted)
        for name, wanted in expected.items()
        if wanted.dtype.kind == "f" and np.shape(others[name]) == wanted.shape
    }


def usual_tolerance(network: Network, board: Board, *, exact: bool = False) -> tuple[float, float]:
    """By how much outputs may differ that rounding changes little; as `tolerance_of`."""
    if exact:
        return EXACT
    relative, absolute = tolerance_in(computed_types(network))
    least = (board.device.tolerance if board.device else None) or TOLERANCE
    return max(relative, least[0]), max(absolute, least[1])


def tolerance_in(dtypes: Iterable[str]) -> tuple[float, float]:
    """By how much outputs may differ of a network that computes in some floating-point types, as `tolerance_of`.

    The coarsest of them decides. Nothing finer than float32 is asked for.
    """
    coarsest = max(unit_roundoff(dtype) for dtype in ("float32", *dtypes))
    growth = math.sqrt(coarsest / unit_roundoff("float32"))
    relative, absolute = (_rounded_up(growth * part) for part in TOLERANCE)
    return relative, absolute


def tolerance_of(
    network: Network, board: Board, case: Recorded, output: str, *, exact: bool = False
) -> tuple[float, float]:
    """By how much an output may differ: a fraction of its largest value, and what comes on top.

    Args:
        network: the network.
        board: where it will run.
        case: an inference of the reference.
        output: the name of the output.
        exact: whether it is computed in integers throughout.
    """
    usual, absolute = usual_tolerance(network, board, exact=exact)
    largest = largest_of(case.outputs[output])
    if exact or not largest:
        return usual, absolute
    most, steps = MOST * usual, 0.0
    if network.quantised:
        most, steps = max(most, _MOST_QUANTISED), _STEPS * step_of(case.outputs[output])
    needed = (_SPREADS * case.spread.get(output, 0.0) + steps - absolute) / largest
    return min(max(usual, _rounded_up(needed)), most), absolute


def step_of(output: np.ndarray) -> float:
    """The step of an output of a quantised network: the least difference between two of its values.

    Those of dequantised tensors are whole steps apart, but for what float32 rounds. Of few values, or of others, it
    says how close they lie.
    """
    values = np.unique(output[np.isfinite(output)].astype(np.float64))
    apart = np.diff(values)
    apart = apart[apart > 1e-6 * np.abs(values).max(initial=0)]
    return float(apart.min(initial=np.inf)) if apart.size else 0.0


def is_steady(network: Network, case: Recorded) -> bool:
    """Whether rounding alone does so little to a case's outputs that it need not be tried on smaller inputs."""
    return _unrest(network, case) <= _STEADY


def steadiest(network: Network, cases: Iterable[Recorded]) -> Recorded | None:
    """The case that rounding alone changes least, if it changes it by less than can be told from an error."""
    best = min(cases, key=lambda case: _unrest(network, case), default=None)
    return None if best is None or _SPREADS * _unrest(network, best) > MOST else best


def _unrest(network: Network, case: Recorded) -> float:
    """The most that rounding alone does to an output, in usual tolerances."""
    if network.quantised or not case.spread:
        return 0.0  # one step of one value is more than can be told from an error by its size
    relative, absolute = tolerance_in(computed_types(network))
    return max(
        spread / (relative * largest_of(case.outputs[output]) + absolute) for output, spread in case.spread.items()
    )


def error_limit(network: Network, board: Board, cases: Iterable[Recorded]) -> float:
    """How many times the reference's rounding error a network's may be: infinity where that does not matter."""
    if network.quantised:
        return math.inf
    limit = math.inf
    for case in cases:
        for output, spread in case.spread.items():
            relative, absolute = tolerance_of(network, board, case, output)
            allowed = relative * largest_of(case.outputs[output]) + absolute
            limit = min(limit, _ESTIMATED * allowed / spread) if spread else limit
    return limit


def largest_of(output: np.ndarray) -> float:
    """The largest finite value, without its sign."""
    values = np.abs(output.astype(np.float64))
    return float(values[np.isfinite(values)].max(initial=0))


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        difference = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return float(difference[np.isfinite(difference)].max(initial=0))


def _rounded_up(value: float) -> float:
    """To two digits, so that reports stay readable."""
    if value <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / step) * step:.2g}")


def other_outputs(manifest: Manifest) -> str:
    """What is wrong with a package whose outputs differ by more than is allowed, for error messages."""
    return f"the code for {manifest.model} gives other outputs than {manifest.selftest.reference}"


def fractions(outputs: Tensors, expected: Tensors, case: Case) -> dict[str, float]:
    """By output, the largest difference as a fraction of what the self-test allows; a sound result has none above 1.

    Values that are not finite agree only with the same ones. The agent compares in the same way (agent/comparison.cc).

    Args:
        outputs, expected: by name, of the same shapes and dtypes, the latter in the network's order.
        case: the self-test's, with the tolerance.
    """
    return {
        name: _fraction(outputs[name], wanted, relative, case.absolute)
        for (name, wanted), relative in zip(expected.items(), case.relative, strict=True)
    }


def where_finite(found: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The values of two arrays of one size where the expected ones are finite; None if they differ elsewhere."""
    given, wanted = (array.astype(np.float64).reshape(-1) for array in (found, expected))
    finite = np.isfinite(wanted)
    if not np.array_equal(given[~finite], wanted[~finite], equal_nan=True):
        return None
    return given[finite], wanted[finite]


def _fraction(found: np.ndarray, expected: np.ndarray, relative: float, absolute: float) -> float:
    pair = where_finite(found, expected)
    if pair is None:
        return float("inf")
    given, wanted = pair
    allowed = relative * np.abs(wanted).max(initial=0) + absolute
    difference = np.abs(given - wanted).max(initial=0)
    return float(difference / allowed) if np.isfinite(difference) else float("inf")

"""Outputs held against the reference's."""

from __future__ import annotations

import numpy as np

from edgedeploy.package.entry import Case
from edgedeploy.package.manifest import Manifest
from edgedeploy.tensors import Tensors


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

"""Outputs held against the reference's."""

from __future__ import annotations

import numpy as np

from edgedeploy.package.manifest import Case
from edgedeploy.runtime.interface import Tensors


def fractions(outputs: Tensors, expected: Tensors, case: Case) -> dict[str, float]:
    """By output, the largest difference as a fraction of what the self-test allows; a sound result has none above 1.

    Values that are not finite agree only with the same ones. The agent compares in the same way (agent/comparison.cc).

    Args:
        outputs, expected: by name, of the same shapes and dtypes.
        case: the self-test's, with the tolerance.
    """
    return {name: _fraction(outputs[name], wanted, case) for name, wanted in expected.items()}


def _fraction(found: np.ndarray, expected: np.ndarray, case: Case) -> float:
    given, wanted = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wanted)
    if not np.array_equal(given[~finite], wanted[~finite], equal_nan=True):
        return float("inf")
    given, wanted = given[finite], wanted[finite]
    allowed = case.relative * np.abs(wanted).max(initial=0) + case.absolute
    difference = np.abs(given - wanted).max(initial=0)
    return float(difference / allowed) if np.isfinite(difference) else float("inf")

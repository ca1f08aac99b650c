"""Outputs held against the reference's."""

from __future__ import annotations

import numpy as np

from edgedeploy.package.manifest import SelfTest
from edgedeploy.runtime.interface import Tensors


def check_outputs(outputs: Tensors, expected: Tensors, test: SelfTest) -> dict[str, float]:
    """By output, the largest difference as a fraction of what the self-test allows; a sound result has none above 1."""
    fractions = {}
    for name, wanted in expected.items():
        difference = np.abs(outputs[name].astype(np.float64) - wanted.astype(np.float64))
        allowed = test.relative * np.abs(wanted.astype(np.float64)).max(initial=0) + test.absolute
        worst = float(difference.max(initial=0) / allowed)
        fractions[name] = worst if np.isfinite(worst) else float("inf")
    return fractions

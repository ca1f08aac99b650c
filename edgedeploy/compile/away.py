"""Halves away from zero: how Tengine and ncnn round, where QuantizeLinear and processors round them to even.

Networks say it by a factor in front of a `quantize`. Values that were at a half lie beyond it then, so that everything
which does not know of it rounds them so, too. What knows of it leaves the factor out, and rounds exactly.
"""

from __future__ import annotations

import numpy as np

# The next float32 after 1: products and quotients of float32 keep half a unit of the last place of it at least.
AWAY_FROM_ZERO = np.nextafter(np.float32(1), np.float32(2))


def rounded_away(values: np.ndarray) -> np.ndarray:
    """C's `round`, of float32 values."""
    return np.trunc(np.trunc(values * 2) / 2 + np.copysign(0.5, values))

"""Halves away from zero: how Tengine and ncnn round, where QuantizeLinear and processors round them to even.

Networks say it by a factor in front of a `quantize`. Values that were at a half lie beyond it then, so that everything
which does not know of it rounds them so, too. What knows of it leaves the factor out, and rounds exactly.
"""

from __future__ import annotations

import numpy as np

# The next float32 after 1: products and quotients of float32 keep half a unit of the last place of it at least.
AWAY_FROM_ZERO = np.nextafter(np.float32(1), np.float32(2))

# A half less one unit of the last place: added to the largest float32 below a half it leaves 1 - 2^-24.
BELOW_A_HALF = np.nextafter(np.float32(0.5), np.float32(0))


def rounded_away(values: np.ndarray) -> np.ndarray:
    """C's `round`."""
    return np.trunc(values + np.copysign(BELOW_A_HALF, values))

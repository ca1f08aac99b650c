"""Halves away from zero: how Tengine and ncnn round, where QuantizeLinear and processors round them to even.

Networks say it by a factor in front of a `quantize`. Values that were at a half lie beyond it then, so that everything
which does not know of it rounds them so, too. What knows of it leaves the factor out, and rounds exactly.
"""

from __future__ import annotations

import numpy as np

# The next float32 after 1: products and quotients of float32 keep half a unit of the last place of it at least.
AWAY_FROM_ZERO = np.nextafter(np.float32(1), np.float32(2))

# How many float32 on each side of a quotient of scales are tried as a factor.
_NEIGHBOURS = 6

# Sums on each side of where a result changes that are looked at, more than rounding errors of three operations on sums
# of less than 2^23 move that place by.
_AROUND = 8
_LARGEST_SUM = 2**23

# A half less one unit of the last place: added to the largest float32 below a half it leaves 1 - 2^-24.
BELOW_A_HALF = np.nextafter(np.float32(0.5), np.float32(0))


def rounded_away(values: np.ndarray) -> np.ndarray:
    """C's `round`."""
    return np.trunc(values + np.copysign(BELOW_A_HALF, values))


def factors_to_even(products: np.ndarray, scale: np.float32, largest: np.ndarray, *, divide: bool) -> np.ndarray | None:
    """Factors with which sums, rounded to even, give what Tengine gives; None if there is none for a channel.

    Tengine's convolutions compute `round(float32(sum) * product / scale)` (conv_kernel_ref_int8.c), its dense layers
    `round(float32(sum) * (product / scale))` (fc_ref.c). All results change at the same sums with these factors.

    Args:
        products: for each channel, the value of a sum of 1; float32.
        scale: of the result.
        largest: for each channel, the largest magnitude of a sum.
        divide: whether it is a convolution.

    Returns:
        One factor for each channel, float32.
    """
    quotients = products / scale
    results = np.arange(255)  # the largest difference of a byte from its zero point is 255
    changes = np.floor((results + 0.5) / quotients.reshape(-1, 1).astype(np.float64))
    relevant = changes - _AROUND <= np.minimum(largest, _LARGEST_SUM).reshape(-1, 1)
    if (relevant & (changes > _LARGEST_SUM - _AROUND)).any() or largest.max() >= _LARGEST_SUM:
        return None
    sums = changes[:, :, None] + np.arange(-_AROUND, _AROUND + 1)
    counted = ((sums >= 0) & (sums <= largest.reshape(-1, 1, 1))).reshape(len(products), -1)
    sums = sums.reshape(len(products), -1).astype(np.float32)
    wanted = sums * products[:, None] / scale if divide else sums * quotients[:, None]
    wanted = rounded_away(wanted)
    factors, found = quotients.copy(), np.zeros(len(products), bool)
    for near in _near(quotients):
        agrees = ((np.rint(sums * near[:, None]) == wanted) | ~counted).all(axis=1)
        factors = np.where(agrees & ~found, near, factors)
        found |= agrees
    return factors if found.all() else None


def _near(values: np.ndarray) -> list[np.ndarray]:
    """Values and their neighbours, the nearest ones first."""
    found, below, above = [values], values, values
    for _ in range(_NEIGHBOURS):
        above, below = np.nextafter(above, np.float32(np.inf)), np.nextafter(below, np.float32(0))
        found += [above, below]
    return found

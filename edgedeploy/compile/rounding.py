"""Rounding errors of sums.

They are estimated for independent values of mean zero, whose rounding errors are independent too (N. J. Higham and
T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019): as variances,
relative to the variance of a layer's results. Worst-case bounds grow with the same norms of the transforms (B. Barabasz
et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks, ACM TOMS 46(4),
2020), but no network comes near them. docs/schedules.md compares the estimates with measurements.
"""

from __future__ import annotations

import math

from edgedeploy.compile.ir.types import LayerTypes, unit_roundoff

# The variance of one rounding, in squares of the unit roundoff: uniform in half a unit of the last place, of a value
# with a log-uniform mantissa.
ROUNDING = (1 - 1 / 4) / (2 * math.log(2)) / 3


# The terms of a sum of half precision that is added to others like it. Rounding errors of long sums grow with the root
# of their terms; in two levels, a sum of 4096 terms has the errors of one of 128.
SHORT_SUM = 64


def additions(terms: float, accumulator: str) -> float:
    """The additions that round a term of a sum on its way to the result, at most."""
    return min(terms, SHORT_SUM) + terms / SHORT_SUM if accumulator == "float16" else terms


def summed(terms: float) -> float:
    """Of a sum of products, one after the other, in squares of the unit roundoff.

    On average, a partial sum has half the variance of the whole.
    """
    return ROUNDING * terms / 2


def rounding_in(types: LayerTypes, sums: float) -> float:
    """Of a layer whose sums have a variance, in squares of their unit roundoff, and are then stored as its result."""
    stored = unit_roundoff(types.result)
    last = ROUNDING * stored**2 if stored > unit_roundoff(types.accumulator) else 0.0
    return sums * unit_roundoff(types.accumulator) ** 2 + last

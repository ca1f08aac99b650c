"""Rounding errors: how large those of sums are.

They are estimated for independent values of mean zero, whose rounding errors are independent too (N. J. Higham and
T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019): as variances, in
squares of the unit roundoff, relative to the variance of a layer's results. Worst-case bounds grow with the same norms
of the transforms (B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
Networks, ACM TOMS 46(4), 2020), but no network comes near them. docs/schedules.md holds the estimates against
measurements.
"""

from __future__ import annotations

import math

# The variance of one rounding: uniform in half a unit of the last place, of a value with a log-uniform mantissa.
ROUNDING = (1 - 1 / 4) / (2 * math.log(2)) / 3


def summed(terms: float) -> float:
    """Of a sum of products, one after the other: on average, a partial sum has half the variance of the whole."""
    return ROUNDING * terms / 2

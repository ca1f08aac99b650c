"""Rounding errors of sums, and forms of layers that keep a network's error within a limit.

They are estimated for independent values of mean zero, whose rounding errors are independent too (N. J. Higham and
T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019): as variances,
relative to the variance of a layer's results. Worst-case bounds grow with the same norms of the transforms (B. Barabasz
et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks, ACM TOMS 46(4),
2020), but no network comes near them. docs/schedules.md compares the estimates with measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgedeploy.compile.ir.types import LayerTypes, unit_roundoff

if TYPE_CHECKING:
    from edgedeploy.compile.configuration import Configuration
    from edgedeploy.compile.layers import AnchorOp
    from edgedeploy.compile.strategy import Strategy

# The variance of one rounding, in squares of the unit roundoff: uniform in half a unit of the last place, of a value
# with a log-uniform mantissa.
ROUNDING = (1 - 1 / 4) / (2 * math.log(2)) / 3

# The products that the reference sums up before it adds that sum to others: onnxruntime's error stops growing there.
_REFERENCE_BLOCK = 144


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


def within(
    limit: float, strategies: Mapping[str, Strategy[Any]], chosen: Mapping[str, Configuration], calls: Mapping[str, int]
) -> dict[str, Configuration]:
    """Configurations with which a network's rounding error stays within a limit, or comes as near to it as it can.

    All layers are assumed to matter equally to the outputs. If the limit is exceeded, the layer with the largest share
    takes the fastest form that rounds less, and so on.

    Args:
        limit: how many times the error of a reference the network's may be.
        strategies, chosen, calls: by the names of functions: of their layers, the fastest or measured configuration,
            and the calls in one inference.
    """
    chosen = dict(chosen)
    allowed = limit**2 * sum(calls[name] * _of_reference(strategy.layer) for name, strategy in strategies.items())

    def share(name: str) -> float:
        return calls[name] * strategies[name].rounding(chosen[name])

    changeable = set(strategies)
    while changeable and sum(map(share, strategies)) > allowed:
        name = max(sorted(changeable), key=share)
        strategy, error = strategies[name], strategies[name].rounding(chosen[name])
        exacter = [form for form in strategy.alternatives() if strategy.rounding(form) < error]
        if exacter:
            chosen[name] = min(exacter, key=strategy.estimate)
        else:
            changeable.remove(name)
    return chosen


def _of_reference(layer: AnchorOp) -> float:
    """The variance of the reference's rounding errors, which sums up in float32 at least."""
    types, block = layer.types, min(layer.terms, _REFERENCE_BLOCK)
    types = replace(types, accumulator=min("float32", types.accumulator, key=unit_roundoff))
    return rounding_in(types, summed(block + layer.terms / block))

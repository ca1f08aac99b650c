"""Rounding errors: how large those of a layer's forms are, and which forms keep the network's within a limit.

They are estimated for independent values of mean zero, whose rounding errors are independent too (N. J. Higham and
T. Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41(5), 2019): as variances, in
squares of the unit roundoff, relative to the variance of a layer's results. Worst-case bounds grow with the same norms
of the transforms (B. Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
Networks, ACM TOMS 46(4), 2020), but no network comes near them. docs/schedules.md holds the estimates against
measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgedeploy.board import Board
    from edgedeploy.compile.configuration import Configuration
    from edgedeploy.compile.layers import AnyLayer

# The variance of one rounding: uniform in half a unit of the last place, of a value with a log-uniform mantissa.
ROUNDING = (1 - 1 / 4) / (2 * math.log(2)) / 3

# The products that the reference sums up before it adds that sum to others: onnxruntime's error stops growing there.
_REFERENCE_BLOCK = 144


def summed(terms: float) -> float:
    """Of a sum of products, one after the other: on average, a partial sum has half the variance of the whole."""
    return ROUNDING * terms / 2


def within(
    limit: float,
    layers: Mapping[str, AnyLayer],
    chosen: Mapping[str, Configuration],
    calls: Mapping[str, int],
    board: Board,
) -> dict[str, Configuration]:
    """Configurations with which a network's rounding error stays within a limit, or comes as near to it as it can.

    All layers are taken to matter equally to the outputs. Where the limit is exceeded, the layer with the largest share
    takes the fastest form that rounds less, and so on.

    Args:
        limit: how many times the error of a reference the network's may be.
        layers: of a network, by the names of their functions.
        chosen: the fastest configuration of each, or that which was measured.
        calls: of each function in one inference.
        board: what the network runs on.
    """
    chosen = dict(chosen)
    allowed = limit**2 * sum(calls[name] * _of_reference(layer.terms) for name, layer in layers.items())

    def share(name: str) -> float:
        return calls[name] * layers[name].rounding(chosen[name])

    changeable = set(layers)
    while changeable and sum(map(share, layers)) > allowed:
        name = max(sorted(changeable), key=share)
        layer, error = layers[name], layers[name].rounding(chosen[name])
        exacter = [form for form in layer.forms(board) if layer.rounding(form) < error]
        if exacter:
            chosen[name] = min(exacter, key=lambda form: layer.estimate(form, board))
        else:
            changeable.remove(name)
    return chosen


def _of_reference(terms: int) -> float:
    block = min(terms, _REFERENCE_BLOCK)
    return summed(block + terms / block)

"""Which forms of a network's layers keep its rounding error within a limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgedeploy.compile.rounding import rounding_in, summed
from edgedeploy.compile.types import unit_roundoff

if TYPE_CHECKING:
    from edgedeploy.compile.configuration import Configuration
    from edgedeploy.compile.layers import AnchorOp
    from edgedeploy.compile.strategy import Strategy

# The products that the reference sums up before it adds that sum to others: onnxruntime's error stops growing there.
_REFERENCE_BLOCK = 144


def within(
    limit: float,
    strategies: Mapping[str, Strategy[Any]],
    chosen: Mapping[str, Configuration],
    calls: Mapping[str, int],
) -> dict[str, Configuration]:
    """Configurations with which a network's rounding error stays within a limit, or comes as near to it as it can.

    All layers are taken to matter equally to the outputs. Where the limit is exceeded, the layer with the largest share
    takes the fastest form that rounds less, and so on.

    Args:
        limit: how many times the error of a reference the network's may be.
        strategies: for the layers of a network, by the names of their functions.
        chosen: the fastest configuration of each, or that which was measured.
        calls: of each function in one inference.
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

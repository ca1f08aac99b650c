"""Which forms of a network's layers keep its rounding error within a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgedeploy.compile.rounding import summed

if TYPE_CHECKING:
    from edgedeploy.board import Board
    from edgedeploy.compile.configuration import Configuration
    from edgedeploy.compile.layers import AnyLayer

# The products that the reference sums up before it adds that sum to others: onnxruntime's error stops growing there.
_REFERENCE_BLOCK = 144


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

"""Weights that are asked for some steps of a sum before they are needed.

A processor's own prefetching follows a tile's weights too late when they come from beyond the L2 cache, as all
weights of a larger network do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

# How many steps of the sum ahead: about as many cycles as the third cache takes to answer.
STEPS = 16

# Arguments of `llvm.prefetch`: to be read, into all caches, data.
_READ, _KEEP, _DATA = 0, 3, 1


def prefetched(
    weights: te.Tensor, indices: Sequence[tirx.PrimExpr], step: int, once: tirx.PrimExpr, vector: int
) -> tirx.PrimExpr:
    """A weight, and a prefetch of the vector that is used `STEPS` steps later in the place of this one's.

    Args:
        weights: whose last dimension is vectorised.
        indices: the weight's.
        step: which of the indices counts the steps of the sum. Past the end of its dimension lie the weights that
            are used next, as they are laid in the order of their use.
        once: a condition that holds for one of those uses of a weight that follow one another.
        vector: values in a vector; 0 for no prefetch.
    """
    weight = weights[tuple(indices)].asobject()
    if not vector:
        return weight
    ahead = list(indices)
    ahead[step] = ahead[step] + STEPS
    return fetching(weights, ahead, once, vector, lambda: weight)


def fetching(
    weights: te.Tensor,
    ahead: Sequence[tirx.PrimExpr],
    once: tirx.PrimExpr,
    vector: int,
    value: Callable[[], tirx.PrimExpr],
) -> tirx.PrimExpr:
    """A value, and a prefetch of a vector of weights on the way to it.

    Args:
        weights: whose last dimension is vectorised.
        ahead: indices into the vector that is fetched; they may lie past the end of dimensions but the last.
        once: a condition under which it is.
        vector: values in a vector.
        value: writes what is computed in any case. It is called twice: each place needs variables of its own.
    """
    ahead = [*ahead[:-1], tirx.floordiv(ahead[-1], vector) * vector]
    address = tirx.call_intrin("handle", "tirx.address_of", weights[tuple(ahead)].asobject())
    fetch = tirx.call_intrin("void", "tirx.prefetch", address, _READ, _KEEP, _DATA)
    # LLVM allows no names for calls without a result.
    return tirx.if_then_else(once, tirx.Let(tirx.Var("", "void"), fetch, value()), value())

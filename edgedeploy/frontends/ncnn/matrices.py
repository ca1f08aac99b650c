"""Products of matrices, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgedeploy.frontends.graph import Value
from edgedeploy.frontends.ncnn.graph import NcnnGraph, translates


@translates("MatMul", {0})
def _matmul(graph: NcnnGraph, swapped: bool = False) -> Value:
    """As numpy's matmul, perhaps with the last two axes of the second factor swapped."""
    one, other = graph.check_inputs(2)
    rows = [1] if one.rank == 1 else []
    columns = [1] if other.rank == 1 else []
    if swapped and other.rank > 1:
        other = _swapped(graph, other)
    product = graph.node(
        "MatMul", graph.reshape(one, [*rows, *one.shape]), graph.reshape(other, [*other.shape, *columns])
    )
    *batch, height, width = product.shape
    shape = [*batch, *([] if rows else [height]), *([] if columns else [width])]
    return graph.reshape(product, shape or [1])


# How Gemm's C is spread over rows and columns, by parameter 10; -1 means no C.
_SPREAD = {0: (), 1: ("M", 1), 2: ("M", 1), 3: ("M", "N"), 4: ("N",)}


@translates("Gemm", {*range(15), 18, 20, 21, 22})
def _gemm(graph: NcnnGraph) -> Value:
    """(A B + beta C) alpha, where each of the three is an input or is stored."""
    layer = graph.layer
    if layer.integer(11) or layer.integer(18):
        raise layer.error("its weights are quantised, or it takes channels as rows (parameters 18 and 11)")
    inputs = iter(graph.inputs)
    sizes = {"M": layer.integer(7), "N": layer.integer(8), "K": layer.integer(9)}

    def factor(stored: int, turned: int, shape: str) -> Value | None:
        if layer.integer(stored) == 0:
            blob = next(inputs, None)
            if blob is not None and blob.rank != 2:
                raise layer.error(f"an input has {blob.rank} dimensions, and only 2 can be imported")
            return _swapped(graph, blob) if blob is not None and layer.integer(turned) else blob
        stated = [sizes[axis] for axis in (reversed(shape) if layer.integer(turned) else shape)]
        if min(stated) < 1:
            raise layer.error(f"its sizes {sizes} (parameters 7 to 9) are not those of a matrix")
        values = graph.weights.tagged(*stated)
        return graph.floats(values.T.copy() if layer.integer(turned) else values)

    left, right = factor(4, 2, "MK"), factor(5, 3, "KN")
    if left is None or right is None or (layer.integer(4) and layer.integer(5)):
        raise layer.error("it should read one factor at least, and each that is not stored")
    product = graph.node("MatMul", left, right)
    addend: Value | None = None
    kind = layer.integer(10)
    if layer.integer(6) and kind != -1:
        if kind not in _SPREAD:
            raise layer.error(f"the form {kind} of its addend (parameter 10) is not known")
        height, width = product.shape
        shape = [{"M": height, "N": width, 1: 1}[axis] for axis in _SPREAD[kind]]
        addend = graph.floats(graph.weights.tagged(math.prod(shape)).reshape(shape))
    elif not layer.integer(6):
        addend = next(inputs, None)
        if addend is not None and addend.rank == 1 and addend.shape[0] not in (1, product.shape[1]):
            addend = graph.reshape(addend, [*addend.shape, 1])
    if addend is not None:
        product = graph.node("Add", product, graph.scaled(addend, layer.number(1, 1.0)))
    product = graph.scaled(product, layer.number(0, 1.0))
    return _swapped(graph, product) if layer.integer(14) else product


@translates("SDPA", (5, 6, 7, 18))
def _attention_layer(graph: NcnnGraph, masked: bool = False, scale: float = 0.0) -> Value:
    """Attention between heads x places x features."""
    _check_attention(graph)
    query, key, value, *mask = graph.check_inputs(4 if masked else 3, *((2, 3) if masked else (3,)))
    return _attention(graph, query, key, value, scale or 1 / math.sqrt(query.shape[-1]), mask)


@translates("MultiHeadAttention", (0, 1, 2, 5, 3, 4, 6, 7, 18))
def _multi_head_attention(
    graph: NcnnGraph, size: int = 0, heads: int = 1, count: int = 0, masked: bool = False
) -> Value:
    """Attention of Vaswani et al. (2017) with its four dense layers, on places x features."""
    layer, masks = graph.layer, int(masked)
    _check_attention(graph)
    if min(size, heads) < 1 or size % heads or count < 1 or count % size:
        raise layer.error(f"{size} features, {heads} heads and {count} weights do not fit (parameters 0 to 2)")
    blobs = list(graph.inputs[: len(graph.inputs) - masks])
    if not 1 <= len(blobs) <= 3 or any(blob.rank != 2 for blob in blobs):
        raise layer.error("it should read one to three matrices, and a mask if parameter 5 is set")
    blobs += blobs[-1:] * (3 - len(blobs))  # keys and values may be one blob, and the queries too
    widths = [count // size, layer.integer(3, size), layer.integer(4, size)]

    def dense(blob: Value, inputs: int, outputs: int) -> Value:
        if blob.shape[-1] != inputs:
            raise layer.error(f"it has weights for {inputs} features, and its input has {blob.shape[-1]}")
        product = graph.node("MatMul", blob, graph.floats(graph.weights.tagged(outputs, inputs).T.copy()))
        return graph.node("Add", product, graph.floats(graph.weights.plain(outputs)))

    parts = [dense(blob, width, size) for blob, width in zip(blobs, widths, strict=True)]
    split = [graph.transpose(graph.reshape(part, [part.shape[0], heads, size // heads]), [1, 0, 2]) for part in parts]
    scale = layer.number(6, 1 / math.sqrt(size // heads))
    product = _attention(graph, split[0], split[1], split[2], scale, graph.inputs[len(graph.inputs) - masks :])
    return dense(graph.reshape(graph.transpose(product, [1, 0, 2]), [product.shape[1], size]), size, widths[0])


def _check_attention(graph: NcnnGraph) -> None:
    if graph.layer.integer(7) or graph.layer.integer(18):
        raise graph.layer.error("it caches keys and values, or is quantised (parameters 7 and 18)")


def _attention(graph: NcnnGraph, query: Value, key: Value, value: Value, scale: float, mask: Sequence[Value]) -> Value:
    """softmax(Q K^T scale + mask) V."""
    scores = graph.node("MatMul", graph.scaled(query, scale), _swapped(graph, key))
    for blob in mask:
        scores = graph.node("Add", scores, blob)
    return graph.node("MatMul", graph.node("Softmax", scores, axis=scores.rank - 1), value)


def _swapped(graph: NcnnGraph, blob: Value) -> Value:
    *batch, row, column = range(blob.rank)
    return graph.transpose(blob, [*batch, column, row])

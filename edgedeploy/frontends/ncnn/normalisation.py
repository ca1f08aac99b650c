"""Normalisations by stored or computed statistics, scales, softmax, reductions."""

from __future__ import annotations

import math

import numpy as np

from edgedeploy.frontends.graph import Value
from edgedeploy.frontends.ncnn.graph import UNSET, NcnnGraph, translates


@translates("BatchNorm", {0, 1})
def _batch_norm(graph: NcnnGraph) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * slope + bias."""
    layer, blob = graph.layer, graph.only_input()
    channels = _channels(graph, blob, layer.integer(0))
    slope, mean, variance, bias = (graph.weights.plain([channels], layer.name) for _ in range(4))
    if variance.min() < 0:
        raise layer.error("a variance is below zero", "check that the .bin file belongs to the .param file")
    operands = map(graph.floats, (slope, bias, mean, variance))
    return graph.node("BatchNormalization", blob, *operands, epsilon=layer.number(1))


@translates("Scale", {0, 1})
def _scale(graph: NcnnGraph) -> Value:
    layer = graph.layer
    count, with_bias = layer.integer(0), layer.integer(1) != 0
    if count == UNSET:  # the factors are a blob too
        blob, factors = graph.check_inputs(2)
        if with_bias or factors.shape != blob.shape[:1]:
            raise layer.error("its second input should hold a factor for each channel, and there should be no bias")
        return graph.node("Mul", blob, graph.reshape(factors, [*factors.shape, *[1] * (blob.rank - 1)]))
    blob = graph.only_input()
    _channels(graph, blob, count)
    scaled = graph.node("Mul", blob, _next_weights(graph, blob))
    return graph.node("Add", scaled, _next_weights(graph, blob)) if with_bias else scaled


@translates("Bias", {0})
def _bias(graph: NcnnGraph) -> Value:
    blob = graph.only_input()
    _channels(graph, blob, graph.layer.integer(0))
    return graph.node("Add", blob, _next_weights(graph, blob))


@translates("InstanceNorm", {0, 1, 2})
def _instance_norm(graph: NcnnGraph) -> Value:
    layer, blob = graph.layer, graph.only_input(3)
    channels = blob.shape[0]
    weights = [np.ones(channels), np.zeros(channels)]
    if layer.integer(2, 1):
        _channels(graph, blob, layer.integer(0))
        weights = [graph.weights.plain([channels], layer.name) for _ in range(2)]
    operands = map(graph.floats, weights)
    return graph.node("InstanceNormalization", blob, *operands, epsilon=layer.number(1, 0.001))


@translates("GroupNorm", range(4))
def _group_norm(graph: NcnnGraph) -> Value:
    layer, blob = graph.layer, graph.only_input()
    groups, channels = layer.integer(0, 1), _channels(graph, blob, layer.integer(1))
    if groups < 1 or channels % groups:
        raise layer.error(f"{channels} channels do not fit {groups} groups")
    operands = [graph.floats(np.full(groups, value)) for value in (1, 0)]
    parts = graph.reshape(blob, [groups, math.prod(blob.shape) // groups])
    normalised = graph.node("InstanceNormalization", parts, *operands, epsilon=layer.number(2, 0.001))
    normalised = graph.reshape(normalised, blob.shape)
    if not layer.integer(3, 1):
        return normalised
    scaled = graph.node("Mul", normalised, _next_weights(graph, blob))
    return graph.node("Add", scaled, _next_weights(graph, blob))


@translates("LayerNorm", range(3))
def _layer_norm(graph: NcnnGraph) -> Value:
    """Each row by its own mean and variance, or each block of the inner axes that have as many values as weights."""
    shape, factor, shift = _affine(graph)
    operands = [graph.floats(factor), graph.floats(shift if shift is not None else np.zeros(shape))]
    blob = graph.only_input()
    axis, epsilon = blob.rank - len(shape), graph.layer.number(1, 0.001)
    return graph.node("LayerNormalization", blob, *operands, axis=axis, epsilon=epsilon)


@translates("RMSNorm", range(3))
def _rms_norm(graph: NcnnGraph) -> Value:
    """As LayerNorm, without a mean: each value by the root of the mean of squares."""
    shape, factor, _ = _affine(graph, with_bias=False)
    blob = graph.only_input()
    axes = range(blob.rank - len(shape), blob.rank)
    squares = graph.reduce("ReduceMean", graph.node("Mul", blob, blob), axes)
    root = graph.node("Sqrt", graph.node("Add", squares, graph.floats(graph.layer.number(1, 0.001))))
    return graph.node("Mul", graph.node("Div", blob, root), graph.floats(factor))


@translates("Normalize", {0, 1, 2, 3, 4, 9})
def _normalize(graph: NcnnGraph) -> Value:
    """By the root of the sum of squares over channels, over places, or over both, then by stored factors."""
    layer, blob = graph.layer, graph.only_input(3)
    spatial, shared, channels = (layer.integer(number) != 0 for number in (0, 1, 4))
    epsilon, count, mode = layer.number(2, 0.0001), layer.integer(3), layer.integer(9)
    if not spatial and not channels:
        raise layer.error("it sums over nothing (parameters 0 and 4)")
    if count != (1 if shared else blob.shape[0]):
        raise layer.error(f"it states {count} factors for {blob.shape[0]} channels")
    factors = graph.weights.plain([count], layer.name)
    squares = graph.reduce("ReduceSumSquare", blob, [*([0] if channels else []), *([1, 2] if spatial else [])])
    small = graph.floats(epsilon)
    if mode == 0:
        norm = graph.node("Sqrt", graph.node("Add", squares, small))
    elif mode == 1:
        norm = graph.node("Max", graph.node("Sqrt", squares), small)
    elif mode == 2:
        norm = graph.node("Sqrt", graph.node("Max", squares, small))
    else:
        raise layer.error(f"epsilon's place {mode} (parameter 9) is not known")
    return graph.node("Mul", graph.node("Div", blob, norm), graph.per_channel(factors, blob))


@translates("LRN", range(5))
def _local_response(graph: NcnnGraph) -> Value:
    """x / (bias + alpha / size * sum of squares of `size` channels around) ^ beta."""
    layer, blob = graph.layer, graph.only_input(3)
    size, alpha, beta, bias = layer.integer(1, 5), layer.number(2, 1.0), layer.number(3, 0.75), layer.number(4, 1.0)
    if layer.integer(0) or size < 1 or size % 2 == 0:
        raise layer.error("only normalisation across an odd number of channels can be imported")
    return graph.node("LRN", blob, size=size, alpha=alpha, beta=beta, bias=bias)


@translates("Softmax", {0, 1})
def _softmax(graph: NcnnGraph) -> Value:
    layer, blob = graph.layer, graph.only_input()
    axis = layer.integer(0)
    if axis and not layer.integer(1):
        raise layer.error("it was written when axes were counted otherwise", "convert the network again")
    return graph.node("Softmax", blob, axis=graph.axis(axis, blob.rank) if blob.rank > 1 else 0)


# By ncnn's number.
_KINDS = ("Sum", "L1", "SumSquare", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp")


@translates("Reduction", range(6))
def _reduction(graph: NcnnGraph) -> Value:
    layer, blob = graph.layer, graph.only_input()
    kind, factor, stated = layer.one_of(0, "operation", _KINDS), layer.number(2, 1.0), layer.integers(3)
    if stated and not layer.integer(5):
        raise layer.error("it was written when axes were counted otherwise", "convert the network again")
    whole = layer.integer(1, 1) != 0
    axes = range(blob.rank) if whole else sorted({graph.axis(axis, blob.rank) for axis in stated})
    if not axes:
        return blob
    reduced = graph.scaled(graph.reduce(f"Reduce{kind}", blob, axes), factor)
    if layer.integer(4):
        return reduced
    return graph.reshape(reduced, [size for axis, size in enumerate(blob.shape) if axis not in axes] or [1])


def _channels(graph: NcnnGraph, blob: Value, stated: int) -> int:
    """The size of the outermost axis, which the layer states too."""
    if stated != blob.shape[0]:
        raise graph.layer.error(f"it states {stated} channels, and its input has {blob.shape[0]}")
    return stated


def _affine(graph: NcnnGraph, *, with_bias: bool = True) -> tuple[list[int], np.ndarray, np.ndarray | None]:
    """The shape that is normalised together, the last axes of the input, with its factors and the bias, if any."""
    layer, blob = graph.layer, graph.only_input()
    count = layer.integer(0)
    # A matrix is normalised row by row only, and channels always on their own.
    shapes = [list(blob.shape[axis:]) for axis in range(blob.rank) if axis or blob.rank == 1]
    shape = next((each for each in shapes[::-1][: 1 if blob.rank < 3 else None] if math.prod(each) == count), None)
    if shape is None:
        raise layer.error(f"it states {count} values (parameter 0), which are not inner axes of its input {blob.shape}")
    if not layer.integer(2, 1):
        return shape, np.ones(shape), None
    factor = graph.weights.plain([count], layer.name).reshape(shape)
    return shape, factor, graph.weights.plain([count], layer.name).reshape(shape) if with_bias else None


def _next_weights(graph: NcnnGraph, blob: Value) -> Value:
    """The next weights, one for each channel."""
    return graph.per_channel(graph.weights.plain([blob.shape[0]], graph.layer.name), blob)

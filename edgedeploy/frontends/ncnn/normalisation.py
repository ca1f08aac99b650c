"""Normalisations by stored or computed statistics, scales, softmax, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgedeploy.frontends.graph import Value
from edgedeploy.frontends.ncnn.graph import UNSET, NcnnGraph, translates


@translates("BatchNorm", (0, 1))
def _batch_norm(graph: NcnnGraph, blob: Value, channels: int = 0, epsilon: float = 0.0) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * slope + bias."""
    _check_channels(graph, blob, channels)
    slope, mean, variance, bias = (graph.weights.plain(channels) for _ in range(4))
    if variance.min() < 0:
        raise graph.layer.error("a variance is below zero", "check that the .bin file belongs to the .param file")
    return graph.node("BatchNormalization", blob, *map(graph.floats, (slope, bias, mean, variance)), epsilon=epsilon)


@translates("Scale", (0, 1))
def _scale(graph: NcnnGraph, count: int = 0, with_bias: bool = False) -> Value:
    if count == UNSET:  # the factors are a blob too
        blob, factors = graph.check_inputs(2)
        if with_bias or factors.shape != blob.shape[:1]:
            raise graph.layer.error(
                "its second input should hold a factor for each channel, and there should be no bias"
            )
        return graph.node("Mul", blob, graph.reshape(factors, [*factors.shape, *[1] * (blob.rank - 1)]))
    blob = graph.only_input()
    _check_channels(graph, blob, count)
    return _scaled(graph, blob, with_bias=with_bias)


@translates("Bias", {0})
def _bias(graph: NcnnGraph, blob: Value, channels: int = 0) -> Value:
    _check_channels(graph, blob, channels)
    return graph.node("Add", blob, _next_weights(graph, blob))


@translates("InstanceNorm", range(3), 3)
def _instance_norm(
    graph: NcnnGraph, blob: Value, channels: int = 0, epsilon: float = 0.001, affine: bool = True
) -> Value:
    if affine:
        _check_channels(graph, blob, channels)
    weights = [graph.weights.plain(channels) if affine else np.full(blob.shape[0], value) for value in (1, 0)]
    return graph.node("InstanceNormalization", blob, *map(graph.floats, weights), epsilon=epsilon)


@translates("GroupNorm", range(4))
def _group_norm(
    graph: NcnnGraph, blob: Value, groups: int = 1, channels: int = 0, epsilon: float = 0.001, affine: bool = True
) -> Value:
    _check_channels(graph, blob, channels)
    if groups < 1 or channels % groups:
        raise graph.layer.error(f"{channels} channels do not fit {groups} groups")
    operands = [graph.floats(np.full(groups, value)) for value in (1, 0)]
    parts = graph.reshape(blob, [groups, math.prod(blob.shape) // groups])
    normalised = graph.node("InstanceNormalization", parts, *operands, epsilon=epsilon)
    normalised = graph.reshape(normalised, blob.shape)
    return _scaled(graph, normalised, with_bias=True) if affine else normalised


@translates("LayerNorm", range(3))
def _layer_norm(graph: NcnnGraph, blob: Value, count: int = 0, epsilon: float = 0.001, affine: bool = True) -> Value:
    """Each row by its own mean and variance, or each block of the inner axes that have as many values as weights."""
    shape = _normalised_shape(graph, blob, count)
    operands = [graph.weights.plain(*shape) if affine else np.full(shape, value) for value in (1, 0)]
    axis = blob.rank - len(shape)
    return graph.node("LayerNormalization", blob, *map(graph.floats, operands), axis=axis, epsilon=epsilon)


@translates("RMSNorm", range(3))
def _rms_norm(graph: NcnnGraph, blob: Value, count: int = 0, epsilon: float = 0.001, affine: bool = True) -> Value:
    """As LayerNorm, without a mean: each value by the root of the mean of squares."""
    shape = _normalised_shape(graph, blob, count)
    factor = graph.weights.plain(*shape) if affine else np.ones(shape)
    squares = graph.reduce("ReduceMean", graph.node("Mul", blob, blob), range(blob.rank - len(shape), blob.rank))
    root = graph.node("Sqrt", graph.node("Add", squares, graph.floats(epsilon)))
    return graph.node("Mul", graph.node("Div", blob, root), graph.floats(factor))


@translates("Normalize", (0, 4, 1, 3, 2, 9), 3)
def _normalize(
    graph: NcnnGraph, blob: Value, spatial: bool = False, channels: bool = False, shared: bool = False, count: int = 0
) -> Value:
    """By the root of the sum of squares over channels, over places, or over both, then by stored factors."""
    layer, node = graph.layer, graph.node
    if not spatial and not channels:
        raise layer.error("it sums over nothing (parameters 0 and 4)")
    if count != (1 if shared else blob.shape[0]):
        raise layer.error(f"it states {count} factors for {blob.shape[0]} channels")
    factors = graph.weights.plain(count)
    squares = graph.reduce("ReduceSumSquare", blob, [*([0] if channels else []), *([1, 2] if spatial else [])])
    small = graph.floats(layer.number(2, 0.0001))
    places: list[Callable[[], Value]] = [
        lambda: node("Sqrt", node("Add", squares, small)),
        lambda: node("Max", node("Sqrt", squares), small),
        lambda: node("Sqrt", node("Max", squares, small)),
    ]
    norm = layer.one_of(9, "epsilon's place", places)()
    return node("Mul", node("Div", blob, norm), graph.per_channel(factors, blob))


@translates("LRN", (1, 2, 3, 4, 0), 3)
def _local_response(
    graph: NcnnGraph, blob: Value, size: int = 5, alpha: float = 1.0, beta: float = 0.75, bias: float = 1.0
) -> Value:
    """x / (bias + alpha / size * sum of squares of `size` channels around) ^ beta."""
    if graph.layer.integer(0) or size < 1 or size % 2 == 0:
        raise graph.layer.error("only normalisation across an odd number of channels can be imported")
    return graph.node("LRN", blob, size=size, alpha=alpha, beta=beta, bias=bias)


@translates("Softmax", (0, 1))
def _softmax(graph: NcnnGraph, blob: Value, axis: int = 0, recent: bool = False) -> Value:
    if axis and not recent:
        raise graph.layer.error("it was written when axes were counted otherwise", "convert the network again")
    return graph.node("Softmax", blob, axis=graph.axis(axis, blob.rank) if blob.rank > 1 else 0)


_KINDS = ("Sum", "L1", "SumSquare", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp")  # by ncnn's number


@translates("Reduction", (1, 2, 3, 0, 4, 5))
def _reduction(
    graph: NcnnGraph, blob: Value, whole: bool = True, factor: float = 1.0, stated: Sequence[int] = ()
) -> Value:
    layer = graph.layer
    kind = layer.one_of(0, "operation", _KINDS)
    if stated and not layer.integer(5):
        raise layer.error("it was written when axes were counted otherwise", "convert the network again")
    axes = range(blob.rank) if whole else sorted({graph.axis(axis, blob.rank) for axis in stated})
    if not axes:
        return blob
    reduced = graph.scaled(graph.reduce(f"Reduce{kind}", blob, axes), factor)
    if layer.integer(4):
        return reduced
    return graph.reshape(reduced, [size for axis, size in enumerate(blob.shape) if axis not in axes] or [1])


def _check_channels(graph: NcnnGraph, blob: Value, stated: int) -> None:
    if stated != blob.shape[0]:
        raise graph.layer.error(f"it states {stated} channels, and its input has {blob.shape[0]}")


def _normalised_shape(graph: NcnnGraph, blob: Value, count: int) -> list[int]:
    """The shape that is normalised together: the last axes of the input, with `count` values."""
    # A matrix is normalised row by row only, and channels always on their own.
    shapes = [list(blob.shape[axis:]) for axis in range(blob.rank) if axis or blob.rank == 1]
    shape = next((each for each in shapes[::-1][: 1 if blob.rank < 3 else None] if math.prod(each) == count), None)
    if shape is None:
        raise graph.layer.error(
            f"it states {count} values (parameter 0), which are not inner axes of its input {blob.shape}"
        )
    return shape


def _scaled(graph: NcnnGraph, blob: Value, *, with_bias: bool) -> Value:
    """Channels times stored factors, plus a stored bias if there is one."""
    scaled = graph.node("Mul", blob, _next_weights(graph, blob))
    return graph.node("Add", scaled, _next_weights(graph, blob)) if with_bias else scaled


def _next_weights(graph: NcnnGraph, blob: Value) -> Value:
    return graph.per_channel(graph.weights.plain(blob.shape[0]), blob)

"""Layers that shift and scale: normalisations by stored or by found statistics, softmax."""

from __future__ import annotations

import math

import numpy as np

from edgedeploy.frontends.ncnn.step import UNSET, Blob, Step, translates


@translates("BatchNorm", {0, 1})
def _batch_norm(step: Step) -> Blob:
    """(x - mean) / sqrt(variance + epsilon) * slope + bias."""
    layer, blob = step.layer, step.only_input()
    channels = _channels(step, blob, layer.integer(0))
    slope, mean, variance, bias = (step.weights.plain([channels], layer.name) for _ in range(4))
    if variance.min() < 0:
        raise layer.error("a variance is below zero", "check that the .bin file belongs to the .param file")
    operands = [step.constant(values) for values in (slope, bias, mean, variance)]
    return step.node("BatchNormalization", blob, *operands, epsilon=layer.number(1))


@translates("Scale", {0, 1})
def _scale(step: Step) -> Blob:
    layer = step.layer
    count, with_bias = layer.integer(0), layer.integer(1) != 0
    if count == UNSET:  # the factors are a blob too
        blob, factors = step.check_inputs(2)
        if with_bias or factors.shape != blob.shape[:1]:
            raise layer.error("its second input should hold a factor for each channel, and there should be no bias")
        return step.node("Mul", blob, step.reshape(factors, [*factors.shape, *[1] * (blob.rank - 1)]))
    blob = step.only_input()
    channels = _channels(step, blob, count)
    factor = step.weights.plain([channels], layer.name)
    scaled = step.node("Mul", blob, step.outermost(factor, blob))
    return _plus(step, scaled) if with_bias else scaled


@translates("Bias", {0})
def _bias(step: Step) -> Blob:
    blob = step.only_input()
    _channels(step, blob, step.layer.integer(0))
    return _plus(step, blob)


@translates("InstanceNorm", {0, 1, 2})
def _instance_norm(step: Step) -> Blob:
    """Each channel by its own mean and variance."""
    layer, blob = step.layer, step.only_input(3)
    channels = blob.shape[0]
    factor, shift = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    if layer.integer(2, 1):
        _channels(step, blob, layer.integer(0))
        factor, shift = (step.weights.plain([channels], layer.name) for _ in range(2))
    operands = [step.constant(values) for values in (factor, shift)]
    return step.node("InstanceNormalization", blob, *operands, epsilon=layer.number(1, 0.001))


@translates("GroupNorm", range(4))
def _group_norm(step: Step) -> Blob:
    """Each group of channels by its own mean and variance."""
    layer, blob = step.layer, step.only_input()
    groups, channels = layer.integer(0, 1), _channels(step, blob, layer.integer(1))
    if groups < 1 or channels % groups:
        raise layer.error(f"{channels} channels do not fit {groups} groups")
    operands = [step.constant(np.full(groups, value)) for value in (1, 0)]
    parts = step.reshape(blob, [groups, math.prod(blob.shape) // groups])
    made = step.node("InstanceNormalization", parts, *operands, epsilon=layer.number(2, 0.001))
    made = step.reshape(made, blob.shape)
    if not layer.integer(3, 1):
        return made
    factor = step.weights.plain([channels], layer.name)
    return _plus(step, step.node("Mul", made, step.outermost(factor, blob)))


@translates("LayerNorm", range(3))
def _layer_norm(step: Step) -> Blob:
    """Each row by its own mean and variance, or each block of the inner axes that have as many values as weights."""
    shape, factor, shift = _affine(step)
    operands = [step.constant(factor), step.constant(shift if shift is not None else np.zeros(shape))]
    blob = step.only_input()
    return step.node(
        "LayerNormalization", blob, *operands, axis=blob.rank - len(shape), epsilon=step.layer.number(1, 0.001)
    )


@translates("RMSNorm", range(3))
def _rms_norm(step: Step) -> Blob:
    """As LayerNorm, without a mean: each value by the root of the mean of squares."""
    shape, factor, _ = _affine(step, with_bias=False)
    blob = step.only_input()
    axes = range(blob.rank - len(shape), blob.rank)
    squares = step.node("ReduceMean", step.node("Mul", blob, blob), axes=list(axes), keepdims=1)
    root = step.node("Sqrt", step.node("Add", squares, step.constant(step.layer.number(1, 0.001))))
    return step.node("Mul", step.node("Div", blob, root), step.constant(factor))


@translates("Normalize", {0, 1, 2, 3, 4, 9})
def _normalize(step: Step) -> Blob:
    """By the root of the sum of squares over channels, over places, or over both, then by stored factors."""
    layer, blob = step.layer, step.only_input(3)
    spatial, shared, channels = (layer.integer(number) != 0 for number in (0, 1, 4))
    epsilon, count, mode = layer.number(2, 0.0001), layer.integer(3), layer.integer(9)
    if not spatial and not channels:
        raise layer.error("it sums over nothing (parameters 0 and 4)")
    if count != (1 if shared else blob.shape[0]):
        raise layer.error(f"it states {count} factors for {blob.shape[0]} channels")
    factors = step.weights.plain([count], layer.name)
    axes = [*([0] if channels else []), *([1, 2] if spatial else [])]
    squares = step.node("ReduceSumSquare", blob, axes=axes, keepdims=1)
    small = step.constant(epsilon)
    if mode == 0:
        norm = step.node("Sqrt", step.node("Add", squares, small))
    elif mode == 1:
        norm = step.node("Max", step.node("Sqrt", squares), small)
    elif mode == 2:
        norm = step.node("Sqrt", step.node("Max", squares, small))
    else:
        raise layer.error(f"epsilon's place {mode} (parameter 9) is not known")
    return step.node("Mul", step.node("Div", blob, norm), step.outermost(factors, blob))


@translates("LRN", range(5))
def _local_response(step: Step) -> Blob:
    """x / (bias + alpha / size * sum of squares of `size` channels around) ^ beta."""
    layer, blob = step.layer, step.only_input(3)
    size, alpha, beta, bias = layer.integer(1, 5), layer.number(2, 1.0), layer.number(3, 0.75), layer.number(4, 1.0)
    if layer.integer(0) or size < 1 or size % 2 == 0:
        raise layer.error("only normalisation across an odd number of channels can be imported")
    return step.node("LRN", blob, size=size, alpha=alpha, beta=beta, bias=bias)


@translates("Softmax", {0, 1})
def _softmax(step: Step) -> Blob:
    layer, blob = step.layer, step.only_input()
    axis = layer.integer(0)
    if axis and not layer.integer(1):
        raise layer.error("it was written when axes were counted otherwise", "convert the network again")
    return step.node("Softmax", blob, axis=step.axis(axis, blob.rank) if blob.rank > 1 else 0)


def _channels(step: Step, blob: Blob, stated: int) -> int:
    """The size of the outermost axis, which the layer states too."""
    if stated != blob.shape[0]:
        raise step.layer.error(f"it states {stated} channels, and its input has {blob.shape[0]}")
    return stated


def _affine(step: Step, *, with_bias: bool = True) -> tuple[list[int], np.ndarray, np.ndarray | None]:
    """The shape that is normalised together, the last axes of the input, with its factors and the bias, if any."""
    layer, blob = step.layer, step.only_input()
    count = layer.integer(0)
    # A matrix is normalised row by row only, and nothing across channels.
    shapes = [list(blob.shape[axis:]) for axis in range(blob.rank) if axis or blob.rank == 1]
    shape = next((each for each in shapes[::-1][: 1 if blob.rank < 3 else None] if math.prod(each) == count), None)
    if shape is None:
        raise layer.error(f"it states {count} values (parameter 0), which are no inner axes of its input {blob.shape}")
    if not layer.integer(2, 1):
        return shape, np.ones(shape), None
    factor = step.weights.plain([count], layer.name).reshape(shape)
    return shape, factor, step.weights.plain([count], layer.name).reshape(shape) if with_bias else None


def _plus(step: Step, blob: Blob) -> Blob:
    """The next weights added to each channel."""
    bias = step.weights.plain([blob.shape[0]], step.layer.name)
    return step.node("Add", blob, step.outermost(bias, blob))

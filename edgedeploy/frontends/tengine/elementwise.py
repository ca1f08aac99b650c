"""Tengine's operators that treat values one by one or channel by channel, and fully connected layers."""

from __future__ import annotations

import math

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.tengine.operation import Converter, Operation


def _same(operator: str, **parameters: str) -> Converter:
    """An operator of one input that ONNX has, too; `parameters` says where its attributes come from."""

    def convert(op: Operation) -> list[str]:
        attributes = {name: op.parameters[source] for name, source in parameters.items()}
        return op.finish(operator, op.value(), **attributes)

    return convert


def _many(operator: str) -> Converter:
    """An operator of any number of inputs that ONNX has, too."""
    return lambda op: op.finish(operator, *(op.value(position) for position in range(max(1, op.inputs))))


def _unchanged(op: Operation) -> list[str]:
    """Dropout, and what does nothing."""
    return [op.value()]


def _relu(op: Operation) -> list[str]:
    slope = op.parameters["slope"]
    return op.finish("LeakyRelu", op.value(), alpha=slope) if slope else op.finish("Relu", op.value())


def _prelu(op: Operation) -> list[str]:
    """One slope for all, or one for each channel."""
    one = math.prod(op.stated(1)) == 1
    return op.finish("PRelu", op.value(), _per_channel(op, 1, 1 if one else None))


def _mish(op: Operation) -> list[str]:
    """x tanh(log(1 + exp(x))) (Misra, 2019, arXiv:1908.08681)."""
    value = op.value()
    return op.finish("Mul", value, op.step("Tanh", op.step("Softplus", value)))


def _batch_normalisation(op: Operation) -> list[str]:
    """Tengine's batchnorm_ref.c: mean and variance are divided by `rescale`; Caffe's has neither gamma nor beta."""
    p = op.parameters
    channels = _channels(op)
    statistics = [op.weights(position, (channels,)) for position in (3, 4)]
    if p["rescale"] != 1:
        factor = op.number(1 / p["rescale"] if p["rescale"] else 0)
        statistics = [op.step("Mul", value, factor) for value in statistics]
    if p["caffe"]:
        op.constants.reserve(8 * channels)
        affine = [op.graph.constant(np.full(channels, value, np.float32)) for value in (1, 0)]
    else:
        affine = [op.weights(position, (channels,)) for position in (1, 2)]
    return op.finish("BatchNormalization", op.value(), *affine, *statistics, epsilon=p["epsilon"])


def _instance_normalisation(op: Operation) -> list[str]:
    affine = [op.weights(position, (_channels(op),)) for position in (1, 2)]
    return op.finish("InstanceNormalization", op.value(), *affine, epsilon=op.parameters["epsilon"])


def _scale(op: Operation) -> list[str]:
    """Tengine's scale_ref.c: a factor for each channel, whatever the axis, and perhaps a bias."""
    if op.inputs < 3:
        return op.finish("Mul", op.value(), _per_channel(op, 1))
    return op.finish("Add", op.step("Mul", op.value(), _per_channel(op, 1)), _per_channel(op, 2))


def _bias(op: Operation) -> list[str]:
    return op.finish("Add", op.value(), _per_channel(op, 1))


def _fully_connected(op: Operation) -> list[str]:
    """Tengine's fc.c: rows of weights, outputs x inputs; the output has as many dimensions as the input."""
    batch, *rest = op.shape()
    stated = op.stated(1)
    inputs = math.prod(rest)
    if len(stated) != 2 or stated[1] != inputs or not 2 <= len(rest) + 1 <= 4:
        raise ModelError(f"its weights of shape {stated} do not suit its input of shape {(batch, *rest)}")
    operands = [op.reshaped(op.value(), (batch, inputs)), op.weights(1, stated)]
    if op.inputs > 2:
        operands.append(op.weights(2, stated[:1]))
    if len(rest) == 1:
        return op.finish("Gemm", *operands, transB=1)
    shape = op.integers((batch, stated[0], *(1 for _ in rest[1:])))
    return op.finish("Reshape", op.step("Gemm", *operands, transB=1), shape)


def _square(op: Operation) -> list[str]:
    return op.finish("Mul", op.value(), op.value())


def _reciprocal_root(op: Operation) -> list[str]:
    return op.finish("Reciprocal", op.step("Sqrt", op.value()))


def _power(op: Operation) -> list[str]:
    """(shift + scale x) ^ power."""
    p = op.parameters
    scaled = op.step("Mul", op.value(), op.number(p["scale"]))
    if p["power"] == 1:
        return op.finish("Add", scaled, op.number(p["shift"]))
    return op.finish("Pow", op.step("Add", scaled, op.number(p["shift"])), op.number(p["power"]))


# ELT_* of Tengine's eltwise_param.h.
_OF_TWO = {0: "Mul", 1: "Mul", 2: "Add", 3: "Add", 4: "Sub", 5: "Sub", 6: "Max", 8: "Min", 10: "Div", 16: "Pow"}
_OF_ONE: dict[int, Converter] = {
    7: _reciprocal_root,
    **{kind: _same(operator) for kind, operator in ((11, "Log"), (12, "Exp"), (13, "Sqrt"), (14, "Floor"))},
    15: _square,
    17: _power,
}
# `type` of Tengine's unary_ref.c: operators from 0 on.
_UNARY: tuple[Converter, ...] = (
    *map(_same, ("Abs", "Neg", "Floor", "Ceil")),
    _square,
    _same("Sqrt"),
    _reciprocal_root,
    *map(_same, ("Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Reciprocal", "Tanh")),
)


def _eltwise(op: Operation) -> list[str]:
    """Tengine's eltwise_ref.c."""
    kind = op.parameters["kind"]
    if kind in _OF_TWO and op.inputs == 2:
        return op.finish(_OF_TWO[kind], *_broadcast(op))
    if kind in _OF_ONE and op.inputs == 1:
        return _OF_ONE[kind](op)
    raise ModelError(f"its kind {kind} of {op.inputs} inputs is not known")


def _unary(op: Operation) -> list[str]:
    kind = op.parameters["kind"]
    if not 0 <= kind < len(_UNARY):
        raise ModelError(f"its kind {kind} is not known")
    return _UNARY[kind](op)


def _broadcast(op: Operation) -> tuple[str, str]:
    """Two operands, the smaller one in a shape that ONNX's rules bring to that of the larger one.

    Tengine compares numbers of values, in this order: one for all, as many on both sides, one for each channel.
    """
    values = [op.value(0), op.value(1)]
    shapes = [op.graph.shape(value) for value in values]
    counts = [math.prod(shape) for shape in shapes]
    large = max((0, 1), key=lambda index: (counts[index], len(shapes[index])))
    small, shape = 1 - large, shapes[large]
    if counts[small] == 1:
        values[small] = op.reshaped(values[small], (1,) * len(shape))
    elif counts[small] == counts[large]:
        values[small] = op.reshaped(values[small], shape)
    elif len(shape) > 1 and counts[small] == shape[1]:
        values[small] = op.reshaped(values[small], (1, shape[1], *(1 for _ in shape[2:])))
    return values[0], values[1]


def _channels(op: Operation) -> int:
    shape = op.shape()
    if len(shape) < 2:
        raise ModelError("its input has no channels", why=f"its shape is {shape}")
    return shape[1]


def _per_channel(op: Operation, position: int, count: int | None = None) -> str:
    """A constant with one value for each channel, or `count` values, that ONNX's rules bring to the input's shape."""
    channels = _channels(op) if count is None else count
    return op.weights(position, (channels, *(1 for _ in op.shape()[2:])))


CONVERTERS: dict[str, Converter] = {
    **{name: _same(name) for name in ("Ceil", "HardSwish", "Reciprocal", "Sigmoid", "Softplus", "Tanh")},
    "Absval": _same("Abs"),
    "Addn": _many("Sum"),
    "BatchNormalization": _batch_normalisation,
    "Bias": _bias,
    "Clip": lambda op: op.clipped(op.value(), op.parameters["low"], op.parameters["high"]),
    "Dropout": _unchanged,
    "Eltwise": _eltwise,
    "Elu": _same("Elu", alpha="alpha"),
    "FullyConnected": _fully_connected,
    "Hardsigmoid": _same("HardSigmoid", alpha="alpha", beta="beta"),
    "InstanceNorm": _instance_normalisation,
    "Logistic": _same("Sigmoid"),
    "Maximum": _many("Max"),
    "Mean": _many("Mean"),
    "Minimum": _many("Min"),
    "Mish": _mish,
    "Noop": _unchanged,
    "PReLU": _prelu,
    "ReLU1": lambda op: op.clipped(op.value(), -1, 1),
    "ReLu": _relu,
    "ReLu6": lambda op: op.clipped(op.value(), 0, 6),
    "Scale": _scale,
    "Selu": _same("Selu", alpha="alpha", gamma="scale"),
    "Unary": _unary,
}

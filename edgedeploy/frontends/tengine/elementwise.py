"""Tengine's operators that treat values one by one or channel by channel, and fully connected layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import UNARY, Graph, Value, operator, reciprocal_root, square
from edgedeploy.frontends.tengine.graph import Converter, TengineGraph


def _of_one(function: Callable[..., Value], *parameters: str) -> Converter:
    return lambda graph: function(graph, graph.value(), *(graph.parameters[name] for name in parameters))


def _many(operator: str) -> Converter:
    return lambda graph: graph.node(operator, *map(graph.value, range(max(1, graph.inputs))))


def _prelu(graph: TengineGraph) -> Value:
    """One slope for all, or one for each channel."""
    one = math.prod(graph.stated(1)) == 1
    return graph.node("PRelu", graph.value(), _per_channel(graph, 1, 1 if one else None))


def _batch_normalisation(graph: TengineGraph) -> Value:
    """Tengine's batchnorm_ref.c: mean and variance are divided by `rescale`; Caffe's has neither gamma nor beta."""
    p, channels = graph.parameters, graph.channels()
    statistics = [graph.weights(position, (channels,)) for position in (3, 4)]
    factor = 1 / p["rescale"] if p["rescale"] else 0
    statistics = [graph.scaled(value, factor) for value in statistics]
    if p["caffe"]:
        graph.reserve(8 * channels)
        affine = [graph.floats(np.full(channels, value)) for value in (1, 0)]
    else:
        affine = [graph.weights(position, (channels,)) for position in (1, 2)]
    return graph.node("BatchNormalization", graph.value(), *affine, *statistics, epsilon=p["epsilon"])


def _instance_normalisation(graph: TengineGraph) -> Value:
    affine = [graph.weights(position, (graph.channels(),)) for position in (1, 2)]
    return graph.node("InstanceNormalization", graph.value(), *affine, epsilon=graph.parameters["epsilon"])


def _scale(graph: TengineGraph) -> Value:
    """Tengine's scale_ref.c: a factor for each channel, and perhaps a bias; the stated axis does not count."""
    scaled = graph.node("Mul", graph.value(), _per_channel(graph, 1))
    return scaled if graph.inputs < 3 else graph.node("Add", scaled, _per_channel(graph, 2))


def _bias(graph: TengineGraph) -> Value:
    return graph.node("Add", graph.value(), _per_channel(graph, 1))


def _fully_connected(graph: TengineGraph) -> Value:
    """Tengine's fc.c: rows of weights, outputs x inputs; the output has as many dimensions as the input."""
    batch, *rest = graph.value().shape
    stated = graph.stated(1)
    inputs = math.prod(rest)
    if len(stated) != 2 or stated[1] != inputs or not 2 <= len(rest) + 1 <= 4:
        raise ModelError(f"its weights of shape {stated} do not suit its input of shape {(batch, *rest)}")
    operands = [graph.reshape(graph.value(), (batch, inputs)), graph.weights(1, stated)]
    if graph.inputs > 2:
        operands.append(graph.weights(2, stated[:1]))
    return graph.reshape(graph.node("Gemm", *operands, transB=1), (batch, stated[0], *(1 for _ in rest[1:])))


# ELT_* of Tengine's eltwise_param.h.
_OF_TWO = {0: "Mul", 1: "Mul", 2: "Add", 3: "Add", 4: "Sub", 5: "Sub", 6: "Max", 8: "Min", 10: "Div", 16: "Pow"}
_OF_ONE: dict[int, Converter] = {
    7: _of_one(reciprocal_root),
    **{kind: _of_one(operator(name)) for kind, name in ((11, "Log"), (12, "Exp"), (13, "Sqrt"), (14, "Floor"))},
    15: _of_one(square),
    17: _of_one(Graph.power, "power", "scale", "shift"),
}
_UNARY = UNARY[:17]


def _eltwise(graph: TengineGraph) -> Value | Sequence[Value]:
    """Tengine's eltwise_ref.c."""
    kind = graph.parameters["kind"]
    if kind in _OF_TWO and graph.inputs == 2:
        return graph.node(_OF_TWO[kind], *_broadcast(graph))
    if kind in _OF_ONE and graph.inputs == 1:
        return _OF_ONE[kind](graph)
    raise ModelError(f"its kind {kind} of {graph.inputs} inputs is not known")


def _unary(graph: TengineGraph) -> Value:
    kind = graph.parameters["kind"]
    if not 0 <= kind < len(_UNARY):
        raise ModelError(f"its kind {kind} is not known")
    return _UNARY[kind](graph, graph.value())


def _broadcast(graph: TengineGraph) -> list[Value]:
    """Two operands, the smaller one in a shape that ONNX's rules bring to that of the larger one.

    Tengine compares numbers of values, in this order: one for all, as many on both sides, one for each channel.
    """
    values = [graph.value(0), graph.value(1)]
    counts = [math.prod(value.shape) for value in values]
    large = max((0, 1), key=lambda index: (counts[index], values[index].rank))
    small, shape = 1 - large, values[large].shape
    if counts[small] == 1:
        values[small] = graph.reshape(values[small], (1,) * len(shape))
    elif counts[small] == counts[large]:
        values[small] = graph.reshape(values[small], shape)
    elif len(shape) > 1 and counts[small] == shape[1]:
        values[small] = graph.reshape(values[small], (1, shape[1], *(1 for _ in shape[2:])))
    return values


def _per_channel(graph: TengineGraph, position: int, count: int | None = None) -> Value:
    """A constant with one value for each channel, or `count` values, that ONNX's rules bring to the input's shape."""
    channels = graph.channels() if count is None else count
    return graph.weights(position, (channels, *(1 for _ in graph.value().shape[2:])))


CONVERTERS: dict[str, Converter] = {
    **{name: _of_one(operator(name)) for name in ("Ceil", "HardSwish", "Reciprocal", "Sigmoid", "Softplus", "Tanh")},
    "Absval": _of_one(operator("Abs")),
    "Addn": _many("Sum"),
    "BatchNormalization": _batch_normalisation,
    "Bias": _bias,
    "Clip": _of_one(Graph.clip, "low", "high"),
    "Dropout": TengineGraph.value,
    "Eltwise": _eltwise,
    "Elu": _of_one(operator("Elu", "alpha"), "alpha"),
    "FullyConnected": _fully_connected,
    "Hardsigmoid": _of_one(operator("HardSigmoid", "alpha", "beta"), "alpha", "beta"),
    "InstanceNorm": _instance_normalisation,
    "Logistic": _of_one(operator("Sigmoid")),
    "Maximum": _many("Max"),
    "Mean": _many("Mean"),
    "Minimum": _many("Min"),
    "Mish": _of_one(Graph.mish),
    "Noop": TengineGraph.value,
    "PReLU": _prelu,
    "ReLU1": lambda graph: graph.clip(graph.value(), -1, 1),
    "ReLu": _of_one(Graph.leaky_relu, "slope"),
    "ReLu6": lambda graph: graph.clip(graph.value(), 0, 6),
    "Scale": _scale,
    "Selu": _of_one(operator("Selu", "alpha", "gamma"), "alpha", "scale"),
    "Unary": _unary,
}

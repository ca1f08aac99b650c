"""Darknet's activation functions (src/activations.h) in ONNX's terms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph
from edgedeploy.frontends.graph import Attribute, Graph

LINEAR = "linear"

# Writes a function of a value, under a name.
Activate = Callable[[Graph, str, str], str]


def _operator(operator: str, **attributes: Attribute) -> Activate:
    return lambda graph, value, name: graph.node(operator, value, name=name, **attributes)


def _clipped(lowest: float, highest: float) -> Activate:
    def write(graph: Graph, value: str, name: str) -> str:
        bounds = [graph.constant(np.float32(bound), f"{name}_bound") for bound in (lowest, highest)]
        return graph.node("Clip", value, *bounds, name=name)

    return write


def _swish(graph: Graph, value: str, name: str) -> str:
    return graph.node("Mul", value, graph.node("Sigmoid", value, name=f"{name}_sigmoid"), name=name)


def _mish(graph: Graph, value: str, name: str) -> str:
    softplus = graph.node("Softplus", value, name=f"{name}_softplus")
    return graph.node("Mul", value, graph.node("Tanh", softplus, name=f"{name}_tanh"), name=name)


def _loggy(graph: Graph, value: str, name: str) -> str:
    """2 / (1 + exp(-x)) - 1, which is tanh(x / 2)."""
    half = graph.constant(np.float32(0.5), f"{name}_half")
    return graph.node("Tanh", graph.node("Mul", value, half, name=f"{name}_halved"), name=name)


_ACTIVATIONS: dict[str, Activate] = {
    "elu": _operator("Elu", alpha=1.0),
    "hardtan": _clipped(-1, 1),
    "leaky": _operator("LeakyRelu", alpha=0.1),
    "loggy": _loggy,
    "logistic": _operator("Sigmoid"),
    "mish": _mish,
    "relie": _operator("LeakyRelu", alpha=0.01),
    "relu": _operator("Relu"),
    "relu6": _clipped(0, 6),
    "selu": _operator("Selu", alpha=1.6732, gamma=1.0507),
    "swish": _swish,
    "tanh": _operator("Tanh"),
}


def activation_of(section: Section, default: str) -> str:
    """The activation function of a section, by Darknet's name.

    Raises:
        ModelError: it is not supported.
    """
    name = section.text("activation", default)
    if name != LINEAR and name not in _ACTIVATIONS:
        raise section.error(
            f"activation={name[:40]} is not supported",
            option="activation",
            hints=["supported are " + ", ".join(sorted([*_ACTIVATIONS, LINEAR]))],
        )
    return name


def name_before(graph: DarknetGraph, activation: str) -> str:
    """The name of the node that an activation function of the layer follows: the layer's own without one."""
    return graph.layer if activation == LINEAR else f"{graph.layer}_linear"


def activated(graph: DarknetGraph, activation: str, value: str) -> str:
    """The layer's activation function of a value."""
    return value if activation == LINEAR else _ACTIVATIONS[activation](graph, value, graph.layer)

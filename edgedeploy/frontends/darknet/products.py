"""Sections with weights: [convolutional], [connected] and [batchnorm]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgedeploy.frontends.darknet.activations import LINEAR, activated, activation_of
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.layer import Layer, Parameter, Plan, Shape
from edgedeploy.frontends.graph import Graph


def convolutional(section: Section, plan: Plan) -> Layer:
    """A convolution, with batch normalisation in place of the plain bias where that is asked for.

    Dilation spreads the kernel and its padding (AlexeyAB's fork, src/im2col.c).
    """
    section.refuse("antialiasing", "bin_output", "binary", "cbn", "coordconv", "flipped", "xnor")
    section.refuse("rotate", "stretch", "stretch_sway", "sway", "dontload", "dontloadscales")
    section.refuse("share_index", unless="")
    source = plan.previous
    shape = plan.shape(source)
    filters = section.integer("filters", 1, lowest=1)
    groups = section.integer("groups", 1, lowest=1)
    size = section.integer("size", 1, lowest=1)
    stride_y, stride_x = strides(section)
    dilation = section.integer("dilation", 1, lowest=1) if size > 1 else 1
    padding = size // 2 if section.integer("pad", 0) else section.integer("padding", 0, lowest=0)
    normalise = section.integer("batch_normalize", 0) != 0
    activation = activation_of(section, "logistic")
    if shape.channels % groups or filters % groups:
        why = f"{shape.channels} channels go in and {filters} come out"
        raise section.error(f"groups={groups} does not divide the channels", option="groups", why=why)
    if dilation > 1 and 2 * padding != size - 1:
        raise section.error(
            f"dilation={dilation} is not supported with this padding",
            option="dilation",
            why="Darknet itself states another size of the output than it computes",
            hints=["use an odd size and pad=1"],
        )
    height = steps(section, shape.height + 2 * padding, size, stride_y)
    width = steps(section, shape.width + 2 * padding, size, stride_x)
    kernel = Parameter("kernel", (filters, shape.channels // groups, size, size), _gain(activation))

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        *normalisation, weight = weights

        def convolve(name: str, *bias: str) -> str:
            return graph.node(
                "Conv",
                values[0],
                graph.constant(weight, f"{name}_weight"),
                *bias,
                name=name,
                kernel_shape=[size, size],
                strides=[stride_y, stride_x],
                pads=[padding * dilation] * 4,
                dilations=[dilation, dilation],
                group=groups,
            )

        def combine(name: str) -> str:
            if normalise:
                return _normalised(graph, name, convolve, normalisation, plan.epsilon)
            return convolve(name, graph.constant(normalisation[0], f"{name}_bias"))

        return activated(graph, name, activation, combine)

    parameters = [*_biases(filters, normalise), kernel]
    return Layer(section, [source], Shape(filters, height, width), write, parameters)


def connected(section: Section, plan: Plan) -> Layer:
    """Every output from all inputs; here the normalisation's weights stand behind the matrix."""
    section.refuse("dontload", "dontloadscales")
    source = plan.previous
    shape = plan.shape(source)
    outputs = section.integer("output", 1, lowest=1)
    normalise = section.integer("batch_normalize", 0) != 0
    activation = activation_of(section, "logistic")
    bias, *normalisation = _biases(outputs, normalise)
    matrix = Parameter("matrix", (outputs, shape.size), _gain(activation))

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        bias, matrix, *rest = weights

        def multiply(name: str, *bias: str) -> str:
            vector = reshaped(graph, values[0], f"{name}_flat", plan.batch, shape.size)
            weight = graph.constant(matrix, f"{name}_weight")
            product = graph.node("Gemm", vector, weight, *bias, name=f"{name}_product", transB=1)
            return reshaped(graph, product, name, plan.batch, outputs, 1, 1)

        def combine(name: str) -> str:
            if normalise:
                return _normalised(graph, name, multiply, [bias, *rest], plan.epsilon)
            return multiply(name, graph.constant(bias, f"{name}_bias"))

        return activated(graph, name, activation, combine)

    return Layer(section, [source], Shape(outputs, 1, 1), write, [bias, matrix, *normalisation])


def batchnorm(section: Section, plan: Plan) -> Layer:
    """Batch normalisation on its own. AlexeyAB's fork keeps biases in the file, the original has none."""
    section.refuse("dontload", "dontloadscales")
    source = plan.previous
    shape = plan.shape(source)

    def write(graph: Graph, name: str, values: Sequence[str], weights: Sequence[np.ndarray]) -> str:
        return _normalised(graph, name, lambda _: values[0], weights, plan.epsilon)

    bias, *others = _biases(shape.channels, normalise=True)
    optional = Parameter(bias.role, bias.shape, optional=True)
    return Layer(section, [source], shape, write, [optional, *others])


def strides(section: Section) -> tuple[int, int]:
    """The strides over rows and columns."""
    stride = section.integer("stride", 1, lowest=1)
    return section.integer("stride_y", stride, lowest=1), section.integer("stride_x", stride, lowest=1)


def steps(section: Section, padded: int, size: int, stride: int) -> int:
    """How many times a window fits into a padded side.

    Raises:
        ModelError: not even once.
    """
    if padded < size:
        raise section.error(
            f"size={size} is too large", option="size", why=f"what goes in has {padded} pixels there, padding included"
        )
    return (padded - size) // stride + 1


def reshaped(graph: Graph, value: str, name: str, *shape: int) -> str:
    """A value in another shape."""
    return graph.node("Reshape", value, graph.constant(np.array(shape, np.int64), f"{name}_shape"), name=name)


def _biases(channels: int, normalise: bool) -> list[Parameter]:
    bias = Parameter("bias", (channels,))
    if not normalise:
        return [bias]
    return [bias, *(Parameter(role, (channels,)) for role in ("scale", "mean", "variance"))]


def _gain(activation: str) -> float:
    """What keeps random networks sane however deep they are.

    Twice the variance makes up for the half that rectifiers cut off (He et al., 2015, arXiv:1502.01852). Linear layers
    are mostly summed with a shortcut, which doubled it in every block if they kept all of it.
    """
    return 0.5 if activation == LINEAR else 2.0


def _normalised(
    graph: Graph, name: str, write: Callable[[str], str], weights: Sequence[np.ndarray], epsilon: float
) -> str:
    """Batch normalisation of what `write` writes; its weights are bias, scale, mean and variance."""
    bias, scale, mean, variance = (
        graph.constant(array, f"{name}_{role}")
        for role, array in zip(("bias", "scale", "mean", "variance"), weights, strict=True)
    )
    value = write(f"{name}_raw")
    return graph.node("BatchNormalization", value, scale, bias, mean, variance, name=name, epsilon=epsilon)

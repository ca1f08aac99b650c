"""Sections of one input: [convolutional], [connected], [batchnorm], [activation], [softmax], pooling, [reorg]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph, Shape, size_of
from edgedeploy.frontends.graph import Graph, Value, operator

_LINEAR = "linear"

# Of a window's side. Padding lets windows be larger than the feature map; spatial pyramids have 13.
_LARGEST_WINDOW = 1024

# src/activations.h
ACTIVATIONS: dict[str, Callable[[Graph, Value], Value]] = {
    "elu": lambda graph, value: graph.node("Elu", value, alpha=1.0),
    "hardtan": lambda graph, value: graph.clip(value, -1, 1),
    "leaky": lambda graph, value: graph.leaky_relu(value, 0.1),
    "loggy": lambda graph, value: graph.node("Tanh", graph.scaled(value, 0.5)),  # 2 / (1 + exp(-x)) - 1
    _LINEAR: lambda graph, value: value,
    "logistic": operator("Sigmoid"),
    "mish": Graph.mish,
    "relie": lambda graph, value: graph.leaky_relu(value, 0.01),
    "relu": operator("Relu"),
    "relu6": lambda graph, value: graph.clip(value, 0, 6),
    "selu": lambda graph, value: graph.node("Selu", value, alpha=1.6732, gamma=1.0507),
    "swish": Graph.swish,
    "tanh": operator("Tanh"),
}


def activation_of(section: Section, default: str) -> str:
    """The activation function of a section, by Darknet's name."""
    name = section.text("activation", default)
    if name not in ACTIVATIONS:
        raise section.error(
            f"activation={name[:40]} is not supported",
            option="activation",
            hints=["supported are " + ", ".join(sorted(ACTIVATIONS))],
        )
    return name


def activation(section: Section, graph: DarknetGraph) -> Value:
    """An activation function on its own."""
    return ACTIVATIONS[activation_of(section, _LINEAR)](graph, graph.before)


def convolutional(section: Section, graph: DarknetGraph) -> Value:
    """A convolution, with a bias or with batch normalisation.

    Dilation spreads the kernel and its padding (AlexeyAB's fork, src/im2col.c).
    """
    section.refuse("antialiasing", "bin_output", "binary", "cbn", "coordconv", "flipped", "xnor")
    section.refuse("rotate", "stretch", "stretch_sway", "sway", "dontload", "dontloadscales")
    section.refuse("share_index", unless="")
    shape = size_of(graph.before)
    filters = section.integer("filters", 1, lowest=1)
    groups = section.integer("groups", 1, lowest=1)
    size = section.integer("size", 1, lowest=1)
    stride = _strides(section)
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
    _check_window(section, size, shape.height + 2 * padding, shape.width + 2 * padding)
    name, raw = _names(graph, activation, normalise=normalise)
    biases = [graph.parameter("bias", (filters,), name), *(_statistics(graph, filters, name) if normalise else ())]
    weight = graph.parameter("kernel", (filters, shape.channels // groups, size, size), raw, gain=_gain(activation))
    operands = [graph.before, weight, *([] if normalise else biases)]
    window: dict[str, Any] = {"kernel_shape": [size] * 2, "strides": stride, "pads": [padding * dilation] * 4}
    value = graph.node("Conv", *operands, name=raw, **window, dilations=[dilation] * 2, group=groups)
    return ACTIVATIONS[activation](graph, _normalised(graph, name, value, biases) if normalise else value)


def connected(section: Section, graph: DarknetGraph) -> Value:
    """A dense layer; in the file, the normalisation's weights follow the matrix."""
    section.refuse("dontload", "dontloadscales")
    inputs = size_of(graph.before).size
    outputs = section.integer("output", 1, lowest=1)
    normalise = section.integer("batch_normalize", 0) != 0
    activation = activation_of(section, "logistic")
    name, raw = _names(graph, activation, normalise=normalise)
    bias = graph.parameter("bias", (outputs,), name)
    matrix = graph.parameter("matrix", (outputs, inputs), raw, gain=_gain(activation))
    statistics = _statistics(graph, outputs, name) if normalise else []
    vector = graph.reshape(graph.before, [inputs])
    product = graph.node("Gemm", vector, matrix, *([] if normalise else [bias]), transB=1)
    value = graph.reshape(product, [outputs, 1, 1], name=raw)
    value = _normalised(graph, name, value, [bias, *statistics]) if normalise else value
    return ACTIVATIONS[activation](graph, value)


def batchnorm(section: Section, graph: DarknetGraph) -> Value:
    """Batch normalisation on its own. AlexeyAB's fork stores biases in the file, the original does not."""
    section.refuse("dontload", "dontloadscales")
    channels = size_of(graph.before).channels
    bias = graph.parameter("bias", (channels,), graph.layer, optional=True)
    return _normalised(graph, graph.layer, graph.before, [bias, *_statistics(graph, channels, graph.layer)])


def _strides(section: Section) -> list[int]:
    stride = section.integer("stride", 1, lowest=1)
    return [section.integer(option, stride, lowest=1) for option in ("stride_y", "stride_x")]


def _check_window(section: Section, size: int, *padded: int) -> None:
    for side in padded:
        if side < size:
            raise section.error(
                f"size={size} is too large", option="size", why=f"its input has {side} pixels there, padding included"
            )


def _statistics(graph: DarknetGraph, channels: int, name: str) -> list[Value]:
    return [graph.parameter(role, (channels,), name) for role in ("scale", "mean", "variance")]


def _names(graph: DarknetGraph, activation: str, *, normalise: bool) -> tuple[str, str]:
    """The names of the node before an activation function, the layer's own without one, and before normalisation."""
    name = graph.layer if activation == _LINEAR else f"{graph.layer}_linear"
    return name, f"{name}_raw" if normalise else name


def _gain(activation: str) -> float:
    """The gain of random weights with which values neither vanish nor explode, however deep the network is.

    Twice the variance makes up for the half that rectifiers cut off (He et al., 2015, arXiv:1502.01852). Linear layers
    are mostly summed with a shortcut, which would double the variance in every block.
    """
    return 0.5 if activation == _LINEAR else 2.0


def _normalised(graph: DarknetGraph, name: str, value: Value, weights: list[Value]) -> Value:
    """Batch normalisation; its weights are bias, scale, mean and variance."""
    bias, scale, mean, variance = weights
    return graph.node("BatchNormalization", value, scale, bias, mean, variance, name=name, epsilon=graph.epsilon)


def softmax(section: Section, graph: DarknetGraph) -> Value:
    """Softmax over all values of an image, or over each of `groups` equal parts."""
    section.refuse("spatial")
    section.refuse("tree", unless="")
    shape = size_of(graph.before)
    groups = section.integer("groups", 1, lowest=1)
    temperature = section.number("temperature", 1.0)
    if shape.size % groups:
        raise section.error(f"groups={groups} does not divide {shape.size} values", option="groups")
    if temperature <= 0:
        raise section.error(f"temperature={temperature:g} is not positive", option="temperature")
    value = graph.reshape(graph.before, [groups, shape.size // groups])
    if temperature != 1:
        value = graph.node("Div", value, graph.floats(temperature))
    return graph.reshape(graph.node("Softmax", value, axis=-1), shape)


def maxpool(section: Section, graph: DarknetGraph) -> Value:
    """The largest value of each window."""
    section.refuse("antialiasing", "maxpool_depth", "maxpool_zero_nonmax")
    return pool(section, graph, "MaxPool")


def upsample(section: Section, graph: DarknetGraph) -> Value:
    """Every pixel `stride` times in both directions; with a negative stride, the sum over each square of pixels."""
    shape = size_of(graph.before)
    stride = section.integer("stride", 2)
    scale = section.number("scale", 1.0)
    side = abs(stride)
    if stride == 0 or (stride < 0 and (shape.height % side or shape.width % side)):
        raise section.error(f"stride={stride} does not divide the feature map", option="stride", why=f"it is {shape}")
    if stride < 0:
        scale *= side * side
    if stride > 0:
        value = graph.resize_nearest(graph.before, graph.floats([1, 1, side, side]))
    else:
        value = graph.node("AveragePool", graph.before, kernel_shape=[side] * 2, strides=[side] * 2)
    return graph.scaled(value, scale)


def reorg(section: Section, graph: DarknetGraph) -> Value:
    """Squares of pixels become channels, in Darknet's own order (`reorg_cpu` in src/blas.c).

    Darknet hands the input's sizes to a function that expects the output's. So the values are taken for a feature
    map of stride x stride times fewer channels and more pixels, whose squares are gathered into channels; and the
    result is taken for a feature map of the right shape. With `reverse`, both are the same.
    """
    section.refuse("extra", "flatten")
    channels, height, width = shape = size_of(graph.before)
    stride = section.integer("stride", 1, lowest=1)
    square = stride * stride
    _check_divides(section, square, shape, channels)
    if section.integer("reverse", 0):
        return graph.node("DepthToSpace", graph.before, blocksize=stride, mode="DCR")
    _check_divides(section, stride, shape, height, width)
    value = graph.reshape(graph.before, [channels // square, height * stride, width * stride])
    value = graph.node("SpaceToDepth", value, blocksize=stride)
    return graph.reshape(value, [channels * square, height // stride, width // stride])


def reorg3d(section: Section, graph: DarknetGraph) -> Value:
    """Squares of pixels become channels: [reorg] of AlexeyAB's fork, with the right sizes."""
    section.refuse("reverse")
    shape = size_of(graph.before)
    stride = section.integer("stride", 1, lowest=1)
    _check_divides(section, stride, shape, shape.height, shape.width)
    return graph.node("SpaceToDepth", graph.before, blocksize=stride)


def _check_divides(section: Section, divisor: int, shape: Shape, *sizes: int) -> None:
    if any(size % divisor for size in sizes):
        stated = section.text("stride", "1")
        raise section.error(f"stride={stated} does not divide its input", option="stride", why=f"it is {shape}")


def pool(section: Section, graph: DarknetGraph, operator: str, **attributes: Any) -> Value:
    """Pooling over windows; `padding` counts the pixels of both sides together, the odd one on the right.

    The first window begins at -padding / 2, rounded towards zero, and (side + padding - size) / stride + 1 fit
    (src/maxpool_layer.c).
    """
    _, height, width = size_of(graph.before)
    stride = _strides(section)
    size = section.integer("size", section.integer("stride", 1), lowest=1)
    if size > _LARGEST_WINDOW:
        raise section.error(f"size={size} is too large", option="size", why=f"{_LARGEST_WINDOW} is the most")
    padding = section.integer("padding", size - 1, lowest=0)
    before, after = padding // 2, padding - padding // 2
    if after >= size:
        why = f"windows of {size} pixels would be outside of the feature map"
        raise section.error(f"padding={padding} is too large", option="padding", why=why)
    _check_window(section, size, height + padding, width + padding)
    pads = [before, before, after, after]
    return graph.node(operator, graph.before, kernel_shape=[size, size], strides=stride, pads=pads, **attributes)

"""Sections with weights: [convolutional], [connected] and [batchnorm]."""

from __future__ import annotations

from edgedeploy.frontends.darknet.activations import LINEAR, activated, activation_of, name_before
from edgedeploy.frontends.darknet.configuration import Section
from edgedeploy.frontends.darknet.graph import DarknetGraph


def convolutional(section: Section, graph: DarknetGraph) -> str:
    """A convolution, with batch normalisation in place of the plain bias where that is asked for.

    Dilation spreads the kernel and its padding (AlexeyAB's fork, src/im2col.c).
    """
    section.refuse("antialiasing", "bin_output", "binary", "cbn", "coordconv", "flipped", "xnor")
    section.refuse("rotate", "stretch", "stretch_sway", "sway", "dontload", "dontloadscales")
    section.refuse("share_index", unless="")
    shape = graph.size(graph.before)
    filters = section.integer("filters", 1, lowest=1)
    groups = section.integer("groups", 1, lowest=1)
    size = section.integer("size", 1, lowest=1)
    stride = strides(section)
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
    check_window(section, size, shape.height + 2 * padding, shape.width + 2 * padding)
    name = name_before(graph, activation)
    raw = f"{name}_raw" if normalise else name
    biases = [graph.parameter("bias", (filters,), name), *(_statistics(graph, filters, name) if normalise else ())]
    kernel = (filters, shape.channels // groups, size, size)
    weight = graph.parameter("kernel", kernel, raw, gain=_gain(activation))
    value = graph.node(
        "Conv",
        graph.before,
        weight,
        *(() if normalise else biases),
        name=raw,
        kernel_shape=[size, size],
        strides=stride,
        pads=[padding * dilation] * 4,
        dilations=[dilation, dilation],
        group=groups,
    )
    return activated(graph, activation, _normalised(graph, name, value, biases) if normalise else value)


def connected(section: Section, graph: DarknetGraph) -> str:
    """Every output from all inputs; here the normalisation's weights stand behind the matrix."""
    section.refuse("dontload", "dontloadscales")
    inputs = graph.size(graph.before).size
    outputs = section.integer("output", 1, lowest=1)
    normalise = section.integer("batch_normalize", 0) != 0
    activation = activation_of(section, "logistic")
    name = name_before(graph, activation)
    raw = f"{name}_raw" if normalise else name
    bias = graph.parameter("bias", (outputs,), name)
    matrix = graph.parameter("matrix", (outputs, inputs), raw, gain=_gain(activation))
    statistics = _statistics(graph, outputs, name) if normalise else []
    vector = graph.reshaped(graph.before, f"{raw}_flat", inputs)
    product = graph.node("Gemm", vector, matrix, *([] if normalise else [bias]), name=f"{raw}_product", transB=1)
    value = graph.reshaped(product, raw, outputs, 1, 1)
    return activated(graph, activation, _normalised(graph, name, value, [bias, *statistics]) if normalise else value)


def batchnorm(section: Section, graph: DarknetGraph) -> str:
    """Batch normalisation on its own. AlexeyAB's fork keeps biases in the file, the original has none."""
    section.refuse("dontload", "dontloadscales")
    channels = graph.size(graph.before).channels
    bias = graph.parameter("bias", (channels,), graph.layer, optional=True)
    return _normalised(graph, graph.layer, graph.before, [bias, *_statistics(graph, channels, graph.layer)])


def strides(section: Section) -> list[int]:
    """The strides over rows and columns."""
    stride = section.integer("stride", 1, lowest=1)
    return [section.integer(option, stride, lowest=1) for option in ("stride_y", "stride_x")]


def check_window(section: Section, size: int, *padded: int) -> None:
    """Check that a window fits into padded sides.

    Raises:
        ModelError: it is larger than one of them.
    """
    for side in padded:
        if side < size:
            raise section.error(
                f"size={size} is too large",
                option="size",
                why=f"what goes in has {side} pixels there, padding included",
            )


def _statistics(graph: DarknetGraph, channels: int, name: str) -> list[str]:
    """Scale, mean and variance of batch normalisation."""
    return [graph.parameter(role, (channels,), name) for role in ("scale", "mean", "variance")]


def _gain(activation: str) -> float:
    """What keeps random networks sane however deep they are.

    Twice the variance makes up for the half that rectifiers cut off (He et al., 2015, arXiv:1502.01852). Linear layers
    are mostly summed with a shortcut, which doubled it in every block if they kept all of it.
    """
    return 0.5 if activation == LINEAR else 2.0


def _normalised(graph: DarknetGraph, name: str, value: str, weights: list[str]) -> str:
    """Batch normalisation; its weights are bias, scale, mean and variance."""
    bias, scale, mean, variance = weights
    return graph.node("BatchNormalization", value, scale, bias, mean, variance, name=name, epsilon=graph.epsilon)

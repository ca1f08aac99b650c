"""Channels that are constant, or that nothing reads, are removed; outputs stay the same."""

from __future__ import annotations

import numpy as np
import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles

DEAD = [0, 3, 4, 11, 19]
CHANNELS = 20


def removed(graph: Graph, *outputs: str) -> list[tuple[int, int]]:
    """How many channels layers had and have, where some are gone; the outputs are onnxruntime's."""
    return [(layer.before, layer.after) for layer in agreeing(graph, *outputs, tolerance=1e-5).removed]


def dead_layer(graph: Graph, data: str, inputs: int, bias: float, **attributes: object) -> str:
    """A convolution to `CHANNELS` channels; the filters of those in `DEAD` are zero, or nearly."""
    weights = graph.random.standard_normal((CHANNELS, inputs, 3, 3)).astype(np.float32) * 0.3
    weights[DEAD] = 1e-40
    biases = graph.random.standard_normal(CHANNELS).astype(np.float32)
    biases[DEAD] = bias
    return graph.node("Conv", data, graph.weight(weights), graph.weight(biases), **attributes)


def image(graph: Graph, channels: int = 3) -> str:
    return graph.input("data", [1, channels, 12, 12])


ALL, LEFT = CHANNELS, CHANNELS - len(DEAD)


def test_a_channel_that_is_zero_after_its_activation_is_removed_before_a_padded_layer() -> None:
    graph = Graph()
    relu = graph.node("Relu", dead_layer(graph, image(graph), 3, -0.5))
    assert removed(graph, graph.conv(relu, ALL, 8, 3, pads=[1, 1, 1, 1])) == [(ALL, LEFT)]


@pytest.mark.parametrize(
    ("kernel", "pads", "expected"),
    [
        (1, [0, 0, 0, 0], [(ALL, LEFT)]),
        (3, [0, 0, 0, 0], [(ALL, LEFT)]),
        # At the border, the sum takes zeros where inside it takes the constant.
        (3, [1, 1, 1, 1], []),
        (3, [0, 0, 0, 1], []),
    ],
)
def test_another_constant_goes_into_the_bias_of_a_layer_without_padding(
    kernel: int, pads: list[int], expected: list
) -> None:
    graph = Graph()
    relu = graph.node("Relu", dead_layer(graph, image(graph), 3, 0.75))
    assert removed(graph, graph.conv(relu, ALL, 8, kernel, pads=pads)) == expected


@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_is_made_where_the_layer_has_none(bias: bool) -> None:
    graph = Graph()
    constant = dead_layer(graph, image(graph), 3, 0.75)
    assert removed(graph, graph.conv(constant, ALL, 8, 1, bias=bias)) == [(ALL, LEFT)]


def between(graph: Graph, data: str) -> dict[str, str]:
    """What may lie between the layer that puts constants out and the one that takes them in."""
    upwards = graph.weight(np.float32([1, 1, 2, 2]))
    return {
        "prelu": graph.node("PRelu", data, graph.normal(ALL, 1, 1)),
        "leaky relu": graph.node("LeakyRelu", data, alpha=0.1),
        "clip": graph.node("Clip", data, graph.weight(np.float32(0)), graph.weight(np.float32(6))),
        "sigmoid": graph.node("Sigmoid", data),
        "tanh": graph.node("Tanh", data),
        "swish": graph.node("Mul", data, graph.node("Sigmoid", data)),
        "batch norm": graph.batch_norm(graph.node("Relu", data), ALL),
        "scale and shift": graph.node("Add", graph.node("Mul", data, graph.normal(1)), graph.normal(1, ALL, 1, 1)),
        "max pool": graph.node("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "average pool": graph.node("AveragePool", data, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "global average pool": graph.node("GlobalAveragePool", data),
        "resize": graph.node("Resize", data, "", upwards, mode="nearest", nearest_mode="floor"),
    }


@pytest.mark.parametrize("name", between(Graph(), "data"))
@pytest.mark.parametrize("bias", [0.0, 0.75, -0.75])
def test_constants_pass_through_what_lies_between(name: str, bias: float) -> None:
    graph = Graph()
    layer = between(graph, dead_layer(graph, image(graph), 3, bias))[name]
    assert removed(graph, graph.conv(layer, ALL, 8, 1)) == [(ALL, LEFT)]


def test_an_average_that_counts_padding_passes_zeros_only() -> None:
    for bias, expected in ((0.0, [(ALL, LEFT)]), (0.5, [])):
        graph = Graph()
        data = dead_layer(graph, image(graph), 3, bias)
        pool = graph.node("AveragePool", data, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
        assert removed(graph, graph.conv(pool, ALL, 8, 1)) == expected


@pytest.mark.parametrize(("bias", "pads", "lost"), [(-0.5, 1, True), (0.5, 0, True), (0.5, 1, False)])
def test_a_depthwise_layer_between(bias: float, pads: int, lost: bool) -> None:
    graph = Graph()
    relu = graph.node("Relu", dead_layer(graph, image(graph), 3, bias))
    depthwise = graph.node("Relu", graph.conv(relu, ALL, ALL, 3, group=ALL, pads=[pads] * 4))
    assert removed(graph, graph.conv(depthwise, ALL, 8, 1)) == ([(ALL, LEFT)] * 2 if lost else [])


def test_filters_of_a_depthwise_layer_that_are_zero() -> None:
    graph = Graph()
    weights = graph.random.standard_normal((ALL, 1, 3, 3)).astype(np.float32)
    weights[DEAD] = 0
    depthwise = graph.node("Conv", graph.conv(image(graph), 3, ALL, 3), graph.weight(weights), group=ALL)
    # What the depthwise layer does not read need not be computed either.
    assert removed(graph, graph.conv(depthwise, ALL, 8, 1)) == [(ALL, LEFT), (ALL, LEFT)]


def test_a_sum_loses_the_channels_that_both_sides_lose() -> None:
    graph = Graph()
    data = image(graph)
    first, second = (dead_layer(graph, data, 3, bias) for bias in (0.5, -0.25))
    both = graph.conv(graph.node("Add", first, second), ALL, 8, 1)
    assert removed(graph, both) == [(ALL, LEFT), (ALL, LEFT)]


def test_a_sum_with_a_side_that_is_not_constant_keeps_its_channels() -> None:
    graph = Graph()
    data = image(graph)
    total = graph.node("Add", dead_layer(graph, data, 3, 0.5), graph.conv(data, 3, ALL, 3))
    assert removed(graph, graph.conv(total, ALL, 8, 1)) == []


def test_concatenated_channels_keep_their_places() -> None:
    graph = Graph()
    data = image(graph)
    parts = [dead_layer(graph, data, 3, 0.5), graph.conv(data, 3, 7, 3), dead_layer(graph, data, 3, -2)]
    joined = graph.node("Relu", graph.node("Concat", *parts, axis=1))
    assert removed(graph, graph.conv(joined, 2 * ALL + 7, 8, 3)) == [(ALL, LEFT), (ALL, LEFT)]


def test_flattened_channels_go_into_the_bias_of_a_fully_connected_layer() -> None:
    graph = Graph()
    pooled = graph.node("MaxPool", dead_layer(graph, image(graph), 3, 0.5), kernel_shape=[5, 5], strides=[5, 5])
    flat = graph.node("Flatten", pooled)
    hidden = graph.node("Gemm", flat, graph.normal(16, ALL * 4), graph.normal(16), transB=1)
    assert removed(graph, graph.node("Relu", hidden)) == [(ALL, LEFT)]


def test_channels_that_no_weight_reads_are_not_computed() -> None:
    graph = Graph()
    weights = graph.random.standard_normal((8, ALL, 1, 1)).astype(np.float32)
    weights[:, DEAD] = 0
    first = graph.node("Relu", graph.conv(image(graph), 3, ALL, 3))
    assert removed(graph, graph.node("Conv", first, graph.weight(weights))) == [(ALL, LEFT)]


def test_channels_that_only_removed_channels_read_are_removed_too() -> None:
    graph = Graph()
    first = graph.node("Relu", graph.conv(image(graph), 3, 4, 1))
    weights = graph.random.standard_normal((ALL, 4, 1, 1)).astype(np.float32)
    weights[:, 2] = 0
    weights[7, 2] = 1  # the only reader of channel 2, that nothing reads
    second = graph.node("Conv", first, graph.weight(weights))
    unread = graph.random.standard_normal((8, ALL, 1, 1)).astype(np.float32)
    unread[:, 7] = 0
    assert removed(graph, graph.node("Conv", second, graph.weight(unread))) == [(4, 3), (ALL, ALL - 1)]


def test_a_tensor_with_another_use_keeps_its_channels() -> None:
    graph = Graph()
    constant = dead_layer(graph, image(graph), 3, 0.5)
    assert removed(graph, graph.conv(constant, ALL, 8, 1), graph.node("Abs", constant)) == []


def test_outputs_keep_their_shapes() -> None:
    graph = Graph()
    assert removed(graph, dead_layer(graph, image(graph), 3, 0.5)) == []


def test_a_network_that_is_constant_altogether_can_be_built() -> None:
    graph = Graph()
    nothing = graph.node("Conv", image(graph), graph.weight(np.zeros((6, 3, 3, 3), np.float32)), graph.normal(6))
    assert removed(graph, graph.conv(graph.node("Relu", nothing), 6, 8, 1)) == [(6, 1)]


def test_channels_that_are_infinite_are_left_alone() -> None:
    graph = Graph()
    weights = graph.random.standard_normal((ALL, 3, 1, 1)).astype(np.float32)
    weights[DEAD] = 0
    absolute = graph.node("Abs", image(graph))
    inverse = graph.node("Div", graph.weight(np.float32(1)), graph.node("Conv", absolute, graph.weight(weights)))
    bounded = graph.node("Clip", inverse, graph.weight(np.float32(-4)), graph.weight(np.float32(4)))
    assert removed(graph, graph.conv(bounded, ALL, 8, 1)) == []

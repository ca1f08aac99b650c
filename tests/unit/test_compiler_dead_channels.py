"""Channels that are constant, or that nothing reads, are removed; outputs stay the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles

DEAD = [0, 3, 4, 11, 19]
CHANNELS = 20


ALL, LEFT = CHANNELS, CHANNELS - len(DEAD)
LOST = (ALL, LEFT)

PADDED = [1, 1, 1, 1]


def removed(graph: Graph, *outputs: str) -> list[tuple[int, int]]:
    """How many channels layers had and have, where some are gone; the outputs are onnxruntime's."""
    return [(layer.before, layer.after) for layer in agreeing(graph, *outputs, tolerance=1e-5).removed]


def image(graph: Graph) -> str:
    return "data" if graph.inputs else graph.input("data", [1, 3, 12, 12])


def filters(graph: Graph, shape: tuple[int, ...], value: float = 0.0, axis: int = 0) -> str:
    """Weights of a convolution; along an axis, those of the channels in `DEAD` have a value."""
    weights = graph.random.standard_normal(shape).astype(np.float32) * np.float32(0.3)
    np.moveaxis(weights, axis, 0)[DEAD] = value
    return graph.weight(weights)


def dead(graph: Graph, bias: float) -> str:
    """A convolution to `CHANNELS` channels; the filters of those in `DEAD` are nearly zero, and they have one bias."""
    biases = graph.random.standard_normal(CHANNELS).astype(np.float32)
    biases[DEAD] = bias
    return graph.node("Conv", image(graph), filters(graph, (CHANNELS, 3, 3, 3), 1e-40), graph.weight(biases))


def relu(graph: Graph, data: str) -> str:
    return graph.node("Relu", data)


def wide(graph: Graph) -> str:
    """A convolution whose channels are all alive."""
    return graph.conv(image(graph), 3, ALL, 3)


def pooled(graph: Graph, bias: float) -> str:
    return graph.node("AveragePool", dead(graph, bias), kernel_shape=[3, 3], pads=PADDED, count_include_pad=1)


def depthwise(graph: Graph, bias: float, pads: int) -> str:
    return relu(graph, graph.conv(relu(graph, dead(graph, bias)), ALL, ALL, 3, group=ALL, pads=[pads] * 4))


def flattened(graph: Graph) -> str:
    flat = graph.node("Flatten", graph.node("MaxPool", dead(graph, 0.5), kernel_shape=[5, 5], strides=[5, 5]))
    return relu(graph, graph.node("Gemm", flat, graph.normal(16, ALL * 4), graph.normal(16), transB=1))


def concatenated(graph: Graph) -> str:
    parts = [dead(graph, 0.5), graph.conv(image(graph), 3, 7, 3), dead(graph, -2)]
    return relu(graph, graph.node("Concat", *parts, axis=1))


def inverted(graph: Graph) -> str:
    """Bounded inverses: those of the channels in `DEAD` were infinite."""
    data = graph.node("Conv", graph.node("Abs", image(graph)), filters(graph, (ALL, 3, 1, 1)))
    bounds = [graph.weight(np.float32(bound)) for bound in (-4, 4)]
    return graph.node("Clip", graph.node("Div", graph.weight(np.float32(1)), data), *bounds)


def read_by_removed_alone(graph: Graph) -> str:
    first = relu(graph, graph.conv(image(graph), 3, 4, 1))
    weights = graph.random.standard_normal((ALL, 4, 1, 1)).astype(np.float32)
    weights[:, 2] = 0
    weights[7, 2] = 1  # the only reader of channel 2, that nothing reads
    second = graph.node("Conv", first, graph.weight(weights))
    unread = graph.random.standard_normal((8, ALL, 1, 1)).astype(np.float32)
    unread[:, 7] = 0
    return graph.node("Conv", second, graph.weight(unread))


def constant(graph: Graph) -> str:
    nothing = graph.node("Conv", image(graph), graph.weight(np.zeros((6, 3, 3, 3), np.float32)), graph.normal(6))
    return graph.conv(relu(graph, nothing), 6, 8, 1)


def then(graph: Graph, data: str, channels: int = ALL, kernel: int = 1, **attributes: object) -> str:
    """A layer that reads them."""
    return graph.conv(data, channels, 8, kernel, **attributes)


CASES: dict[str, tuple[Callable[[Graph], str], list[tuple[int, int]]]] = {
    "zero after its activation, before padding": (
        lambda g: then(g, relu(g, dead(g, -0.5)), kernel=3, pads=PADDED),
        [LOST],
    ),
    "another constant goes into the bias": (lambda g: then(g, relu(g, dead(g, 0.75))), [LOST]),
    "into that of a larger kernel": (lambda g: then(g, relu(g, dead(g, 0.75)), kernel=3), [LOST]),
    # At the border, the sum takes zeros where inside it takes the constant.
    "not where the layer pads": (lambda g: then(g, relu(g, dead(g, 0.75)), kernel=3, pads=PADDED), []),
    "nor on one side": (lambda g: then(g, relu(g, dead(g, 0.75)), kernel=3, pads=[0, 0, 0, 1]), []),
    "a bias that there is": (lambda g: then(g, dead(g, 0.75)), [LOST]),
    "a bias that is made": (lambda g: then(g, dead(g, 0.75), bias=False), [LOST]),
    "an average that counts padding passes zeros": (lambda g: then(g, pooled(g, 0.0)), [LOST]),
    "and no other constants": (lambda g: then(g, pooled(g, 0.5)), []),
    "zeros through a padded depthwise layer": (lambda g: then(g, depthwise(g, -0.5, 1)), [LOST] * 2),
    "constants through a depthwise layer": (lambda g: then(g, depthwise(g, 0.5, 0)), [LOST] * 2),
    "no constants through a padded one": (lambda g: then(g, depthwise(g, 0.5, 1)), []),
    # What the depthwise layer does not read need not be computed either.
    "depthwise filters of zeros": (
        lambda g: then(g, g.node("Conv", wide(g), filters(g, (ALL, 1, 3, 3)), group=ALL)),
        [LOST] * 2,
    ),
    "a sum loses what both sides lose": (lambda g: then(g, g.node("Add", dead(g, 0.5), dead(g, -0.25))), [LOST] * 2),
    "and keeps what one side keeps": (lambda g: then(g, g.node("Add", dead(g, 0.5), wide(g))), []),
    "concatenated channels keep their places": (lambda g: then(g, concatenated(g), 2 * ALL + 7, kernel=3), [LOST] * 2),
    "flattened, into the bias of a fully connected layer": (flattened, [LOST]),
    "what no weight reads": (lambda g: g.node("Conv", relu(g, wide(g)), filters(g, (8, ALL, 1, 1), axis=1)), [LOST]),
    "what only removed channels read": (read_by_removed_alone, [(4, 3), (ALL, ALL - 1)]),
    "outputs keep their shapes": (lambda g: dead(g, 0.5), []),
    "a network that is constant altogether can be built": (constant, [(6, 1)]),
    "infinite channels are left alone": (lambda g: then(g, inverted(g)), []),
}


@pytest.mark.parametrize("name", CASES)
def test_channels_are_removed_where_that_changes_no_output(name: str) -> None:
    graph = Graph()
    make, expected = CASES[name]
    assert removed(graph, make(graph)) == expected


def test_a_tensor_with_another_use_keeps_its_channels() -> None:
    graph = Graph()
    data = dead(graph, 0.5)
    assert removed(graph, then(graph, data), graph.node("Abs", data)) == []


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


@pytest.mark.quick("0.75-*", "*-prelu")
@pytest.mark.parametrize("name", between(Graph(), "data"))
@pytest.mark.parametrize("bias", [0.0, 0.75, -0.75])
def test_constants_pass_through_what_lies_between(name: str, bias: float) -> None:
    graph = Graph()
    assert removed(graph, then(graph, between(graph, dead(graph, bias))[name])) == [LOST]

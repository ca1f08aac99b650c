"""What no output needs is removed: channels that are constant or that nothing reads, and transposes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED
from support.agreement import NETWORKS, agreeing
from support.networks import Graph, begun

from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import lower_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

DEAD = [0, 3, 4, 11, 19]
ALL = 20  # channels
LOST = (ALL, ALL - len(DEAD))
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
    """A convolution to `ALL` channels; the filters of those in `DEAD` are nearly zero, and they have one bias."""
    biases = graph.random.standard_normal(ALL).astype(np.float32)
    biases[DEAD] = bias
    return graph.node("Conv", image(graph), filters(graph, (ALL, 3, 3, 3), 1e-40), graph.weight(biases))


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
    return graph.clip(graph.node("Div", graph.weight(np.float32(1)), data), -4, 4)


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
    return {
        "prelu": graph.node("PRelu", data, graph.normal(ALL, 1, 1)),
        "leaky relu": graph.node("LeakyRelu", data, alpha=0.1),
        "clip": graph.clip(data, 0, 6),
        "sigmoid": graph.node("Sigmoid", data),
        "tanh": graph.node("Tanh", data),
        "swish": graph.node("Mul", data, graph.node("Sigmoid", data)),
        "batch norm": graph.batch_norm(graph.node("Relu", data), ALL),
        "scale and shift": graph.node("Add", graph.node("Mul", data, graph.normal(1)), graph.normal(1, ALL, 1, 1)),
        "max pool": graph.node("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "average pool": graph.node("AveragePool", data, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "global average pool": graph.node("GlobalAveragePool", data),
        "resize": graph.doubled(data, nearest_mode="floor"),
    }


@pytest.mark.quick("0.75-*", "*-prelu")
@pytest.mark.parametrize("name", between(Graph(), "data"))
@pytest.mark.parametrize("bias", [0.0, 0.75, -0.75])
def test_constants_pass_through_what_lies_between(name: str, bias: float) -> None:
    graph = Graph()
    assert removed(graph, then(graph, between(graph, dead(graph, bias))[name])) == [LOST]


# Transposes that move nothing, or that constant weights can take over, are left out.


# What is left: outputs in NCHW; softmax over pairs of channels that a reshape takes from NCHW (RetinaFace).
LEFT = {
    "lite": (1, 0),
    "retinaface_mnet25_316x474": (6, 3),
    "retinaface_mnet25_dyn": (6, 3),
    "yolo-fastest-1.1_320": (2, 0),
    "yolo-lite-voc_224": (1, 0),
}


def left_in(graph: Graph, *outputs: str) -> int:
    """How many transposes are left of a graph, whose outputs are onnxruntime's."""
    return sum(transposes(agreeing(graph, *outputs, tolerance=1e-5)).values())


def convolved(channels: int = 16) -> tuple[Graph, str]:
    graph, data = begun(1, 3, 12, 10)
    return graph, graph.conv(data, 3, channels, 3)


def test_an_image_of_one_pixel_is_not_transposed() -> None:
    graph, data = convolved()
    pooled = graph.node("GlobalAveragePool", data)
    assert left_in(graph, graph.node("Flatten", pooled), pooled) == 0


def test_an_image_of_one_channel_is_not_transposed() -> None:
    graph, data = convolved(channels=1)
    assert left_in(graph, graph.node("Sigmoid", data)) == 0


def test_a_softmax_over_channels_keeps_the_layout() -> None:
    graph, data = convolved()
    assert left_in(graph, graph.conv(graph.node("Softmax", data, axis=1), 16, 8, 1)) == 1


def test_a_transpose_of_the_network_and_that_of_the_layout_cancel() -> None:
    graph, data = convolved()
    assert left_in(graph, graph.reshape(graph.node("Transpose", data, perm=[0, 2, 3, 1]), 1, -1, 4)) == 0


def test_a_fully_connected_layer_reads_a_flattened_image_as_it_lies() -> None:
    graph, data = convolved()
    flat = graph.node("Flatten", graph.node("MaxPool", data, kernel_shape=[2, 2], strides=[2, 2]))
    assert left_in(graph, graph.node("Gemm", flat, graph.normal(10, 16 * 20), graph.normal(10), transB=1)) == 0


def test_it_reads_several_of_them_beside_each_other() -> None:
    graph, first = convolved()
    second = graph.conv(first, 16, 8, 3)
    flat = [graph.node("Flatten", each) for each in (second, graph.node("GlobalAveragePool", first), first)]
    features = 8 * 8 * 6 + 16 + 16 * 10 * 8
    joined = graph.node("Concat", *flat, axis=1)
    assert left_in(graph, graph.node("MatMul", joined, graph.normal(features, 7))) == 0


def test_a_choice_between_values_of_any_rank_follows_the_layout() -> None:
    graph, first = convolved()
    mask = graph.node("Greater", graph.node("ReduceMax", first, axes=[0, 1], keepdims=0), graph.weight(np.float32(0.5)))
    chosen = graph.node("Where", mask, first, graph.weight(np.float32(2)))
    ones = graph.node("Where", mask, graph.weight(np.float32(1)), graph.weight(np.float32(0)))
    assert left_in(graph, graph.conv(chosen, 16, 16, 3), ones) <= 2


def test_a_flattened_image_with_another_reader_keeps_its_order_there() -> None:
    graph, data = convolved()
    flat = graph.node("Flatten", data)
    assert left_in(graph, graph.node("MatMul", flat, graph.normal(16 * 80, 7)), graph.node("Abs", flat)) == 1


@pytest.mark.skipif(not NETWORKS, reason=f"there are no networks in {SHARED / 'models'}")
@pytest.mark.quick("mobilenet_v1_0.25_224_qdq", "pfld")
@pytest.mark.parametrize("path", NETWORKS)
def test_networks_have_no_more_transposes_than_these(path: Path) -> None:
    shapes = {"data": [1, 3, 240, 320]} if path.stem.endswith("_dyn") else None
    left = transposes(lower_network(read_onnx(path, shapes), load_board("local")))
    assert (left["edges"], left["inside"]) == LEFT.get(path.stem, (0, 0))

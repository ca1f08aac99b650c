"""Networks on signals, n x channels x length, and on volumes with a depth, are computed as images are."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.agreement import agreeing
from support.networks import Graph, begun

from edgedeploy.compile.pipeline import Compiled

pytestmark = pytest.mark.compiles

CHANNELS, LENGTH = 16, 50
FEW = 8  # channels of volumes


def convolved(graph: Graph, data: str, outputs: int, *kernel: int, group: int = 1, **attributes: Any) -> str:
    """A convolution of a signal with 16 channels or, with a kernel of three dimensions, of a volume with 8."""
    inputs = CHANNELS if len(kernel) == 1 else FEW
    weights = graph.normal(outputs, inputs // group, *kernel)
    return graph.node("Conv", data, weights, graph.normal(outputs), group=group, **attributes)


def only_at_the_ends(compiled: Compiled) -> bool:
    """Whether convolutions have templates, and transposes are where the network's input and output are."""
    names = {name: template for name, template in compiled.templates.items() if "conv" in name}
    transposes = sum(name.startswith("transpose") for name in compiled.templates)
    return bool(names) and "general" not in names.values() and transposes <= 2


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        (1, {}),
        (3, {"pads": [1, 1]}),
        (9, {"strides": [4]}),
        (3, {"dilations": [8], "pads": [16, 0]}),
        (5, {"group": CHANNELS, "pads": [2, 2]}),
        (3, {"group": 4, "pads": [0, 1]}),
    ],
    ids=str,
)
def test_convolutions(kernel: int, attributes: dict[str, Any]) -> None:
    graph = Graph()
    first = graph.node("Relu", convolved(graph, graph.input("data", [1, CHANNELS, LENGTH]), CHANNELS, 3))
    last = convolved(graph, first, CHANNELS, kernel, **attributes)
    assert only_at_the_ends(agreeing(graph, graph.node("Sigmoid", last)))


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [4], "strides": [3], "pads": [1, 1], "count_include_pad": 1}),
        ("AveragePool", {"kernel_shape": [2]}),
        ("GlobalAveragePool", {}),
        ("GlobalMaxPool", {}),
    ],
)
def test_pools(operator: str, attributes: dict[str, Any]) -> None:
    graph = Graph()
    first = convolved(graph, graph.input("data", [2, CHANNELS, LENGTH]), CHANNELS, 3)
    assert only_at_the_ends(agreeing(graph, graph.node(operator, first, **attributes)))


def test_what_lies_between_convolutions() -> None:
    graph, data = begun(1, CHANNELS, LENGTH)
    first = convolved(graph, data, CHANNELS, 3, pads=[1, 1])
    some = graph.weight(np.abs(np.random.default_rng(3).standard_normal(CHANNELS)).astype(np.float32) + 0.5)
    first = graph.node("BatchNormalization", first, *[some] * 4)
    sloped = graph.node("PRelu", first, graph.normal(CHANNELS, 1))
    gated = graph.node("Mul", graph.node("Tanh", sloped), graph.node("Sigmoid", first))
    residual = graph.node("Add", graph.node("Add", gated, data), graph.normal(1, CHANNELS, 1))
    along = graph.node("Mul", residual, graph.normal(CHANNELS, LENGTH))
    joined = graph.node("Concat", graph.node("Sub", along, graph.normal(LENGTH)), first, axis=1)
    last = graph.node("Conv", joined, graph.normal(8, 2 * CHANNELS, 3))
    assert only_at_the_ends(agreeing(graph, last, graph.node("ReduceMean", last, axes=[2], keepdims=0)))


@pytest.mark.parametrize("shape", [(1, 1, CHANNELS, 48), (2, 1, CHANNELS, 48), (3, 2, CHANNELS, 48)], ids=str)
def test_signals_beside_operands_of_more_dimensions(shape: tuple[int, ...]) -> None:
    graph = Graph()
    first = convolved(graph, graph.input("data", [shape[1], CHANNELS, LENGTH]), CHANNELS, 3)
    agreeing(graph, graph.node("Add", first, graph.normal(*shape)))


def test_convolutions_of_integers() -> None:
    graph = Graph()
    data = graph.node("Cast", graph.input("data", [1, 4, 10]), to=TensorProto.UINT8)
    weights = graph.weight(np.random.default_rng(2).integers(0, 255, (6, 4, 3)).astype(np.uint8))
    agreeing(graph, graph.node("Cast", graph.node("ConvInteger", data, weights), to=TensorProto.FLOAT))


def test_transposed_convolutions() -> None:
    graph = Graph()
    first = convolved(graph, graph.input("data", [1, CHANNELS, 20]), CHANNELS, 3, pads=[1, 1])
    wider = graph.node("ConvTranspose", first, graph.normal(CHANNELS, 8, 4), strides=[2], pads=[1, 1])
    agreeing(graph, graph.node("LeakyRelu", wider, alpha=0.1))


@pytest.mark.parametrize(("weights", "data"), [([8, 16, 3], [1, 16, LENGTH]), ([4, 3, 2, 3, 3], [1, 3, 4, 6, 6])])
def test_weights_that_are_computed(weights: list[int], data: list[int]) -> None:
    graph = Graph()
    scales = graph.normal(weights[0], *[1] * (len(weights) - 1))
    product = graph.node("Mul", graph.input("weights", weights), scales)
    agreeing(graph, graph.node("Conv", graph.input("data", data), product))


# Volumes, n x channels x depth x height x width.


def volume(graph: Graph, batch: int = 1) -> str:
    first = convolved(graph, graph.input("data", [batch, FEW, 6, 9, 7]), FEW, 3, 3, 3, pads=[1] * 6)
    return graph.node("Relu", first)


CONVOLUTIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1), {"strides": [2, 2, 2]}),
    ((3, 3, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 2, 0]}),
    ((3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0], "strides": [2, 1, 1]}),
    ((2, 3, 2), {"dilations": [3, 2, 1]}),
    ((3, 3, 3), {"group": FEW, "pads": [1] * 6}),
    ((3, 2, 3), {"group": 2, "strides": [2, 1, 1]}),
    # Elements of these kernels meet nothing but padding.
    ((5, 1, 1), {"pads": [8, 0, 0, 8, 0, 0], "dilations": [4, 1, 1]}),
    ((7, 3, 3), {"pads": [12, 1, 1, 12, 1, 1], "dilations": [3, 1, 1], "strides": [6, 1, 1]}),
]

POOLS: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2], "ceil_mode": 1}),
    ("MaxPool", {"kernel_shape": [1, 3, 3], "strides": [1, 2, 2], "pads": [0, 1, 1, 0, 1, 1]}),
    ("MaxPool", {"kernel_shape": [3, 1, 1], "pads": [1, 0, 0, 1, 0, 0]}),
    ("AveragePool", {"kernel_shape": [3, 3, 2], "strides": [2, 1, 2], "pads": [1, 1, 0, 1, 1, 1]}),
    ("AveragePool", {"kernel_shape": [3, 3, 3], "pads": [1] * 6, "count_include_pad": 1}),
    ("GlobalAveragePool", {}),
    ("GlobalMaxPool", {}),
    ("ReduceMean", {"axes": [3, 4]}),
    ("ReduceMean", {"axes": [2], "keepdims": 0}),
    ("ReduceMax", {"axes": [4]}),
]


@pytest.mark.parametrize("batch", [1, 2])
def test_convolutions_of_volumes(batch: int) -> None:
    graph = Graph()
    data = volume(graph, batch)
    results = [convolved(graph, data, FEW, *kernel, **attributes) for kernel, attributes in CONVOLUTIONS]
    compiled = agreeing(graph, *(graph.node("Sigmoid", each) for each in results))
    convolutions = {name: template for name, template in compiled.templates.items() if "conv" in name}
    assert "general" not in convolutions.values()
    assert not any("3d" in name for name in compiled.templates)


@pytest.mark.parametrize("batch", [1, 2])
def test_pools_and_reductions_of_volumes(batch: int) -> None:
    graph = Graph()
    data = volume(graph, batch)
    agreeing(graph, *(graph.node(operator, data, **attributes) for operator, attributes in POOLS))


def test_nothing_is_transposed_between_convolutions_of_volumes() -> None:
    graph = Graph()
    data = volume(graph)
    flat = graph.node("Relu", convolved(graph, data, FEW, 1, 3, 3, pads=[0, 1, 1] * 2))
    deep = graph.node("Add", convolved(graph, flat, FEW, 3, 1, 1, pads=[1, 0, 0] * 2), data)
    last = convolved(graph, graph.node("MaxPool", deep, kernel_shape=[2, 2, 2]), FEW, 3, 3, 3)
    assert sum("transpose" in name for name in agreeing(graph, last).templates) <= 2


@pytest.mark.parametrize("batch", [1, 2])
def test_what_lies_between_convolutions_of_volumes(batch: int) -> None:
    graph = Graph()
    data = volume(graph, batch)
    some = graph.weight(np.abs(np.random.default_rng(3).standard_normal(FEW)).astype(np.float32) + 0.5)
    first = graph.node("BatchNormalization", convolved(graph, data, FEW, 3, 1, 1, pads=[1, 0, 0] * 2), *[some] * 4)
    sloped = graph.node("PRelu", first, graph.normal(FEW, 1, 1, 1))
    gated = graph.node("Mul", sloped, graph.node("Sigmoid", graph.node("GlobalAveragePool", sloped)))
    residual = graph.node("Add", graph.node("Add", gated, data), graph.normal(1, FEW, 1, 1, 1))
    along = graph.node("Mul", residual, graph.normal(FEW, 6, 1, 7))
    over = graph.node("Sub", graph.node("Mul", along, graph.normal(6, 1, 1)), graph.normal(9, 7))
    joined = graph.node("Concat", over, data, axis=1)
    last = graph.node("Conv", joined, graph.normal(4, 2 * FEW, 3, 3, 3), pads=[1] * 6)
    agreeing(graph, last, graph.node("Flatten", graph.node("GlobalAveragePool", last)))


def test_slopes_are_of_channels_where_rows_are_as_long() -> None:
    graph = Graph()
    flat = convolved(graph, volume(graph), FEW, 1, 1, 1, pads=[0, 0, 0, 0, 0, 1])
    agreeing(graph, graph.node("PRelu", flat, graph.normal(FEW, 1, 1, 1)))

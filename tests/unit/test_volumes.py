"""Networks on volumes, n x channels x depth x height x width, are computed as images are."""

from typing import Any

import numpy as np
import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles

CHANNELS = 8


def convolved(graph: Graph, data: str, outputs: int, *kernel: int, group: int = 1, **attributes: Any) -> str:
    weights = graph.normal(outputs, CHANNELS // group, *kernel)
    return graph.node("Conv", data, weights, graph.normal(outputs), group=group, **attributes)


def volume(graph: Graph, batch: int = 1) -> str:
    first = convolved(graph, graph.input("data", [batch, CHANNELS, 6, 9, 7]), CHANNELS, 3, 3, 3, pads=[1] * 6)
    return graph.node("Relu", first)


CONVOLUTIONS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1), {"strides": [2, 2, 2]}),
    ((3, 3, 3), {"strides": [2, 1, 2], "pads": [1, 0, 1, 1, 2, 0]}),
    ((3, 1, 1), {"pads": [1, 0, 0, 1, 0, 0], "strides": [2, 1, 1]}),
    ((2, 3, 2), {"dilations": [3, 2, 1]}),
    ((3, 3, 3), {"group": CHANNELS, "pads": [1] * 6}),
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
def test_convolutions(batch: int) -> None:
    graph = Graph()
    data = volume(graph, batch)
    results = [convolved(graph, data, CHANNELS, *kernel, **attributes) for kernel, attributes in CONVOLUTIONS]
    compiled = agreeing(graph, *(graph.node("Sigmoid", each) for each in results))
    convolutions = {name: template for name, template in compiled.templates.items() if "conv" in name}
    assert "general" not in convolutions.values()
    assert not any("3d" in name for name in compiled.templates)


@pytest.mark.parametrize("batch", [1, 2])
def test_pools_and_reductions(batch: int) -> None:
    graph = Graph()
    data = volume(graph, batch)
    agreeing(graph, *(graph.node(operator, data, **attributes) for operator, attributes in POOLS))


def test_nothing_is_transposed_between_convolutions() -> None:
    graph = Graph()
    data = volume(graph)
    flat = graph.node("Relu", convolved(graph, data, CHANNELS, 1, 3, 3, pads=[0, 1, 1] * 2))
    deep = graph.node("Add", convolved(graph, flat, CHANNELS, 3, 1, 1, pads=[1, 0, 0] * 2), data)
    last = convolved(graph, graph.node("MaxPool", deep, kernel_shape=[2, 2, 2]), CHANNELS, 3, 3, 3)
    assert sum("transpose" in name for name in agreeing(graph, last).templates) <= 2


@pytest.mark.parametrize("batch", [1, 2])
def test_what_lies_between_convolutions(batch: int) -> None:
    graph = Graph()
    data = volume(graph, batch)
    some = graph.weight(np.abs(np.random.default_rng(3).standard_normal(CHANNELS)).astype(np.float32) + 0.5)
    first = graph.node("BatchNormalization", convolved(graph, data, CHANNELS, 3, 1, 1, pads=[1, 0, 0] * 2), *[some] * 4)
    sloped = graph.node("PRelu", first, graph.normal(CHANNELS, 1, 1, 1))
    gated = graph.node("Mul", sloped, graph.node("Sigmoid", graph.node("GlobalAveragePool", sloped)))
    residual = graph.node("Add", graph.node("Add", gated, data), graph.normal(1, CHANNELS, 1, 1, 1))
    along = graph.node("Mul", residual, graph.normal(CHANNELS, 6, 1, 7))
    over = graph.node("Sub", graph.node("Mul", along, graph.normal(6, 1, 1)), graph.normal(9, 7))
    joined = graph.node("Concat", over, data, axis=1)
    last = graph.node("Conv", joined, graph.normal(4, 2 * CHANNELS, 3, 3, 3), pads=[1] * 6)
    agreeing(graph, last, graph.node("Flatten", graph.node("GlobalAveragePool", last)))


def test_weights_that_are_computed() -> None:
    graph = Graph()
    weights = graph.node("Mul", graph.input("weights", [4, 3, 2, 3, 3]), graph.normal(4, 1, 1, 1, 1))
    agreeing(graph, graph.node("Conv", graph.input("data", [1, 3, 4, 6, 6]), weights))


def test_slopes_are_of_channels_where_rows_are_as_long() -> None:
    graph = Graph()
    flat = convolved(graph, volume(graph), CHANNELS, 1, 1, 1, pads=[0, 0, 0, 0, 0, 1])
    agreeing(graph, graph.node("PRelu", flat, graph.normal(CHANNELS, 1, 1, 1)))

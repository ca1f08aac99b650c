"""Networks on signals, n x channels x length, are computed as images of one row are."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from support.agreement import agreeing
from support.networks import Graph

from edgedeploy.compile.pipeline import Compiled

pytestmark = pytest.mark.compiles

CHANNELS, LENGTH = 16, 50


def convolved(graph: Graph, data: str, outputs: int, kernel: int, group: int = 1, **attributes: Any) -> str:
    weights = graph.normal(outputs, CHANNELS // group, kernel)
    return graph.node("Conv", data, weights, graph.normal(outputs), group=group, **attributes)


def only_at_the_ends(compiled: Compiled) -> bool:
    """Whether convolutions have templates, and transposes are where the network's input and output are."""
    names = {name: template for name, template in compiled.templates.items() if "conv" in name}
    transposes = sum(name.startswith("transpose") for name in compiled.templates)
    return bool(names) and "general" not in names.values() and transposes <= 2


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel": 1},
        {"kernel": 3, "pads": [1, 1]},
        {"kernel": 9, "strides": [4]},
        {"kernel": 3, "dilations": [8], "pads": [16, 0]},
        {"kernel": 5, "group": CHANNELS, "pads": [2, 2]},
        {"kernel": 3, "group": 4, "pads": [0, 1]},
    ],
    ids=str,
)
def test_convolutions(attributes: dict[str, Any]) -> None:
    graph = Graph()
    first = graph.node("Relu", convolved(graph, graph.input("data", [1, CHANNELS, LENGTH]), CHANNELS, 3))
    assert only_at_the_ends(agreeing(graph, graph.node("Sigmoid", convolved(graph, first, CHANNELS, **attributes))))


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
    graph = Graph()
    data = graph.input("data", [1, CHANNELS, LENGTH])
    first = convolved(graph, data, CHANNELS, 3, pads=[1, 1])
    normal = [graph.weight(np.abs(np.random.default_rng(3).standard_normal(CHANNELS)).astype(np.float32) + 0.5)]
    normal *= 4
    first = graph.node("BatchNormalization", first, *normal)
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


def test_weights_that_are_computed() -> None:
    graph = Graph()
    weights = graph.node("Mul", graph.input("weights", [8, CHANNELS, 3]), graph.normal(8, 1, 1))
    agreeing(graph, graph.node("Conv", graph.input("data", [1, CHANNELS, LENGTH]), weights))

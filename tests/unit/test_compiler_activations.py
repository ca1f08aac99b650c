"""Activations of ONNX between convolutions: in the function of the one before, in its layout, with the right values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from support.agreement import network_of, random_inputs, results_of
from support.networks import Graph

from edgedeploy.compile.output.explain import explain, gigaflops
from edgedeploy.compile.pipeline import compile_network, lower_network
from edgedeploy.target.board import load_board

Activation = Callable[[Graph, str], str]


def scalar(graph: Graph, value: float) -> str:
    return graph.weight(np.array(value, np.float32))


def node(operator: str, *constants: float, **attributes: object) -> Activation:
    return lambda graph, data: graph.node(operator, data, *(scalar(graph, value) for value in constants), **attributes)


def prelu(*shape: int) -> Activation:
    return lambda graph, data: graph.node("PRelu", data, graph.normal(*shape))


def hard_swish_of_older_exporters(graph: Graph, data: str) -> str:
    bounded = node("Clip", 0.0, 6.0)(graph, node("Add", 3.0)(graph, data))
    return node("Div", 6.0)(graph, graph.node("Mul", data, bounded))


def gelu_of_older_exporters(graph: Graph, data: str) -> str:
    error = node("Erf")(graph, node("Div", 2**0.5)(graph, data))
    return node("Mul", 0.5)(graph, graph.node("Mul", data, node("Add", 1.0)(graph, error)))


ACTIVATIONS: dict[str, Activation] = {
    "Abs": node("Abs"),
    "Celu": node("Celu", alpha=0.7),
    "Clip": node("Clip", -1.0, 2.0),
    "Clip to 6": node("Clip", 0.0, 6.0),
    "Clip without an upper bound": node("Clip", -0.5),
    "Elu": node("Elu", alpha=0.8),
    "Erf": node("Erf"),
    "Exp": node("Exp"),
    "Gelu": node("Gelu"),
    "Gelu by tanh": node("Gelu", approximate="tanh"),
    "Gelu of older exporters": gelu_of_older_exporters,
    "HardSigmoid": node("HardSigmoid"),
    "HardSigmoid of PyTorch": node("HardSigmoid", alpha=1 / 6),
    "HardSwish": node("HardSwish"),
    "HardSwish of older exporters": hard_swish_of_older_exporters,
    "LeakyRelu": node("LeakyRelu"),
    "LeakyRelu that falls": node("LeakyRelu", alpha=-0.5),
    "LeakyRelu that is steeper below": node("LeakyRelu", alpha=2.0),
    "Max": lambda graph, data: graph.node("Max", data, graph.node("Neg", data)),
    "Mish": node("Mish"),
    "Neg": node("Neg"),
    "PRelu": prelu(16, 1, 1),
    "PRelu of one slope": prelu(1),
    "Relu": node("Relu"),
    "Selu": node("Selu"),
    "Shrink": node("Shrink", bias=0.2, lambd=0.5),
    "Sigmoid": node("Sigmoid"),
    "Silu": lambda graph, data: graph.node("Mul", data, graph.node("Sigmoid", data)),
    "Softplus": node("Softplus"),
    "Softsign": node("Softsign"),
    "Sqrt": node("Sqrt"),
    "Swish": node("Swish", alpha=1.3),
    "Tanh": node("Tanh"),
    "ThresholdedRelu": node("ThresholdedRelu", alpha=0.5),
}
# What onnxruntime makes of NaN otherwise; of all others it is what is made here.
WITHOUT_NAN = [
    *("Celu", "Clip", "Clip to 6", "Clip without an upper bound", "Elu", "HardSigmoid", "HardSigmoid of PyTorch"),
    *("Relu", "Selu"),
]


@pytest.mark.quick("Clip", "*older exporters", "LeakyRelu", "Mish", "PRelu", "Silu", "Swish")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_fused_and_keeps_layout_and_winograd(name: str) -> None:
    graph = Graph(opset=24 if name == "Swish" else 20)
    value = graph.conv(graph.input("data", [1, 3, 16, 16]), 3, 16, 1)
    value = ACTIVATIONS[name](graph, graph.conv(value, 16, 16, 3, pads=[1] * 4))
    network = network_of(graph, graph.conv(value, 16, 16, 3, pads=[1] * 4))
    found = explain(lower_network(network, load_board("local")))
    # The first convolution reads NCHW as it comes.
    assert found["transposes"] == {"edges": 1, "inside": 0}
    # Nothing else than the convolutions and the transpose of the output.
    templates = [function["template"] for function in found["functions"] for _ in range(function["calls"])]
    assert sorted(templates) == ["convolution", "general", "winograd convolution", "winograd convolution"]
    assert found["slow_operators"] == {}


@pytest.mark.compiles
def test_values_are_onnxruntimes_for_infinities_and_nan_as_well() -> None:
    special = [np.inf, -np.inf, 0.0, 1e-30, -1e-30, 88.8, -88.8, 1e38, -1e38, 3.0, -3.0, 0.5, -0.5, 1e-4, np.nan]
    values = np.concatenate([special, np.linspace(-9, 9, 49)]).astype(np.float32)
    data = np.broadcast_to(values, (1, 16, 1, 64)).copy()
    graph = Graph(opset=24)
    graph.input("data", list(data.shape))
    network = network_of(graph, *(make(graph, "data") for make in ACTIVATIONS.values()))
    results = results_of(compile_network(network, load_board("local")), network, {"data": data})
    for name, (array, wanted) in zip(ACTIVATIONS, results, strict=True):
        compared = ~np.isnan(data) if name in WITHOUT_NAN else np.ones_like(data, bool)
        np.testing.assert_allclose(array[compared], wanted[compared], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.compiles
def test_values_in_the_function_of_a_convolution_are_onnxruntimes() -> None:
    bounded = ["Clip", "Clip to 6", "Clip without an upper bound", "HardSigmoid", "HardSwish", "Max"]
    sloped = ["LeakyRelu", "LeakyRelu that falls", "PRelu", "PRelu of one slope", "Shrink", "ThresholdedRelu"]
    graph = Graph(opset=24)
    graph.input("data", [1, 16, 4, 4])
    names = [*bounded, *sloped, "Celu", "Sigmoid", "Silu", "Swish", "Tanh"]
    outputs = [ACTIVATIONS[name](graph, graph.conv("data", 16, 16, 1)) for name in names]
    network = network_of(graph, *outputs)
    for array, wanted in results_of(compile_network(network, load_board("local")), network, random_inputs(network)):
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.compiles
def test_channels_that_padding_adds_make_no_infinity() -> None:
    """Weights of zero would make NaN of it: six channels are eight in memory."""
    graph = Graph()
    data = graph.conv(graph.input("data", [1, 3, 4, 4]), 3, 6, 1)
    names = [graph.node("Log", graph.node("Abs", data)), *(graph.node(each, data) for each in ("Reciprocal", "Exp"))]
    network = network_of(graph, *(graph.conv(name, 6, 4, 1) for name in names))
    for array, wanted in results_of(compile_network(network, load_board("local")), network, random_inputs(network)):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid"])
def test_the_gate_of_squeeze_and_excitation_is_computed_once(gate: str) -> None:
    graph = Graph()
    data = graph.node("Relu", graph.conv(graph.input("data", [1, 16, 9, 9]), 16, 64, 1))
    squeezed = graph.node("Relu", graph.conv(graph.node("GlobalAveragePool", data), 64, 16, 1))
    excited = graph.node("Mul", graph.node(gate, graph.conv(squeezed, 16, 64, 1)), data)
    network = network_of(graph, graph.conv(excited, 64, 16, 1))
    multiply_adds = 9 * 9 * 16 * 64 * 2 + 64 * 16 * 2
    assert gigaflops(lower_network(network, load_board("local"))) == pytest.approx(2e-9 * multiply_adds, rel=0.1)

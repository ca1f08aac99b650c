"""What `edgedeploy build --explain` tells of functions, transposes, removed channels and fused activations."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from support.agreement import assert_matches_reference, network_of, random_inputs, results_of
from support.commands import json_of, output_of
from support.networks import Graph, begun, of_bytes
from tvm.script import tirx
from unit.test_integer_layers import BOARDS

from edgedeploy.compile.output.explain import Stores, explain, gigaflops, stores_of, transposes
from edgedeploy.compile.pipeline import Lowered, compile_network, lower_network
from edgedeploy.compile.schedules import Template
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board


def lowered(graph: Graph, *outputs: str, board: str = "local") -> Lowered:
    return lower_network(network_of(graph, *outputs), load_board(board))


def test_a_transpose_of_the_network_itself_is_inside() -> None:
    graph, data = begun(1, 6, 9, 9)
    turned = graph.node("Transpose", graph.conv(data, 6, 8, 3), perm=[0, 1, 3, 2])
    product = graph.node("MatMul", turned, graph.normal(7, 5))
    assert transposes(lowered(graph, product))["inside"] == 1


def test_a_transpose_that_only_a_free_reshape_parts_from_an_output_is_at_the_edge() -> None:
    graph, data = begun(1, 16, 9, 9)
    outputs = [graph.conv(data, 16, 8, 3), graph.node("Flatten", graph.conv(data, 16, 16, 3))]
    assert transposes(lowered(graph, *outputs)) == {"edges": 2, "inside": 0}


@pytest.mark.compiles
def test_removed_channels_are_reported_by_layer(command: Command, tmp_path: Path) -> None:
    graph, data = begun(1, 3, 8, 8)
    weights = graph.random.standard_normal((8, 3, 3, 3)).astype(np.float32)
    weights[2:5] = 0
    dead = graph.node("Conv", data, graph.weight(weights), graph.normal(8))
    path = graph.save(tmp_path / "net.onnx", graph.conv(graph.node("Relu", dead), 8, 4, 1))
    [built] = json_of(command, "build", path, "--explain")
    assert built["removed"] == [{"layer": "conv2d 1 (8 x 6 x 6)", "before": 8, "after": 5}]
    out = output_of(command, "build", path, "--explain")
    assert "template" in out
    assert "conv2d 1 (8 x 6 x 6)" in out
    assert out.splitlines()[-1] == "0 fallbacks; 1 transposes at inputs and outputs, 0 inside"


def test_a_function_that_computes_many_values_one_by_one_is_a_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    for count in (401, 5000):
        graph, data = begun(1, count)
        result = graph.node("Abs", data)
        assert [function["fallback"] for function in explain(lowered(graph, result))["functions"]] == [False]
    leave_loops_alone = Template("general", lambda kernel: True, lambda kernel, board: None)
    monkeypatch.setattr("edgedeploy.compile.backends.cpu.CpuBackend.templates", (leave_loops_alone,))
    [function] = explain(lowered(graph, result))["functions"]
    assert (function["template"], function["parallel"], function["fallback"]) == ("general", False, True)


def test_a_signal_is_divided_among_threads_where_it_has_one_row_only() -> None:
    graph, signal = begun(1, 1, 1, 8007)
    result = graph.node("Conv", signal, graph.normal(32, 1, 1, 80), graph.normal(32), strides=[1, 16])
    network = lowered(graph, result, board="rpi4")
    convolution = max(explain(network)["functions"], key=lambda function: float(function["mflop"]))
    assert (convolution["template"], convolution["parallel"]) == ("convolution", True)


def test_a_residual_times_constants_before_a_product_joins_its_epilogue() -> None:
    graph = Graph()
    data = graph.node("Relu", graph.node("MatMul", graph.input("data", [50, 64]), graph.normal(64, 96)))
    scaled = graph.node("Mul", graph.node("Abs", data), graph.normal(96))
    product = graph.node("MatMul", graph.node("Softmax", data), graph.normal(96, 96))
    network = lowered(graph, graph.node("Relu", graph.node("Add", scaled, product)))
    [name] = [name for name in network.templates if "multiply" in name and "matmul" in name]
    assert name.startswith("fused_tir_abs_multiply_matmul")
    assert network.templates[name] == "matmul"
    assert not any(function["fallback"] for function in explain(network)["functions"])


@pytest.mark.compiles
def test_operators_that_are_slow_or_that_no_template_knows_are_named(command: Command, tmp_path: Path) -> None:
    graph, data = begun(1, 4, 8, 8)
    sums = graph.node("CumSum", graph.node("Tan", data), graph.weight(np.array(2, np.int64)))
    path = graph.save(tmp_path / "net.onnx", graph.node("Relu", graph.node("Exp", sums)))
    slow = explain(lower_network(read_onnx(path), load_board("local")))["slow_operators"]
    assert slow == {
        "cumsum": "no template is known to do it well",
        "tan": "on a CPU, a call of the C library for each value",
    }
    out = output_of(command, "build", path, "--explain", "--no-check")
    assert "slow operator: cumsum (no template is known to do it well)" in out.replace("\n", " ")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("serial", Stores(60, 60, 60)), ("vectorized", Stores(60, 0, 0)), ("parallel", Stores(60, 60, 0))],
)
def test_stores_are_counted_by_their_loops(kind: str, expected: Stores) -> None:
    loop = getattr(tirx, kind)

    @tirx.prim_func(s_tir=True)
    def double(x: tirx.Buffer((15, 4), "float32"), y: tirx.Buffer((15, 4), "float32")):
        for i in loop(15):
            for j in tirx.serial(4):
                y[i, j] = x[i, j] * tirx.float32(2)

    assert stores_of(double) == expected


def test_a_loop_whose_length_depends_on_others_counts_as_its_longest() -> None:
    @tirx.prim_func(s_tir=True)
    def triangle(x: tirx.Buffer((15, 15), "float32"), y: tirx.Buffer((15, 15), "float32")):
        for i in tirx.serial(15):
            for j in tirx.serial(i + 1):
                y[i, j] = x[i, j] * tirx.float32(2)

    assert stores_of(triangle) == Stores(225, 225, 225)


@pytest.mark.parametrize(
    ("cpu", "tile", "reason"),
    [
        (
            "haswell",
            r"F\(4x4\), .*, multiply-add of floats, 64 products per cycle",
            r"estimated at 0\.\d\d of .* vpmaddwd",
        ),
        ("cascadelake", r".* pixels x .* channels, vpdpbusd, 128 products per cycle", ""),
    ],
)
def test_why_bytes_are_summed_up_in_float_is_said(cpu: str, tile: str, reason: str) -> None:
    graph, data = of_bytes(1, 32, 40, 40)
    network = network_of(graph, graph.convolution(data, 32, 64))
    network = lower_network(network, BOARDS[cpu].model_copy(update={"devices": []}))
    [layer] = [function for function in explain(network)["functions"] if function["tile"]]
    assert layer["type"] == "uint8"
    assert re.fullmatch(tile, layer["tile"])
    assert re.fullmatch(reason, layer["reason"])


# Activations of ONNX between convolutions: in the function of the one before, in its layout, with the right values.


Activation = Callable[[Graph, str], str]


def node(operator: str, *constants: float, **attributes: object) -> Activation:
    def make(graph: Graph, data: str) -> str:
        return graph.node(operator, data, *(graph.weight(np.float32(value)) for value in constants), **attributes)

    return make


def prelu(*shape: int) -> Activation:
    return lambda graph, data: graph.node("PRelu", data, graph.normal(*shape))


def hard_swish_of_older_exporters(graph: Graph, data: str) -> str:
    bounded = node("Clip", 0.0, 6.0)(graph, node("Add", 3.0)(graph, data))
    return node("Div", 6.0)(graph, graph.node("Mul", data, bounded))


def gelu_of_older_exporters(graph: Graph, data: str) -> str:
    error = node("Erf")(graph, node("Div", 2**0.5)(graph, data))
    return node("Mul", 0.5)(graph, graph.node("Mul", data, node("Add", 1.0)(graph, error)))


BY_NAME = [
    *("Abs", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg", "Relu", "Selu"),
    *("Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"),
]
ACTIVATIONS: dict[str, Activation] = {
    **{name: node(name) for name in BY_NAME},
    "Celu": node("Celu", alpha=0.7),
    "Clip": node("Clip", -1.0, 2.0),
    "Clip to 6": node("Clip", 0.0, 6.0),
    "Clip without an upper bound": node("Clip", -0.5),
    "Elu": node("Elu", alpha=0.8),
    "Gelu by tanh": node("Gelu", approximate="tanh"),
    "Gelu of older exporters": gelu_of_older_exporters,
    "HardSigmoid of PyTorch": node("HardSigmoid", alpha=1 / 6),
    "HardSwish of older exporters": hard_swish_of_older_exporters,
    "LeakyRelu that falls": node("LeakyRelu", alpha=-0.5),
    "LeakyRelu that is steeper below": node("LeakyRelu", alpha=2.0),
    "Max": lambda graph, data: graph.node("Max", data, graph.node("Neg", data)),
    "PRelu": prelu(16, 1, 1),
    "PRelu of one slope": prelu(1),
    "Shrink": node("Shrink", bias=0.2, lambd=0.5),
    "Silu": lambda graph, data: graph.node("Mul", data, graph.node("Sigmoid", data)),
    "Swish": node("Swish", alpha=1.3),
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
    graph, data = begun(1, 3, 16, 16, opset=24 if name == "Swish" else 20)
    value = ACTIVATIONS[name](graph, graph.conv(graph.conv(data, 3, 16, 1), 16, 16, 3, pads=[1] * 4))
    found = explain(lowered(graph, graph.conv(value, 16, 16, 3, pads=[1] * 4)))
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
    graph, _ = begun(*data.shape, opset=24)
    network = network_of(graph, *(make(graph, "data") for make in ACTIVATIONS.values()))
    results = results_of(compile_network(network, load_board("local")), network, {"data": data})
    for name, (array, wanted) in zip(ACTIVATIONS, results, strict=True):
        compared = ~np.isnan(data) if name in WITHOUT_NAN else np.ones_like(data, bool)
        np.testing.assert_allclose(array[compared], wanted[compared], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.compiles
def test_values_in_the_function_of_a_convolution_are_onnxruntimes() -> None:
    bounded = ["Clip", "Clip to 6", "Clip without an upper bound", "HardSigmoid", "HardSwish", "Max"]
    sloped = ["LeakyRelu", "LeakyRelu that falls", "PRelu", "PRelu of one slope", "Shrink", "ThresholdedRelu"]
    graph, data = begun(1, 16, 4, 4, opset=24)
    names = [*bounded, *sloped, "Celu", "Sigmoid", "Silu", "Swish", "Tanh"]
    network = network_of(graph, *(ACTIVATIONS[name](graph, graph.conv(data, 16, 16, 1)) for name in names))
    assert_matches_reference(network, random_inputs(network), rtol=1e-5, atol=1e-6)


@pytest.mark.compiles
def test_channels_that_padding_adds_make_no_infinity() -> None:
    """Weights of zero would make NaN of it: six channels are eight in memory."""
    graph, data = begun(1, 3, 4, 4)
    data = graph.conv(data, 3, 6, 1)
    names = [graph.node("Log", graph.node("Abs", data)), *(graph.node(each, data) for each in ("Reciprocal", "Exp"))]
    network = network_of(graph, *(graph.conv(name, 6, 4, 1) for name in names))
    assert_matches_reference(network, random_inputs(network), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid"])
def test_the_gate_of_squeeze_and_excitation_is_computed_once(gate: str) -> None:
    graph, data = begun(1, 16, 9, 9)
    data = graph.node("Relu", graph.conv(data, 16, 64, 1))
    squeezed = graph.node("Relu", graph.conv(graph.node("GlobalAveragePool", data), 64, 16, 1))
    excited = graph.node("Mul", graph.node(gate, graph.conv(squeezed, 16, 64, 1)), data)
    multiply_adds = 9 * 9 * 16 * 64 * 2 + 64 * 16 * 2
    assert gigaflops(lowered(graph, graph.conv(excited, 64, 16, 1))) == pytest.approx(2e-9 * multiply_adds, rel=0.1)

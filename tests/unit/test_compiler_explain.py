"""What `edgedeploy build --explain` tells of a network's functions, transposes and removed channels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tvm
from conftest import Command
from support.commands import output_of
from support.networks import Graph
from tvm.script import tirx
from unit.test_integer_steps import BOARDS

from edgedeploy.compile.output.explain import Stores, explain, stores_of, transposes
from edgedeploy.compile.pipeline import Lowered, lower_network
from edgedeploy.compile.schedules import Template
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board


def lowered(path: Path, graph: Graph, *outputs: str) -> Lowered:
    return lower_network(read_onnx(graph.save(path / "net.onnx", *outputs)), load_board("local"))


def test_a_transpose_of_the_network_itself_is_inside(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("data", [1, 6, 9, 9])
    turned = graph.node("Transpose", graph.conv(data, 6, 8, 3), perm=[0, 1, 3, 2])
    product = graph.node("MatMul", turned, graph.normal(7, 5))
    assert transposes(lowered(tmp_path, graph, product))["inside"] == 1


def test_a_transpose_that_only_a_free_reshape_parts_from_an_output_is_at_the_edge(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("data", [1, 16, 9, 9])
    outputs = [graph.conv(data, 16, 8, 3), graph.node("Flatten", graph.conv(data, 16, 16, 3))]
    assert transposes(lowered(tmp_path, graph, *outputs)) == {"edges": 2, "inside": 0}


@pytest.mark.compiles
def test_removed_channels_are_reported_by_layer(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    weights = graph.random.standard_normal((8, 3, 3, 3)).astype(np.float32)
    weights[2:5] = 0
    dead = graph.node("Conv", graph.input("data", [1, 3, 8, 8]), graph.weight(weights), graph.normal(8))
    path = graph.save(tmp_path / "net.onnx", graph.conv(graph.node("Relu", dead), 8, 4, 1))
    [built] = json.loads(output_of(command, "build", path, "--explain", "--json"))
    assert built["removed"] == [{"layer": "conv2d 1 (8 x 6 x 6)", "before": 8, "after": 5}]
    out = output_of(command, "build", path, "--explain")
    assert "template" in out
    assert "conv2d 1 (8 x 6 x 6)" in out
    assert out.splitlines()[-1] == "0 fallbacks; 1 transposes at inputs and outputs, 0 inside"


def test_a_function_that_computes_value_by_value_is_a_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph()
    graph.node("Abs", graph.input("data", [1, 5000]))
    assert [function["fallback"] for function in explain(lowered(tmp_path, graph, "abs0"))["functions"]] == [False]
    leave_loops_alone = Template("general", lambda kernel: True, lambda kernel, board: None)
    monkeypatch.setattr("edgedeploy.compile.backends.cpu.CpuBackend.templates", (leave_loops_alone,))
    [function] = explain(lowered(tmp_path, graph, "abs0"))["functions"]
    assert (function["template"], function["parallel"], function["fallback"]) == ("general", False, True)


def test_a_signal_is_divided_among_threads_where_it_has_one_row_only(tmp_path: Path) -> None:
    graph = Graph()
    signal = graph.input("data", [1, 1, 1, 8007])
    result = graph.node("Conv", signal, graph.normal(32, 1, 1, 80), graph.normal(32), strides=[1, 16])
    network = lower_network(read_onnx(graph.save(tmp_path / "net.onnx", result)), load_board("rpi4"))
    convolution = max(explain(network)["functions"], key=lambda function: float(function["mflop"]))
    assert (convolution["template"], convolution["parallel"]) == ("convolution", True)


def test_a_residual_times_constants_before_a_product_joins_its_epilogue(tmp_path: Path) -> None:
    graph = Graph()
    data = graph.node("Relu", graph.node("MatMul", graph.input("data", [50, 64]), graph.normal(64, 96)))
    scaled = graph.node("Mul", graph.node("Abs", data), graph.normal(96))
    product = graph.node("MatMul", graph.node("Softmax", data), graph.normal(96, 96))
    network = lowered(tmp_path, graph, graph.node("Relu", graph.node("Add", scaled, product)))
    [name] = [name for name in network.templates if "multiply" in name and "matmul" in name]
    assert name.startswith("fused_tir_abs_multiply_matmul")
    assert network.templates[name] == "matmul"
    assert not any(function["fallback"] for function in explain(network)["functions"])


def test_a_function_of_few_values_is_no_fallback(tmp_path: Path) -> None:
    graph = Graph()
    network = lowered(tmp_path, graph, graph.node("Abs", graph.input("data", [1, 401])))
    assert [function["fallback"] for function in explain(network)["functions"]] == [False]


@pytest.mark.compiles
def test_operators_that_are_slow_or_that_no_template_knows_are_named(command: Command, tmp_path: Path) -> None:
    graph = Graph()
    data = graph.input("data", [1, 4, 8, 8])
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

    assert isinstance(double, tvm.tirx.PrimFunc)
    assert stores_of(double) == expected


def test_a_loop_whose_length_depends_on_others_counts_as_its_longest() -> None:
    @tirx.prim_func(s_tir=True)
    def triangle(x: tirx.Buffer((15, 15), "float32"), y: tirx.Buffer((15, 15), "float32")):
        for i in tirx.serial(15):
            for j in tirx.serial(i + 1):
                y[i, j] = x[i, j] * tirx.float32(2)

    assert isinstance(triangle, tvm.tirx.PrimFunc)
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
def test_why_bytes_are_summed_up_in_float_is_said(tmp_path: Path, cpu: str, tile: str, reason: str) -> None:
    graph = Graph()
    steps = [graph.weight(np.float32(0.02)), graph.weight(np.uint8(120))]
    data = graph.input("data", [1, 32, 40, 40])
    data = graph.node("DequantizeLinear", graph.node("QuantizeLinear", data, *steps), *steps)
    weights = graph.weight(graph.random.integers(-127, 128, (64, 32, 3, 3)).astype(np.int8))
    weights = graph.node("DequantizeLinear", weights, graph.weight(np.float32(0.01)), graph.weight(np.int8(0)))
    result = graph.node("Conv", data, weights, pads=[1] * 4)
    board = BOARDS[cpu].model_copy(update={"devices": []})
    network = lower_network(read_onnx(graph.save(tmp_path / "net.onnx", result)), board)
    [layer] = [function for function in explain(network)["functions"] if function["tile"]]
    assert layer["type"] == "uint8"
    assert re.fullmatch(tile, layer["tile"])
    assert re.fullmatch(reason, layer["reason"])

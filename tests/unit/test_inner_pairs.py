"""Quantised networks without the roundings inside what is computed in one loop."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.networks import Graph
from support.quantised_networks import FORMS, quantise, random_samples
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.quantisation.quantising import without_inner_pairs
from edgedeploy.target.board import load_board

Make = Callable[[Graph, str], str]


def residual(graph: Graph, data: str) -> str:
    first = graph.node("LeakyRelu", graph.conv(data, 8, 16, 3, pads=[1] * 4), alpha=0.1)
    return graph.node("Add", first, graph.node("LeakyRelu", graph.conv(first, 16, 16, 3, pads=[1] * 4), alpha=0.1))


def gate(graph: Graph, data: str) -> str:
    layer = graph.conv(data, 8, 16, 1)
    return graph.node("Mul", layer, graph.node("Sigmoid", layer))


def bounded(graph: Graph, data: str) -> str:
    """The pair behind the first layer is its ReLU."""
    other = graph.node("MaxPool", graph.conv(data, 8, 16, 1), kernel_shape=[1, 1])
    return graph.node("Add", graph.node("Relu", graph.conv(data, 8, 16, 3, pads=[1] * 4)), other)


def two_layers(graph: Graph, data: str) -> str:
    return graph.node("Add", graph.conv(data, 8, 16, 1), graph.conv(data, 8, 16, 3, pads=[1] * 4))


def excitation(graph: Graph, data: str) -> str:
    layer = graph.conv(data, 8, 16, 1)
    squeezed = graph.conv(graph.node("GlobalAveragePool", layer), 16, 16, 1)
    return graph.node("Mul", layer, graph.node("Sigmoid", squeezed))


def seen_elsewhere(graph: Graph, data: str) -> str:
    layer = graph.conv(data, 8, 16, 1)
    return graph.node("Add", graph.node("LeakyRelu", layer), graph.node("MaxPool", layer, kernel_shape=[1, 1]))


def pairs(folder: Path, make: Make) -> tuple[Path, Path, Path]:
    """A float network; the same with pairs everywhere; and without those inside."""
    graph = Graph(opset=13)
    value = make(graph, graph.input("data", [1, 8, 12, 10]))
    graph.save(folder / "float.onnx", graph.conv(value, 16, 8, 1))
    samples = list(random_samples(folder / "float.onnx"))
    every = quantise(folder / "float.onnx", folder / "every.onnx", FORMS["pairs-u8s8-channels"], samples)
    fewer = without_inner_pairs(onnx.load(every), onnx.load(folder / "float.onnx"))
    onnx.checker.check_model(fewer)
    onnx.save(fewer, folder / "fewer.onnx")
    return folder / "float.onnx", every, folder / "fewer.onnx"


def count(path: Path, operator: str) -> int:
    return sum(node.op_type == operator for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(
    ("make", "gone"), [(residual, 3), (gate, 2), (two_layers, 1), (excitation, 1), (seen_elsewhere, 0), (bounded, 0)]
)
def test_one_loop_has_the_sums_of_one_layer(tmp_path: Path, make: Make, gone: int) -> None:
    _, every, fewer = pairs(tmp_path, make)
    assert count(every, "QuantizeLinear") - count(fewer, "QuantizeLinear") == gone
    assert count(fewer, "QuantizeLinear") > 1


@pytest.mark.compiles
@pytest.mark.parametrize("make", [residual, gate, two_layers])
def test_compiled_code_gives_what_onnxruntime_gives_but_for_what_lies_at_a_half(tmp_path: Path, make: Make) -> None:
    plain, every, fewer = pairs(tmp_path, make)
    compiled = compile_network(read_onnx(fewer), load_board("local"))
    errors = dict.fromkeys((every, fewer), 0.0)
    for sample in random_samples(plain):
        sessions = (cpu_session(path, optimised=False) for path in (plain, every, fewer))
        exact, all_pairs, wanted = (session.run(None, sample)[0] for session in sessions)
        [found] = outputs_of(compiled, sample)
        step = np.unique(wanted)
        assert (found != wanted).mean() < 0.01  # which lie at a half is a matter of the CPU that onnxruntime runs on
        assert np.abs(found - wanted).max() < 1.01 * np.diff(step).min()
        errors[every] += float(np.square(all_pairs - exact).sum())
        errors[fewer] += float(np.square(wanted - exact).sum())
    assert errors[fewer] < errors[every]

"""Pairs of QuantizeLinear and DequantizeLinear round as ONNX says, and cost no transposes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.networks import Graph
from support.running import outputs_of

from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import Compiled, compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles


def rounded(graph: Graph, data: str, scale: object, zero_point: np.ndarray, **attributes: int) -> str:
    """A pair with one scale and zero point, or one for each channel."""
    parameters = [graph.weight(np.asarray(scale, np.float32)), graph.weight(zero_point)]
    quantised = graph.node("QuantizeLinear", data, *parameters, **attributes)
    return graph.node("DequantizeLinear", quantised, *parameters, **attributes)


@pytest.fixture
def compare(tmp_path: Path) -> Callable[..., Compiled]:
    """Compiles a graph; its output must equal onnxruntime's to the last step.

    Without optimisation, which makes integer convolutions of some pairs that do not round halves to even.
    """

    def run(graph: Graph, output: str, data: np.ndarray) -> Compiled:
        network = read_onnx(graph.save(tmp_path / "net.onnx", output))
        compiled = compile_network(network, load_board("local"))
        [wanted] = cpu_session(tmp_path / "net.onnx", optimised=False).run(None, {"data": data})
        [found] = outputs_of(compiled, {"data": data})
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
        return compiled

    return run


@pytest.mark.parametrize("zero_point", [np.uint8(120), np.uint8(0), np.int8(-7), np.uint8(255)])
def test_halves_are_rounded_to_even_and_what_is_too_large_saturates(compare: Callable, zero_point: np.ndarray) -> None:
    graph = Graph()
    data = graph.input("data", [1, 4, 16, 16])
    steps = np.arange(-512, 512, dtype=np.float32).reshape(1, 4, 16, 16) / 2
    compare(graph, rounded(graph, data, 0.25, zero_point), steps * np.float32(0.25))


def test_one_scale_for_each_channel(compare: Callable) -> None:
    graph = Graph()
    data = graph.input("data", [1, 3, 8, 8])
    output = rounded(graph, data, [0.25, 0.01, 3], np.array([0, 9, -3], np.int8), axis=1)
    compare(graph, output, graph.random.standard_normal((1, 3, 8, 8)).astype(np.float32))


def test_a_pair_between_convolutions_needs_no_transpose(compare: Callable) -> None:
    graph = Graph()
    data = graph.input("data", [1, 3, 12, 12])
    # Sums of few small integers: equal in every order of summation.
    first = graph.node("Conv", data, graph.weight(graph.random.integers(-2, 3, (21, 3, 3, 3)).astype(np.float32)))
    pair = rounded(graph, first, 0.5, np.uint8(128))
    second = graph.node("Conv", pair, graph.weight(graph.random.integers(-2, 3, (16, 21, 1, 1)).astype(np.float32)))
    inputs = graph.random.integers(-3, 4, (1, 3, 12, 12)).astype(np.float32) / 4
    compiled = compare(graph, rounded(graph, second, 2, np.int8(0)), inputs)
    assert transposes(compiled) == {"edges": 1, "inside": 0}
    assert not [name for name in compiled.templates if "slice" in name]


def test_weights_that_are_stored_as_integers_become_constants(compare: Callable) -> None:
    graph = Graph()
    data = graph.input("data", [1, 3, 8, 8])
    stored = graph.weight(graph.random.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8))
    scales = graph.weight(np.float32(0.5) ** np.arange(8, dtype=np.float32))
    weights = graph.node("DequantizeLinear", stored, scales, graph.weight(np.zeros(8, np.int8)), axis=0)
    inputs = graph.random.integers(-3, 4, (1, 3, 8, 8)).astype(np.float32)
    compiled = compare(graph, graph.node("Conv", data, weights), inputs)
    assert not [name for name in compiled.templates if "quantize" in name]


def test_a_tensor_that_is_read_with_another_scale(compare: Callable) -> None:
    graph = Graph()
    data = graph.input("data", [1, 3, 8, 8])
    scale, other = graph.weight(np.float32(0.25)), graph.weight(np.float32(0.5))
    zero = graph.weight(np.uint8(7))
    quantised = graph.node("QuantizeLinear", data, scale, zero)
    inputs = graph.random.standard_normal((1, 3, 8, 8)).astype(np.float32)
    compare(graph, graph.node("DequantizeLinear", quantised, other, zero), inputs)

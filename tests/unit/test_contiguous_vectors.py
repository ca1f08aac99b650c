"""Vectors along contiguous memory are loaded whole, whatever dimensions they go through."""

from __future__ import annotations

import numpy as np
import pytest
from support.agreement import network_of
from support.networks import Graph
from support.profiles import x86
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

# The rows of the first are no whole vectors, its channels are.
SHAPES = [(1, 3, 12, 14), (1, 3, 12, 16), (1, 3, 5, 7)]


def quantiser(shape: tuple[int, ...]) -> Graph:
    graph = Graph()
    steps = [graph.weight(np.float32(0.02)), graph.weight(np.uint8(120))]
    graph.node("QuantizeLinear", graph.input("x", list(shape)), *steps)
    return graph


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["haswell", "cascadelake", "rpi4"])
def test_no_value_is_gathered(name: str, shape: tuple[int, ...]) -> None:
    cpus = {"haswell": x86("haswell", 256), "cascadelake": x86("cascadelake", 512)}
    board = (cpus.get(name) or load_board(name)).model_copy(update={"devices": []})
    graph = quantiser(shape)
    code = compile_network(network_of(graph, graph.nodes[-1].output[0]), board).code.inspect("ll")
    assert "insertelement" not in code
    assert "gather" not in code


@pytest.mark.parametrize("shape", SHAPES)
def test_all_values_are_computed(shape: tuple[int, ...]) -> None:
    graph = quantiser(shape)
    network = network_of(graph, graph.nodes[-1].output[0])
    values = np.random.default_rng(0).uniform(-3, 3, shape).astype(np.float32)
    [found] = outputs_of(compile_network(network, load_board("local")), {"x": values})
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, np.clip(np.rint(values / np.float32(0.02)) + 120, 0, 255))


@pytest.mark.parametrize("shape", [(64,), *SHAPES])
def test_conditions_are_combined_whatever_the_vectors(shape: tuple[int, ...]) -> None:
    graph = Graph()
    x = graph.input("x", list(shape))
    large = graph.node("Greater", x, graph.weight(np.float32(0.3)))
    small = graph.node("Less", x, graph.weight(np.float32(-0.3)))
    either = graph.node("Or", graph.node("And", large, small), graph.node("Not", small))
    network = network_of(graph, graph.node("Cast", graph.node("Xor", either, small), to=1))
    values = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    [found] = outputs_of(compile_network(network, load_board("local")), {"x": values})
    np.testing.assert_array_equal(found, 1)

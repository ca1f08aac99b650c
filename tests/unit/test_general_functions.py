"""Functions that are no convolutions give onnxruntime's outputs, whatever their extents."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.networks import Graph
from support.properties import examples
from support.running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.backends.cpu.schedules.general import best_length
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx

EXTENT = st.integers(1, 40)


def _assert_agrees(graph: Graph, output: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        network = read_onnx(graph.save(Path(folder) / "net.onnx", output))
    random = np.random.default_rng(1)
    inputs = {spec.name: random.standard_normal(spec.shape).astype(spec.dtype) for spec in network.inputs}
    [wanted] = network.reference(inputs).values()
    [found] = outputs_of(compile_network(network, load_board("local")), inputs)
    assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max() + 1e-6


@examples(25)
@given(EXTENT, EXTENT, EXTENT, st.sampled_from([(), (2,), (1, 3)]))
@pytest.mark.compiles
def test_any_product_of_matrices(rows: int, inner: int, columns: int, stack: tuple[int, ...]) -> None:
    graph = Graph()
    left, right = graph.input("a", [*stack, rows, inner]), graph.input("b", [*stack, inner, columns])
    _assert_agrees(graph, graph.node("Relu", graph.node("MatMul", left, right)))


@examples(25)
@given(st.lists(EXTENT, min_size=2, max_size=4), st.integers(0, 2), st.tuples(EXTENT, EXTENT))
@pytest.mark.compiles
def test_any_concat(parts: list[int], axis: int, others: tuple[int, int]) -> None:
    graph = Graph()
    shapes = [[*others[:axis], part, *others[axis:]] for part in parts]
    inputs = [graph.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    _assert_agrees(graph, graph.node("Neg", graph.node("Concat", *inputs, axis=axis)))


@examples(25)
@given(st.tuples(EXTENT, EXTENT, EXTENT), st.permutations([0, 1, 2]))
@pytest.mark.compiles
def test_any_transpose(shape: tuple[int, int, int], order: list[int]) -> None:
    graph = Graph()
    _assert_agrees(graph, graph.node("Neg", graph.node("Transpose", graph.input("x", list(shape)), perm=order)))


@examples(25)
@given(st.tuples(EXTENT, EXTENT, EXTENT), st.integers(0, 2))
@pytest.mark.compiles
def test_any_softmax(shape: tuple[int, int, int], axis: int) -> None:
    graph = Graph()
    _assert_agrees(graph, graph.node("Softmax", graph.input("x", list(shape)), axis=axis))


@pytest.mark.parametrize(
    ("extent", "boundaries", "length"),
    [(1024, [], 16), (1001, [], 16), (24, [], 8), (20, [], 4), (13, [], 4), (3, [], 2), (120, [24], 8), (1, [], 1)],
)
def test_vectors_are_as_long_as_leaves_the_least_work(extent: int, boundaries: list[int], length: int) -> None:
    assert best_length(extent, 16, boundaries) == length

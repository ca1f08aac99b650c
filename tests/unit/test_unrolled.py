"""LSTMs that a file has step by step run as loops, and give what onnxruntime makes of the steps."""

from pathlib import Path

import numpy as np
import pytest
from support.networks import Graph
from support.running import outputs_of
from support.unrolled_networks import unrolled_lstm

from edgedeploy.compile.output.explain import functions
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

STEPS, FEATURES, HIDDEN = 5, 6, 8


def unrolled(graph: Graph, batch: int, **others: int) -> tuple[list[str], list[str]]:
    shape = STEPS, batch, FEATURES
    return unrolled_lstm(graph, graph.input("data", [*shape]), shape, HIDDEN, **others)


def templates(graph: Graph, path: Path, *outputs: str) -> list[str | None]:
    """Of all functions, once their results were compared with onnxruntime's."""
    graph.save(path, *outputs)
    network = read_onnx(path)
    compiled = compile_network(network, load_board("local"))
    shape = [int(size) for size in network.inputs[0].shape]
    data = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    session = cpu_session(path)
    for found, wanted in zip(outputs_of(compiled, {"data": data}), session.run(None, {"data": data}), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    return [record["template"] for record in functions(compiled)]


@pytest.mark.parametrize("batch", [1, 3])
def test_an_unrolled_lstm_is_one_loop(tmp_path: Path, batch: int) -> None:
    graph = Graph()
    states, cells = unrolled(graph, batch)
    every = graph.node("Concat", *states, axis=0)
    found = templates(graph, tmp_path / "net.onnx", every, states[-1], cells[-1], states[2])
    assert found.count("recurrence") == 1
    assert found.count("matmul") == 1


def test_states_behind_a_constant_are_concatenated_with_it(tmp_path: Path) -> None:
    graph = Graph()
    states, _ = unrolled(graph, 1)
    every = graph.node("Concat", graph.normal(1, 1, HIDDEN), *states, axis=0)
    assert "recurrence" in templates(graph, tmp_path / "net.onnx", every)


def test_cells_in_between_are_computed_beside_the_loop(tmp_path: Path) -> None:
    graph = Graph()
    states, cells = unrolled(graph, 2)
    assert "recurrence" in templates(graph, tmp_path / "net.onnx", states[-1], cells[1])


@pytest.mark.parametrize("case", [{"odd_step": 3}, {"count": STEPS - 1}], ids=["other weights", "a part of the steps"])
def test_what_is_no_lstm_over_all_steps_stays_as_it_was(tmp_path: Path, case: dict[str, int]) -> None:
    graph = Graph()
    states, _ = unrolled(graph, 1, **case)
    assert "recurrence" not in templates(graph, tmp_path / "net.onnx", states[-1])

"""LSTMs that a file has step by step run as loops, and give what onnxruntime makes of the steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.networks import Graph
from support.running import outputs_of

from edgedeploy.board import load_board
from edgedeploy.compile.explain import functions
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx

pytestmark = pytest.mark.compiles

STEPS, FEATURES, HIDDEN = 5, 6, 8


class Unrolled(Graph):
    """An LSTM as PyTorch's decomposition writes it: zeros before the first step are left out."""

    def slices(self, data: str, axis: int, size: int, count: int) -> list[str]:
        ends = [[self.weight(np.array([place * size])) for place in (index, index + 1)] for index in range(count)]
        return [self.node("Slice", data, *each, self.weight(np.array([axis]))) for each in ends]

    def lstm(self, batch: int, *, odd_step: int | None = None, count: int = STEPS) -> tuple[list[str], list[str]]:
        """States and cells of all steps; one of them may have weights of its own."""
        data = self.input("data", [STEPS, batch, FEATURES])
        products = self.node(
            "Add", self.node("MatMul", data, self.normal(FEATURES, 4 * HIDDEN)), self.normal(4 * HIDDEN)
        )
        weights, bias = self.normal(HIDDEN, 4 * HIDDEN), self.normal(4 * HIDDEN)
        states: list[str] = []
        cells: list[str] = []
        for index, part in enumerate(self.slices(products, 0, 1, STEPS)[:count]):
            own = self.normal(HIDDEN, 4 * HIDDEN) if index == odd_step else weights
            gates = self.node("Add", self.node("MatMul", states[-1], own), bias) if states else bias
            gates = self.node("Add", gates, part)
            given, forget, fresh, output = self.slices(gates, 2, HIDDEN, 4)
            cell = self.node("Mul", self.node("Sigmoid", given), self.node("Tanh", fresh))
            if cells:
                cell = self.node("Add", self.node("Mul", self.node("Sigmoid", forget), cells[-1]), cell)
            cells.append(cell)
            states.append(self.node("Mul", self.node("Sigmoid", output), self.node("Tanh", cell)))
        return states, cells


def templates(graph: Graph, path: Path, *outputs: str) -> list[str | None]:
    """Of all functions, once their results were compared with onnxruntime's."""
    graph.save(path, *outputs)
    network = read_onnx(path)
    compiled = compile_network(network, load_board("local"))
    shape = [int(size) for size in network.inputs[0].shape]
    data = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for found, wanted in zip(outputs_of(compiled, {"data": data}), session.run(None, {"data": data}), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    return [record["template"] for record in functions(compiled)]


@pytest.mark.parametrize("batch", [1, 3])
def test_an_unrolled_lstm_is_one_loop(tmp_path: Path, batch: int) -> None:
    graph = Unrolled()
    states, cells = graph.lstm(batch)
    every = graph.node("Concat", *states, axis=0)
    found = templates(graph, tmp_path / "net.onnx", every, states[-1], cells[-1], states[2])
    assert found.count("recurrence") == 1
    assert found.count("matmul") == 1


def test_cells_in_between_are_computed_beside_the_loop(tmp_path: Path) -> None:
    graph = Unrolled()
    states, cells = graph.lstm(2)
    assert "recurrence" in templates(graph, tmp_path / "net.onnx", states[-1], cells[1])


@pytest.mark.parametrize("case", [{"odd_step": 3}, {"count": STEPS - 1}], ids=["other weights", "a part of the steps"])
def test_what_is_no_lstm_over_all_steps_stays_as_it_was(tmp_path: Path, case: dict[str, int]) -> None:
    graph = Unrolled()
    states, _ = graph.lstm(1, **case)
    assert "recurrence" not in templates(graph, tmp_path / "net.onnx", states[-1])

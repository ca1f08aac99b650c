"""LSTMs that are written step by step."""

from __future__ import annotations

import numpy as np

from support.networks import Graph


def unrolled_lstm(
    graph: Graph, data: str, shape: tuple[int, int, int], hidden: int, *, odd_step: int | None = None, count: int = 0
) -> tuple[list[str], list[str]]:
    """States and cells of all steps, as PyTorch's decomposition writes them: zeros before the first are left out.

    `shape` of `data` is steps x batch x features; `odd_step` has weights of its own; of the steps, `count` are written.
    """
    steps, _, features = shape

    def gates_of(*lengths: int) -> str:
        return graph.normal(*lengths, 4 * hidden)

    products = graph.node("Add", graph.node("MatMul", data, gates_of(features)), gates_of())
    weights, bias = gates_of(hidden), gates_of()
    states: list[str] = []
    cells: list[str] = []
    for index, part in enumerate(_parts(graph, products, 0, 1, steps)[: count or steps]):
        own = gates_of(hidden) if index == odd_step else weights
        gates = graph.node("Add", graph.node("MatMul", states[-1], own), bias) if states else bias
        given, forget, fresh, output = _parts(graph, graph.node("Add", gates, part), 2, hidden, 4)
        cell = graph.node("Mul", graph.node("Sigmoid", given), graph.node("Tanh", fresh))
        if cells:
            cell = graph.node("Add", graph.node("Mul", graph.node("Sigmoid", forget), cells[-1]), cell)
        cells.append(cell)
        states.append(graph.node("Mul", graph.node("Sigmoid", output), graph.node("Tanh", cell)))
    return states, cells


def _parts(graph: Graph, data: str, axis: int, size: int, count: int) -> list[str]:
    ends = [[graph.weight(np.array([place * size])) for place in (index, index + 1)] for index in range(count)]
    return [graph.node("Slice", data, *each, graph.weight(np.array([axis]))) for each in ends]

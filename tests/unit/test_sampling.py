"""Feature maps that are read where a grid says agree with onnxruntime."""

from __future__ import annotations

import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles


def test_grid_sample() -> None:
    graph = Graph(opset=16)
    data, grid = graph.input("data", [2, 3, 7, 10]), graph.input("grid", [2, 5, 9, 2])
    results = [
        graph.node("GridSample", data, grid, mode="bilinear", padding_mode=padding, align_corners=aligned)
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ]
    nearest = graph.node("GridSample", data, grid, mode="nearest", padding_mode="zeros", align_corners=0)
    compiled = agreeing(graph, *results, nearest)
    assert sum(name.startswith("weights") for name in compiled.templates) == 4

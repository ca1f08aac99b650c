"""Products with stacks of constant matrices, which are packed when a network is built, agree with onnxruntime."""

from __future__ import annotations

import pytest
from support.agreement import agreeing
from support.networks import Graph

from edgedeploy.compile.schedules import Scheduled

pytestmark = pytest.mark.compiles


def packs_itself(entry: Scheduled) -> bool:
    """Whether a function packs matrices at every inference."""
    return 'sblock("pack' in entry.function.script()


@pytest.mark.parametrize("columns", [1, 16, 37])
def test_constant_stacks_are_packed_at_build_time(columns: int) -> None:
    graph = Graph()
    data = graph.input("data", [2, 3, 5, 12])
    results = [
        graph.node("MatMul", data, graph.normal(3, 12, columns)),
        graph.node("Relu", graph.node("MatMul", data, graph.normal(2, 1, 12, columns))),
        graph.node("Add", graph.node("MatMul", graph.node("Exp", data), graph.normal(1, 12, columns)), graph.normal(1)),
    ]
    compiled = agreeing(graph, *results)
    products = [entry for entry in compiled.functions.values() if entry.template == "matmul"]
    assert len(products) >= 3
    assert not any(packs_itself(entry) for entry in products)

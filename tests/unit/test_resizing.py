"""Feature maps that are enlarged at the end of a network are interpolated along one axis after the other."""

from __future__ import annotations

import numpy as np
import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles


def enlarged(graph: Graph, mode: str, height: int, width: int, outputs: int = 21) -> str:
    first = graph.node("Conv", graph.input(f"data_{mode}_{outputs}", [1, 4, 9, 7]), graph.normal(outputs, 4, 3, 3))
    sizes = graph.weight(np.array([1, outputs, height, width]))
    return graph.node("Resize", first, "", "", sizes, mode="linear", coordinate_transformation_mode=mode)


def test_every_way_to_find_a_place() -> None:
    graph = Graph()
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    compiled = agreeing(graph, *(enlarged(graph, mode, 14 + index, 5 + 8 * index) for index, mode in enumerate(modes)))
    assert sum(name.startswith("interpolate") for name in compiled.templates) == 8
    assert not any("resize" in name for name in compiled.templates)


def test_what_is_read_elsewhere_or_made_smaller_stays() -> None:
    graph = Graph()
    read_again = enlarged(graph, "half_pixel", 14, 10, 16)
    after = graph.node("Conv", read_again, graph.normal(3, 16, 3, 3))
    compiled = agreeing(graph, read_again, after, enlarged(graph, "half_pixel", 3, 2, 8))
    assert not any(name.startswith("interpolate") for name in compiled.templates)

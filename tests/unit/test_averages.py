"""Means over windows are computed as depthwise convolutions, with whatever is fused to them."""

from __future__ import annotations

from typing import Any

import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles

CHANNELS = 16

POOLS: list[dict[str, Any]] = [
    {"kernel_shape": [3, 3], "pads": [1] * 4},
    {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2], "count_include_pad": 1},
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [2, 5], "pads": [0, 2, 1, 1], "strides": [1, 3]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1},
]


def feature_map(graph: Graph) -> str:
    data = graph.input("data", [1, 3, 12, 10])
    return graph.node("Relu", graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3), pads=[1] * 4))


def test_windows_with_and_without_padding() -> None:
    graph = Graph()
    value = feature_map(graph)
    compiled = agreeing(graph, *(graph.node("AveragePool", value, **attributes) for attributes in POOLS))
    assert sum(template == "depthwise convolution" for template in compiled.templates.values()) == len(POOLS)
    assert not any("pool" in name for name in compiled.templates)


def test_a_pool_minus_its_input_times_a_scale_is_one_function() -> None:
    graph = Graph()
    value = feature_map(graph)
    pool = graph.node("AveragePool", value, kernel_shape=[3, 3], pads=[1] * 4)
    scaled = graph.node("Mul", graph.node("Sub", pool, value), graph.normal(CHANNELS, 1, 1))
    compiled = agreeing(graph, graph.node("Conv", graph.node("Add", value, scaled), graph.normal(4, CHANNELS, 1, 1)))
    [name] = [name for name, template in compiled.templates.items() if template == "depthwise convolution"]
    assert "subtract" in name
    assert "add" in name


def test_means_of_whole_feature_maps_are_none() -> None:
    graph = Graph()
    whole = graph.node("AveragePool", feature_map(graph), kernel_shape=[12, 10])
    compiled = agreeing(graph, graph.node("Sigmoid", whole))
    assert "depthwise convolution" not in compiled.templates.values()

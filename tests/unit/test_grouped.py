"""Norms of groups of channels leave feature maps in the layout that layers read."""

from __future__ import annotations

import numpy as np
import pytest
from support.agreement import agreeing
from support.networks import Graph

pytestmark = pytest.mark.compiles

CHANNELS = 16


def between_layers(graph: Graph, groups: int) -> str:
    """A convolution, a group norm as PyTorch's exporter writes it and a convolution."""
    data = graph.input(f"data_{groups}", [2, 3, 9, 7])
    value = graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3), pads=[1] * 4)
    flat = graph.node("Reshape", value, graph.weight(np.array([0, groups, -1])))
    flat = graph.node("InstanceNormalization", flat, graph.normal(groups), graph.normal(groups), epsilon=1e-3)
    norm = graph.node("Reshape", flat, graph.node("Shape", value))
    scaled = graph.node("Mul", norm, graph.normal(CHANNELS, 1, 1))
    norm = graph.node("Add", scaled, graph.normal(CHANNELS, 1, 1))
    return graph.node("Conv", norm, graph.normal(CHANNELS, CHANNELS, 1, 1))


@pytest.mark.parametrize("groups", [1, 4, CHANNELS])
def test_group_norm_as_exporters_write_it(groups: int) -> None:
    graph = Graph()
    compiled = agreeing(graph, graph.node("ReduceMax", between_layers(graph, groups), axes=[2, 3]))
    convolutions = [name for name, template in compiled.templates.items() if template == "convolution"]
    assert sum("nchw" in name for name in convolutions) == 1  # the network's first layer
    assert not any(name.startswith("fused_transpose") for name in compiled.templates)


def test_values_that_are_flattened_for_good_stay() -> None:
    graph = Graph()
    data = graph.input("data", [1, 3, 9, 7])
    value = graph.node("Conv", data, graph.normal(CHANNELS, 3, 3, 3))
    flat = graph.node("Reshape", value, graph.weight(np.array([1, 4, -1])))
    agreeing(graph, graph.node("Sub", flat, graph.node("ReduceMean", flat, axes=[2])))


def test_feature_maps_that_have_one_shape_only_when_they_are_flattened() -> None:
    graph = Graph()
    data = graph.input("data", [1, 3, 4, 6])
    wide = graph.node("Conv", data, graph.normal(8, 3, 1, 1))
    high = graph.node("Reshape", graph.node("Relu", wide), graph.weight(np.array([1, 8, 8, 3])))
    flat = [graph.node("Reshape", value, graph.weight(np.array([1, 4, -1]))) for value in (wide, high)]
    total = graph.node("Reshape", graph.node("Add", *flat), graph.weight(np.array([1, 8, 4, 6])))
    agreeing(graph, graph.node("Conv", total, graph.normal(4, 8, 1, 1)))


def test_a_constant_for_each_image_of_a_batch_is_none_for_each_group() -> None:
    graph = Graph()
    data = graph.input("data", [4, 3, 4, 6])
    value = graph.node("Conv", data, graph.normal(8, 3, 1, 1))
    flat = graph.node("Reshape", value, graph.weight(np.array([4, 4, -1])))
    flat = graph.node("Mul", flat, graph.normal(4, 1, 1))
    whole = graph.node("Reshape", flat, graph.weight(np.array([4, 8, 4, 6])))
    agreeing(graph, graph.node("Conv", whole, graph.normal(4, 8, 1, 1)))

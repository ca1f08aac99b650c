"""Transposes that move nothing, or that constant weights can take over, are left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED
from support.agreement import agreeing
from support.networks import Graph
from support.shared_networks import NETWORKS

from edgedeploy.compile.output.explain import transposes
from edgedeploy.compile.pipeline import lower_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

# What is left: outputs in NCHW; softmax over pairs of channels that a reshape takes from NCHW (RetinaFace).
LEFT = {
    "lite": (1, 0),
    "retinaface_mnet25_316x474": (6, 3),
    "retinaface_mnet25_dyn": (6, 3),
    "yolo-fastest-1.1_320": (2, 0),
    "yolo-lite-voc_224": (1, 0),
}


def left_in(graph: Graph, *outputs: str) -> int:
    """How many transposes are left of a graph, whose outputs are onnxruntime's."""
    return sum(transposes(agreeing(graph, *outputs, tolerance=1e-5)).values())


def convolved(graph: Graph, channels: int = 16, **attributes: object) -> str:
    return graph.conv(graph.input("data", [1, 3, 12, 10]), 3, channels, 3, **attributes)


def test_an_image_of_one_pixel_is_not_transposed() -> None:
    graph = Graph()
    pooled = graph.node("GlobalAveragePool", convolved(graph))
    assert left_in(graph, graph.node("Flatten", pooled), pooled) == 0


def test_an_image_of_one_channel_is_not_transposed() -> None:
    graph = Graph()
    assert left_in(graph, graph.node("Sigmoid", convolved(graph, channels=1))) == 0


def test_a_softmax_over_channels_keeps_the_layout() -> None:
    graph = Graph()
    assert left_in(graph, graph.conv(graph.node("Softmax", convolved(graph), axis=1), 16, 8, 1)) == 1


def test_a_transpose_of_the_network_and_that_of_the_layout_cancel() -> None:
    graph = Graph()
    turned = graph.node("Transpose", convolved(graph), perm=[0, 2, 3, 1])
    assert left_in(graph, graph.node("Reshape", turned, graph.weight(np.array([1, -1, 4], np.int64)))) == 0


def test_a_fully_connected_layer_reads_a_flattened_image_as_it_lies() -> None:
    graph = Graph()
    pooled = graph.node("MaxPool", convolved(graph), kernel_shape=[2, 2], strides=[2, 2])
    flat = graph.node("Flatten", pooled)
    assert left_in(graph, graph.node("Gemm", flat, graph.normal(10, 16 * 20), graph.normal(10), transB=1)) == 0


def test_it_reads_several_of_them_beside_each_other() -> None:
    graph = Graph()
    first = convolved(graph)
    second = graph.conv(first, 16, 8, 3)
    flat = [graph.node("Flatten", each) for each in (second, graph.node("GlobalAveragePool", first), first)]
    features = 8 * 8 * 6 + 16 + 16 * 10 * 8
    joined = graph.node("Concat", *flat, axis=1)
    assert left_in(graph, graph.node("MatMul", joined, graph.normal(features, 7))) == 0


def test_a_choice_between_values_of_any_rank_follows_the_layout() -> None:
    graph = Graph()
    first = convolved(graph)
    mask = graph.node("Greater", graph.node("ReduceMax", first, axes=[0, 1], keepdims=0), graph.weight(np.float32(0.5)))
    chosen = graph.node("Where", mask, first, graph.weight(np.float32(2)))
    ones = graph.node("Where", mask, graph.weight(np.float32(1)), graph.weight(np.float32(0)))
    assert left_in(graph, graph.conv(chosen, 16, 16, 3), ones) <= 2


def test_a_flattened_image_with_another_reader_keeps_its_order_there() -> None:
    graph = Graph()
    flat = graph.node("Flatten", convolved(graph))
    assert left_in(graph, graph.node("MatMul", flat, graph.normal(16 * 80, 7)), graph.node("Abs", flat)) == 1


@pytest.mark.skipif(not NETWORKS, reason=f"there are no networks in {SHARED / 'models'}")
@pytest.mark.quick("mobilenet_v1_0.25_224_qdq", "pfld")
@pytest.mark.parametrize("path", NETWORKS)
def test_networks_have_no_more_transposes_than_these(path: Path) -> None:
    shapes = {"data": [1, 3, 240, 320]} if path.stem.endswith("_dyn") else None
    left = transposes(lower_network(read_onnx(path, shapes), load_board("local")))
    assert (left["edges"], left["inside"]) == LEFT.get(path.stem, (0, 0))

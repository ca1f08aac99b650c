"""The schedules for OpenCL devices give onnxruntime's outputs, whatever the layers' shapes and the device's sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.networks import Graph

from edgedeploy.building import build
from edgedeploy.compile.backends.opencl.strategy import group_parts, group_size
from edgedeploy.target.resolved import resolve
from edgedeploy.zoo.source import find_source

pytestmark = pytest.mark.compiles

PROFILE = (Path(__file__).parents[2] / "boards" / "local-opencl.yaml").read_text()


def convolutions(graph: Graph) -> list[str]:
    def layer(name: str, inputs: int, size: tuple[int, int], outputs: int, kernel: int, **attributes: Any) -> str:
        return graph.conv(graph.input(name, [1, inputs, *size]), inputs, outputs, kernel, **attributes)

    return [
        layer("pointwise", 32, (14, 14), 64, 1),
        layer("padded", 16, (13, 11), 32, 3, pads=[1, 1, 1, 1]),
        layer("strided", 3, (33, 17), 16, 3, strides=[2, 2], pads=[0, 0, 1, 1]),
        layer("dilated", 8, (12, 12), 16, 3, dilations=[2, 2], pads=[2, 2, 2, 2]),
        layer("grouped", 32, (9, 9), 64, 3, group=4, pads=[1, 1, 1, 1]),
        layer("odd", 5, (9, 11), 7, 3, pads=[1, 1, 1, 1]),
        layer("single", 32, (1, 1), 10, 1),
        layer("depthwise", 24, (15, 12), 24, 3, group=24, strides=[2, 2], pads=[1, 0, 0, 1]),
        layer("wide", 7, (10, 10), 7, 5, group=7, pads=[2, 2, 2, 2]),
    ]


def others(graph: Graph) -> list[str]:
    image, row = graph.input("image", [1, 6, 10, 9]), graph.input("row", [3, 20])
    other = graph.node("Sigmoid", image)
    sizes = graph.weight(np.array([1, 1, 2, 2], np.float32))
    return [
        graph.node("MaxPool", image, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        graph.node("AveragePool", image, kernel_shape=[2, 2], strides=[2, 2]),
        graph.node("ReduceMean", image, axes=[2, 3], keepdims=1),
        graph.node("Softmax", row, axis=1),
        graph.node("Concat", image, other, axis=1),
        graph.node("Transpose", image, perm=[0, 3, 1, 2]),
        graph.node("Resize", image, "", sizes, mode="nearest"),
        graph.node("MatMul", row, graph.normal(20, 12)),
        graph.node("MatMul", row, graph.node("Transpose", row, perm=[1, 0])),
        graph.node("Flatten", graph.node("Add", image, other)),
    ]


@pytest.mark.parametrize(
    "sizes",
    [
        "vector: 4",
        pytest.param("vector: 16, sums: 28, tile_group: 1, units: 2, items: 4", marks=pytest.mark.slow),
        pytest.param("vector: 1, sums: 3, work_group: 256, units: 1, items: 1", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("layers", [convolutions, others])
def test_layers_agree(opencl: Any, layers: Any, sizes: str, tmp_path: Path) -> None:
    graph = Graph(opset=16)
    path = graph.save(tmp_path / "net.onnx", *layers(graph))
    board = tmp_path / "device.yaml"
    board.write_text(PROFILE.replace("kind: generic", f"kind: generic, little_work: 0, {sizes}"))
    built = build(find_source(str(path)), resolve(str(board)), tmp_path / "net.tar.gz")
    assert built.error is not None
    assert built.error <= 1
    assert {template.split()[0] for template in built.compiled.templates.values()} == {"gpu"}


def test_a_work_group_is_whole_inner_loops_and_a_part_of_the_next() -> None:
    assert group_parts([1, 56, 14, 32], group_size(56 * 14 * 32, 64, 16)) == [1, 1, 2, 32]
    # Seven groups for each unit at least.
    assert group_parts([1, 7, 1, 16], group_size(7 * 16, 64, 16)) == [1, 1, 1, 4]
    assert group_parts([3], group_size(3, 64, 16)) == [1]

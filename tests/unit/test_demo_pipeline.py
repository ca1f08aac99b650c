"""From an image to results, with small networks in the place of a demo's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from support.networks import Graph
from support.onnxruntime_runner import OnnxruntimeRunner

from edgedeploy.demo.pipeline import Network, infer
from edgedeploy.demo.spec import DEMOS
from edgedeploy.errors import InputError
from edgedeploy.package.usage import ModelInput

INPUT = ModelInput(name="data", shape=[1, 3, 64, 64])
IMAGE = np.zeros((64, 64, 3), np.uint8)


def heads(*names: str) -> OnnxruntimeRunner:
    """A network with heads of 255 channels, of 2x2 cells the first, of 4x4 the second."""
    graph = Graph()
    data = graph.input("data", [1, 3, 64, 64])
    for name, stride in zip(names, (32, 16), strict=False):
        weights = graph.weight(np.zeros((255, 3, stride, stride), np.float32))
        graph.nodes.append(helper.make_node("Conv", [data, weights], [name], strides=[stride, stride]))
    return OnnxruntimeRunner(graph.model(*names).SerializeToString())


def look(runner: OnnxruntimeRunner, output_names: Sequence[str]) -> int:
    network = Network(DEMOS.load("yolo-fastest"), "", Path(), runner, INPUT, [], output_names)
    return len(infer(IMAGE, network).detections)


def test_as_many_outputs_of_other_names_are_taken_in_the_demos_order() -> None:
    assert look(heads("yolo_122", "yolo_131"), ["output0", "output1"]) == 0


@pytest.mark.parametrize("names", [("yolo_122",), ("output1", "yolo_131"), ("a", "b")])
def test_outputs_that_cannot_be_told_apart_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="it has no output 'output0'"):
        look(heads(*names), ["output0", "output1"] if names != ("a", "b") else [])

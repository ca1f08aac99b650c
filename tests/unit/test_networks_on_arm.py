"""Small quantised networks whole, each function by the code of an ARM board under qemu, give what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.emulated import emulated_outputs
from support.networks import Graph
from support.quantised_networks import FORMS, Inputs, quantise, random_samples

from edgedeploy.compile.pipeline import Lowered, lower_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.target.board import load_board

pytestmark = pytest.mark.compiles

BOARDS = ["rpi3", "rpi4", "rpi5", "rpi-armhf"]


def detector(folder: Path) -> Path:
    """What small detectors are made of: a first layer, depthwise and 1x1 convolutions, a sum, a gate, two scales."""
    graph = Graph(opset=17)
    image = graph.input("data", [1, 3, 32, 48])

    def bounded(value: str) -> str:
        return graph.node("Clip", value, graph.weight(np.float32(0)), graph.weight(np.float32(6)))

    def separable(value: str, inputs: int, outputs: int, strides: int = 1) -> str:
        depthwise = graph.conv(value, inputs, inputs, 3, group=inputs, pads=[1] * 4, strides=[strides] * 2)
        return graph.conv(bounded(depthwise), inputs, outputs, 1)

    second = bounded(separable(bounded(graph.conv(image, 3, 8, 3, pads=[1] * 4, strides=[2, 2])), 8, 16))
    third = graph.node("Add", separable(second, 16, 16), second)
    gate = graph.node("Sigmoid", graph.conv(graph.node("GlobalAveragePool", third), 16, 16, 1))
    fine = graph.node("Mul", third, gate)
    coarse = graph.node("LeakyRelu", separable(fine, 16, 40, 2), alpha=0.1)
    wide = graph.conv(
        graph.node("Relu", graph.conv(coarse, 40, 24, 3, pads=[1] * 4)), 24, 24, 5, group=24, pads=[2] * 4
    )
    sizes = graph.weight(np.float32([1, 1, 2, 2]))
    pyramid = graph.node("Concat", graph.node("Resize", wide, "", sizes, mode="nearest"), fine, axis=1)
    boxes = graph.conv(pyramid, 40, 12, 1)
    classes = graph.node("Gemm", graph.node("Flatten", graph.node("GlobalAveragePool", wide)), graph.normal(24, 11))
    return graph.save(folder / "float.onnx", boxes, classes, graph.node("Softmax", classes))


NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "int8": ("pairs-s8s8-channels", {}),
    "uint8": ("pairs-u8u8", {}),
    "layers-only": ("pairs-s8s8-channels", {"op_types_to_quantize": ["Conv", "Gemm"]}),
}


@pytest.mark.quick("int8-rpi3", "layers-only-rpi4", "uint8-rpi-armhf")  # each network
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_gives_what_onnxruntime_gives(tmp_path: Path, board: str, kind: str) -> None:
    form, options = NETWORKS[kind]
    source = detector(tmp_path)
    path = quantise(source, tmp_path / "net.onnx", FORMS[form], random_samples(source), **options)
    [sample, *_] = random_samples(source)
    lowered = lower_network(read_onnx(path), load_board(board))
    assert len(integer_layers(lowered)) >= 8  # and four depthwise ones, as the board's cost says
    outputs = emulated_outputs(lowered, load_board(board), sample, tmp_path)
    for found, wanted in zip(outputs, reference(path, sample), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # onnxruntime's softmax of uint8 rounds its exponentials to integers.
        step = 1.01 / 255 if form == "pairs-u8u8" and found is outputs[-1] else 0
        np.testing.assert_allclose(found, wanted, rtol=0, atol=step)


def integer_layers(lowered: Lowered) -> list[str]:
    return [name for name, each in lowered.functions.items() if each.template.startswith("integer")]


def reference(path: Path, sample: Inputs) -> list[np.ndarray]:
    return cpu_session(path).run(None, dict(sample))

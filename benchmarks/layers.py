"""Networks of one layer with seeded random weights, as `layers.yaml` lists them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import yaml
from onnx import TensorProto, helper, numpy_helper

from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.network import Network

OPSET = 13


@dataclass(frozen=True)
class Layer:
    """A convolution, or a fully connected layer where there is no feature_map, with a bias and a ReLU.

    Attributes:
        inputs, outputs: channels.
        feature_map: height and width of the input.
        kernel, stride: the same down and across.
        groups: as many equal groups of channels, each of which is convolved by itself.
    """

    inputs: int
    outputs: int
    feature_map: tuple[int, int] | None = None
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    def model(self, seed: int = 0) -> onnx.ModelProto:
        """The layer as a network; equal seeds give equal weights.

        A layer of more channels than a feature_map's follows a resize, so that it reads what a layer inside of a
        network does: values whose channels are neighbours in memory.
        """
        random = np.random.default_rng(seed)
        kernel = [] if self.feature_map is None else [self.kernel] * 2
        shape = (self.outputs, self.inputs // self.groups, *kernel)
        scale = np.prod(shape[1:]) ** -0.5
        constants = {"weights": random.normal(0, scale, shape), "bias": random.normal(0, 0.1, self.outputs)}
        weights = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
        nodes, data, size = [], "data", [1, self.inputs]
        if self.feature_map is None:
            nodes.append(helper.make_node("Gemm", [data, "weights", "bias"], ["sum"], transB=1))
        else:
            size += self.feature_map
            if self.inputs > 3:
                weights.append(numpy_helper.from_array(np.array(size, np.int64), "sizes"))
                nodes.append(helper.make_node("Resize", [data, "", "", "sizes"], ["resized"], mode="nearest"))
                data, size = "resized", [1, self.inputs, 1, 1]
            attributes = {"strides": [self.stride] * 2, "pads": [self.kernel // 2] * 4, "group": self.groups}
            nodes.append(helper.make_node("Conv", [data, "weights", "bias"], ["sum"], **attributes))
        nodes.append(helper.make_node("Relu", ["sum"], ["result"]))
        given, result = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("data", size), ("result", None))
        )
        graph = helper.make_graph(nodes, "layer", [given], [result], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return onnx.shape_inference.infer_shapes(model)


def read_layers() -> dict[str, Layer]:
    """The layers of `layers.yaml`, by name."""
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return {name: Layer(**fields) for name, fields in yaml.safe_load(text).items()}


def networks(paths: Sequence[Path]) -> Iterator[tuple[str, Network]]:
    """The networks of ONNX files by their names, or, without any, the layers of `layers.yaml`."""
    yield from ((path.name, read_onnx(path)) for path in paths)
    if paths:
        return
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        path = Path(folder) / "layer.onnx"
        for name, layer in read_layers().items():
            onnx.save(layer.model(), path)
            yield name, read_onnx(path)

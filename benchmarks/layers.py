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
from edgedeploy.model.network import Network

OPSET = 13

# Scales and zero points of what a quantised layer reads and gives.
GIVEN, RESULT = (np.float32(4 / 127), np.int8(3)), (np.float32(4 / 127), np.int8(-128))


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


def quantised(layer: onnx.ModelProto) -> onnx.ModelProto:
    """A layer of int8, as it lies inside of a network: it reads and gives bytes, its weights have scales by channel."""
    values = {each.name: numpy_helper.to_array(each) for each in layer.graph.initializer}
    weights = values["weights"]
    scales = (np.abs(weights).reshape(len(weights), -1).max(axis=1) / 127).astype(np.float32)
    constants = {
        "weights/bytes": np.rint(weights / scales.reshape(-1, *[1] * (weights.ndim - 1))).astype(np.int8),
        "weights/scales": scales,
        "bias/sums": np.rint(values["bias"] / (scales * GIVEN[0])).astype(np.int32),
        "bias/scales": scales * GIVEN[0],
        **dict(zip(("given/scale", "given/zero"), GIVEN, strict=True)),
        **dict(zip(("result/scale", "result/zero"), RESULT, strict=True)),
        **{name: value for name, value in values.items() if name == "sizes"},
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["weights/bytes", "weights/scales"], ["weights"], axis=0),
        helper.make_node("DequantizeLinear", ["bias/sums", "bias/scales"], ["bias"], axis=0),
    ]

    def rounded(name: str) -> None:
        steps = ["given/scale", "given/zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *steps], [f"{name}/bytes"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}/bytes", *steps], [f"{name}/rounded"]))

    rounded("data")
    for node in layer.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[0] = f"{node.input[0]}/rounded" if node.op_type != "Relu" else node.input[0]
        nodes.append(copy)
        if node.op_type == "Resize":
            rounded(node.output[0])
    nodes.append(helper.make_node("QuantizeLinear", ["result", "result/scale", "result/zero"], ["bytes"]))
    [result] = layer.graph.output
    sizes = [each.dim_value for each in result.type.tensor_type.shape.dim]
    graph = helper.make_graph(
        nodes,
        "layer of int8",
        layer.graph.input,
        [helper.make_tensor_value_info("bytes", TensorProto.INT8, sizes)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=layer.opset_import)
    model.ir_version = layer.ir_version
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

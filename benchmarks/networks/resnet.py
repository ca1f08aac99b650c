"""Writes ResNets as ONNX files with seeded random weights: `python benchmarks/networks/resnet.py 18 resnet18.onnx`.

The networks are those of He et al., "Deep Residual Learning for Image Recognition" (2015): where a stage halves
the picture, the first convolution of its first block does. Weights are random, as speed does not depend on them;
they are drawn as in He et al., "Delving Deep into Rectifiers" (2015), and the statistics of each batch normalisation
are about those of its convolution's outputs, so that activations neither vanish nor overflow.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES = 1000
OPSET = 13
EPSILON = 1e-5

# Blocks in each of the four stages, and whether blocks are bottlenecks.
DEPTHS = {18: ([2, 2, 2, 2], False), 34: ([3, 4, 6, 3], False), 50: ([3, 4, 6, 3], True), 101: ([3, 4, 23, 3], True)}

# Of a value that is normally distributed around zero, half of the square's mean is left after a ReLU.
RELU_GAIN = 0.5


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: its name, its channels, and the mean of its squares as expected."""

    name: str
    channels: int
    power: float


class ResNet:
    """A graph that grows layer by layer.

    Args:
        depth: 18, 34, 50 or 101 layers with weights.
        size: height and width of the picture in pixels.
        seed: seed of the weights.
    """

    def __init__(self, depth: int, size: int = 224, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._depth = depth
        self._size = size

    def model(self) -> onnx.ModelProto:
        """The network: input `data` of 1x3xSIZExSIZE, output `logits` of 1x1000."""
        blocks, bottleneck = DEPTHS[self._depth]
        # Inputs are taken to be of unit power, as normalised pictures are.
        value = self._relu(self._conv(Value("data", 3, 1.0), 64, 7, stride=2))
        value = self._node("MaxPool", [value], value, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                value = self._block(value, 64 << stage, stride, bottleneck)
        value = self._node("GlobalAveragePool", [value], value)
        value = self._node("Flatten", [value], value)
        weights = self._weight(self._random.normal(0, value.channels**-0.5, (CLASSES, value.channels)))
        bias = self._weight(self._random.normal(0, 0.01, CLASSES))
        self._nodes.append(helper.make_node("Gemm", [value.name, weights, bias], ["logits"], name="logits", transB=1))
        data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, self._size, self._size])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
        graph = helper.make_graph(self._nodes, f"resnet{self._depth}", [data], [logits], self._weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model

    def _block(self, value: Value, width: int, stride: int, bottleneck: bool) -> Value:
        if bottleneck:
            channels = 4 * width
            branch = self._relu(self._conv(value, width, 1, stride))
            branch = self._relu(self._conv(branch, width, 3))
            branch = self._conv(branch, channels, 1)
        else:
            channels = width
            branch = self._relu(self._conv(value, width, 3, stride))
            branch = self._conv(branch, channels, 3)
        shortcut = value if stride == 1 and value.channels == channels else self._conv(value, channels, 1, stride)
        total = Value("", channels, branch.power + shortcut.power)
        return self._relu(self._node("Add", [branch, shortcut], total))

    def _conv(self, value: Value, channels: int, kernel: int, stride: int = 1) -> Value:
        """A convolution without bias and its batch normalisation, after which values have about unit power."""
        inputs = value.channels * kernel * kernel
        weights = self._weight(self._random.normal(0, (2 / inputs) ** 0.5, (channels, value.channels, kernel, kernel)))
        pad = kernel // 2
        after = Value("", channels, 2 * value.power)
        after = self._node(
            "Conv", [value], after, weights, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4
        )
        gamma, beta = self._random.uniform(0.5, 1.2, channels), self._random.normal(0, 0.1, channels)
        mean = self._random.normal(0, 0.1, channels) * after.power**0.5
        variance = after.power * self._random.uniform(0.8, 1.25, channels)
        statistics = [self._weight(array) for array in (gamma, beta, mean, variance)]
        power = float((gamma**2).mean())
        return self._node("BatchNormalization", [after], Value("", channels, power), *statistics, epsilon=EPSILON)

    def _relu(self, value: Value) -> Value:
        return self._node("Relu", [value], Value("", value.channels, value.power * RELU_GAIN))

    def _node(self, operator: str, values: list[Value], result: Value, *weights: str, **attributes: object) -> Value:
        """Add a node; its output is `result` under the node's name."""
        name = f"{operator.lower()}{len(self._nodes)}"
        names = [value.name for value in values]
        self._nodes.append(helper.make_node(operator, [*names, *weights], [name], name=name, **attributes))
        return Value(name, result.channels, result.power)

    def _weight(self, array: np.ndarray) -> str:
        name = f"weight{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name


def write(path: Path, depth: int, size: int = 224, seed: int = 0) -> None:
    """Write the ResNet of `depth` layers to `path`; equal arguments give equal files."""
    path.write_bytes(ResNet(depth, size, seed).model().SerializeToString(deterministic=True))


def main() -> None:
    """Write the network that the command line asks for."""
    parser = argparse.ArgumentParser(description="Write a ResNet v1 with seeded random weights as ONNX.")
    parser.add_argument("depth", type=int, choices=list(DEPTHS))
    parser.add_argument("path", type=Path)
    parser.add_argument("--size", type=int, default=224, help="height and width of the picture (224)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (0)")
    arguments = parser.parse_args()
    write(arguments.path, arguments.depth, arguments.size, arguments.seed)


if __name__ == "__main__":
    main()

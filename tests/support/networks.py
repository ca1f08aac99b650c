"""Small ONNX networks that tests build, with seeded weights."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """An ONNX graph that grows node by node; every tensor is named after its node."""

    def __init__(self, seed: int = 0, opset: int = 13) -> None:
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []

    def input(self, name: str, shape: list[Any], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int, scale: float = 0.3) -> str:
        return self.weight((self.random.standard_normal(shape) * scale).astype(np.float32))

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"{operator.lower()}{len(self.nodes)}"
        names = [name, *(f"{name}_{index}" for index in range(1, outputs))]
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=name, **attributes))
        return name

    def conv(self, data: str, inputs: int, outputs: int, kernel: int, bias: bool = True, **attributes: Any) -> str:
        weights = self.normal(outputs, inputs // attributes.get("group", 1), kernel, kernel)
        extra = [self.normal(outputs)] if bias else []
        return self.node("Conv", data, weights, *extra, **attributes)

    def reshape(self, data: str, *shape: int) -> str:
        return self.node("Reshape", data, self.weight(np.array(shape, np.int64)))

    def slice(self, data: str, start: int, end: int, axis: int) -> str:
        return self.node("Slice", data, *(self.weight(np.array([value])) for value in (start, end, axis)))

    def clip(self, data: str, low: float, high: float) -> str:
        return self.node("Clip", data, *(self.weight(np.float32(bound)) for bound in (low, high)))

    def doubled(self, data: str, mode: str = "nearest", **attributes: Any) -> str:
        """Feature maps of twice the height and width."""
        return self.node("Resize", data, "", self.weight(np.float32([1, 1, 2, 2])), mode=mode, **attributes)

    def batch_norm(self, data: str, channels: int) -> str:
        positive = [self.weight(self.random.uniform(0.5, 2, channels).astype(np.float32)) for _ in range(2)]
        gamma, variance = positive
        return self.node("BatchNormalization", data, gamma, self.normal(channels), self.normal(channels), variance)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The graph of what the outputs need."""
        needed, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed |= set(node.input)
                nodes.insert(0, node)
        weights = [weight for weight in self.weights if weight.name in needed]
        values = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph(nodes, "test", self.inputs, values, weights)
        domains = [helper.make_opsetid(domain, 1) for domain in sorted({node.domain for node in nodes} - {""})]
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset), *domains])
        model.ir_version = 8
        model = onnx.shape_inference.infer_shapes(model)
        for value in model.graph.output:
            if not value.HasField("type"):  # of an operator that ONNX does not know
                value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, None))
        return model

    def save(self, path: Path, *outputs: str) -> Path:
        onnx.save(self.model(*outputs), path)
        return path


def begun(*shape: Any, opset: int = 13) -> tuple[Graph, str]:
    """A graph and its input, `data`."""
    graph = Graph(opset=opset)
    return graph, graph.input("data", list(shape))


class Quantised(Graph):
    """Pairs of QuantizeLinear and DequantizeLinear, and weights in bytes."""

    def pair(self, data: str, scale: Any, zero_point: Any, **attributes: int) -> str:
        """One scale and zero point, or one for each channel."""
        quantised = self.quantised(data, scale, zero_point, **attributes)
        return self.node("DequantizeLinear", quantised, *self.steps, **attributes)

    def quantised(self, data: str, scale: Any, zero_point: Any, **attributes: int) -> str:
        self.steps = [self.weight(np.asarray(scale, np.float32)), self.weight(np.asarray(zero_point))]
        return self.node("QuantizeLinear", data, *self.steps, **attributes)

    def stored(self, values: np.ndarray, scale: Any, zero_point: Any = 0, axis: int = 0) -> str:
        scale = np.asarray(scale, np.float32)
        zero = np.full(scale.shape, zero_point, values.dtype)
        parameters = [self.weight(each) for each in (values, scale, zero)]
        return self.node("DequantizeLinear", *parameters, axis=axis)

    def random_bytes(self, *shape: int, scale: Any = 0.004) -> str:
        return self.stored(self.random.integers(-127, 128, shape).astype(np.int8), scale)

    def convolution(self, data: str, inputs: int, outputs: int, **attributes: Any) -> str:
        return self.node("Conv", data, self.random_bytes(outputs, inputs, 3, 3), pads=[1] * 4, **attributes)


def of_bytes(*shape: int) -> tuple[Quantised, str]:
    """A graph and its input in bytes."""
    graph = Quantised()
    return graph, graph.pair(graph.input("data", [*shape]), 0.02, np.uint8(120))


def tiny(path: Path) -> Path:
    """An image-sized-8 network that compiles in a second: convolution, ReLU, global mean."""
    graph = Graph()
    data = graph.input("data", [1, 3, 8, 8])
    relu = graph.node("Relu", graph.conv(data, 3, 8, 3, pads=[1, 1, 1, 1]))
    return graph.save(path, graph.node("GlobalAveragePool", relu))


def two_sides(path: Path) -> Path:
    """A network that an OpenCL board's device and CPU share: sums of all before, between convolutions."""
    graph = Graph(opset=16)
    first = graph.node("Relu", graph.conv(graph.input("data", [1, 3, 32, 32]), 3, 32, 3))
    sums = graph.node("CumSum", first, graph.weight(np.array(2, np.int64)))
    return graph.save(path, graph.node("GlobalAveragePool", graph.conv(sums, 32, 16, 3)), first)


def three_convolutions(graph: Graph, size: int, channels: int) -> str:
    """An image of `size` x `size` pixels through a first convolution and two that are alike, 3x3 with ReLU."""
    value = graph.input("data", [1, 3, size, size])
    for inputs in (3, channels, channels):
        value = graph.node("Relu", graph.conv(value, inputs, channels, 3, pads=[1, 1, 1, 1]))
    return value


FEATURES, HIDDEN = 6, 16


def streamed_lstm(path: Path) -> Path:
    """An LSTM of one step, with `frame`, `h` and `c` for inputs, and `score`, `hn` and `cn` for outputs."""
    graph = Graph(opset=14)
    gates = [graph.normal(1, 4 * HIDDEN, size) for size in (FEATURES, HIDDEN)]
    states = [graph.input(name, [1, 1, HIDDEN]) for name in ("h", "c")]
    frame = graph.input("frame", [1, 1, FEATURES])
    every = graph.node("LSTM", frame, *gates, graph.normal(1, 8 * HIDDEN), "", *states, outputs=3, hidden_size=HIDDEN)
    product = graph.node("MatMul", every, graph.normal(HIDDEN, 1))
    graph.nodes.append(helper.make_node("Sigmoid", [product], ["score"], name="score"))
    names = {f"{every}_1": "hn", f"{every}_2": "cn"}
    for node in graph.nodes:
        node.output[:] = [names.get(name, name) for name in node.output]
    return graph.save(path, "score", "hn", "cn")


def unrolled_lstm(
    graph: Graph, data: str, shape: tuple[int, int, int], hidden: int, *, odd_step: int | None = None, count: int = 0
) -> tuple[list[str], list[str]]:
    """States and cells of all steps, as PyTorch's decomposition writes them: zeros before the first are left out.

    `shape` of `data` is steps x batch x features; `odd_step` has weights of its own; of the steps, `count` are written.
    """
    steps, _, features = shape

    def gates_of(*lengths: int) -> str:
        return graph.normal(*lengths, 4 * hidden)

    products = graph.node("Add", graph.node("MatMul", data, gates_of(features)), gates_of())
    weights, bias = gates_of(hidden), gates_of()
    states: list[str] = []
    cells: list[str] = []
    for index, part in enumerate(_parts(graph, products, 0, 1, steps)[: count or steps]):
        own = gates_of(hidden) if index == odd_step else weights
        gates = graph.node("Add", graph.node("MatMul", states[-1], own), bias) if states else bias
        given, forget, fresh, output = _parts(graph, graph.node("Add", gates, part), 2, hidden, 4)
        cell = graph.node("Mul", graph.node("Sigmoid", given), graph.node("Tanh", fresh))
        if cells:
            cell = graph.node("Add", graph.node("Mul", graph.node("Sigmoid", forget), cells[-1]), cell)
        cells.append(cell)
        states.append(graph.node("Mul", graph.node("Sigmoid", output), graph.node("Tanh", cell)))
    return states, cells


def _parts(graph: Graph, data: str, axis: int, size: int, count: int) -> list[str]:
    return [graph.slice(data, place * size, (place + 1) * size, axis) for place in range(count)]

"""Writes tmfiles, Tengine's format tm2, independently of the frontend that reads them; and what Tengine makes of them.

Kernels of int8 in numpy are those of its `source/device/cpu/op/*/*_ref.c`: each gives integers of the steps that the
file states of its output, in float32 arithmetic in the order of the C code.
"""

import struct
from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np

from edgedeploy.frontends.tengine.structure import Node, Structure, Tensor
from support.agreement import convolved

INPUT, CONST = 12, 4  # of the operators' numbers

VARIABLE, CONSTANT, GIVEN = 1, 2, 3  # kinds of tensors

_DTYPES = {"float32": 0, "float16": 1, "int8": 2, "uint8": 3, "int32": 4, "int16": 5}

# A number of 4 bytes, a boolean of 1 byte, or the numbers of a vector that is referred to.
Field = int | float | bool | Sequence[int]


class TmFile:
    """A network that grows node by node; tensors are known by number."""

    def __init__(self, *, origin: int = 2) -> None:
        self.version, self.origin, self.layout = 2, origin, 0
        self.tensors: list[tuple[str, Sequence[int] | None, int, str, bytes | None]] = []
        self.nodes: list[tuple[str, int, Sequence[Field], Sequence[int], Sequence[int]]] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self._quantisations: dict[int, list[tuple[int, float]]] = {}
        self._content = bytearray()

    def input(self, name: str, shape: Sequence[int] | None) -> int:
        self.tensors.append((name, shape, GIVEN, "float32", None))
        self.inputs.append(len(self.nodes))
        self.nodes.append((name, INPUT, (), (), [len(self.tensors) - 1]))
        return len(self.tensors) - 1

    def constant(self, values: np.ndarray, name: str | None = None) -> int:
        name = f"w{len(self.tensors)}" if name is None else name
        self.tensors.append((name, values.shape, CONSTANT, values.dtype.name, values.tobytes()))
        self.nodes.append((name, CONST, (), (), [len(self.tensors) - 1]))
        return len(self.tensors) - 1

    def quantise(self, tensor: int, dtype: str, scales: Sequence[float], zero_point: int = 0) -> int:
        """Say that a tensor holds integers of these scales; the tensor."""
        name, shape, kind, _, data = self.tensors[tensor]
        self.tensors[tensor] = (name, shape, kind, dtype, data)
        self._quantisations[tensor] = [(zero_point, scale) for scale in scales]
        return tensor

    def node(self, kind: int, parameters: Sequence[Field], *inputs: int, name: str = "", outputs: int = 1) -> int:
        """An operator by its number; the number of its first output."""
        name = name or f"n{len(self.nodes)}"
        first = len(self.tensors)
        for index in range(outputs):
            self.tensors.append((name if outputs == 1 else f"{name}_{index}", None, VARIABLE, "float32", None))
        self.nodes.append((name, kind, parameters, inputs, range(first, first + outputs)))
        return first

    def output(self, *tensors: int) -> "TmFile":
        for tensor in tensors:
            self.outputs += [number for number, node in enumerate(self.nodes) if tensor in node[4]]
        return self

    def save(self, path: Path) -> Path:
        path.write_bytes(self.content())
        return path

    def content(self) -> bytes:
        self._content = bytearray(12)
        buffers = [self._buffer(data) for *_, data in self.tensors if data is not None]
        tensors, nodes = self._tensors(), [self._node(number) for number in range(len(self.nodes))]
        parts = (self.inputs, self.outputs, nodes, tensors, buffers)
        offsets = [self._vector(part) for part in parts]
        subgraph = self._add(struct.pack("<Iii7I", 0, self.layout, self.layout, *offsets, 0, 0))
        model = self._add(struct.pack("<iiII", self.origin, 0, self._vector([subgraph]), 0))
        # The two bytes that C's alignment leaves are whatever was in memory.
        struct.pack_into("<HHH2sI", self._content, 0, self.version, 0, 0, b"\xa5\x5a", model)
        return bytes(self._content)

    def _tensors(self) -> list[int]:
        written = 0
        offsets = []
        for number, (name, shape, kind, dtype, data) in enumerate(self.tensors):
            place = self._string(name) if name else 0
            sizes = self._vector(shape) if shape is not None else 0
            # Of the width Tengine's own files have whatever was in memory.
            records = [struct.pack("<ifI", *each, 0xB8D87C20) for each in self._quantisations.get(number, ())]
            steps = self._vector([self._add(each) for each in records]) if records else 0
            table = (number, written, sizes, place, steps, 0, kind, _DTYPES[dtype])
            offsets.append(self._add(struct.pack("<5Iiii", *table)))
            written += data is not None
        return offsets

    def _node(self, number: int) -> int:
        name, kind, parameters, inputs, outputs = self.nodes[number]
        place = self._parameters(parameters) if parameters else 0
        operator = self._add(struct.pack("<III", 1, kind, place))
        lists = self._vector(inputs) if inputs else 0, self._vector(outputs)
        return self._add(struct.pack("<6IB3x", number, *lists, operator, self._string(name), 0, 0))

    def _parameters(self, fields: Sequence[Field]) -> int:
        table = bytearray()
        for field in fields:
            if isinstance(field, bool):
                table += struct.pack("<B", field)
                continue
            table += bytes(-len(table) % 4)
            if isinstance(field, float):
                table += struct.pack("<f", field)
            else:
                number = field if isinstance(field, int) else self._vector(field)
                table += struct.pack("<I", number & 0xFFFFFFFF)
        return self._add(bytes(table))

    def _buffer(self, data: bytes) -> int:
        return self._add(struct.pack("<II", len(data), self._add(data) if data else 0))

    def _string(self, text: str) -> int:
        data = text.encode() + b"\0"
        return self._add(struct.pack("<II", len(data), self._add(data)))

    def _vector(self, numbers: Sequence[int]) -> int:
        return self._add(struct.pack(f"<I{len(numbers)}I", len(numbers), *(number & 0xFFFFFFFF for number in numbers)))

    def _add(self, data: bytes) -> int:
        self._content += bytes(-len(self._content) % 4)
        place = len(self._content)
        self._content += data
        return place


def away(values: np.ndarray) -> np.ndarray:
    """C's `round`: halves away from zero."""
    return np.copysign(np.floor(np.abs(values.astype(np.float64)) + 0.5), values)


def bounded(steps: np.ndarray) -> np.ndarray:
    return np.clip(away(steps), -127, 127).astype(np.int32)


def narrowed(real: np.ndarray, scale: np.float32) -> np.ndarray:
    """float32 values as integers of a scale."""
    assert real.dtype == np.float32
    return bounded(real / scale)


def integers_of(structure: Structure, data: np.ndarray) -> dict[int, np.ndarray]:
    """The integers of every tensor of a network of int8 with one input, by number."""
    found: dict[int, np.ndarray] = {}
    for node in _ordered(structure):
        [output] = node.outputs.tolist()
        scale = _scale(structure.tensors[output])
        if node.operator == "InputOp":
            found[output] = narrowed(data, scale)
        else:
            found[output] = _KERNELS[node.operator](node, structure.tensors, found, scale)
    return found


def _ordered(structure: Structure) -> list[Node]:
    """Nodes after those that they read; the file may have them in any order."""
    nodes = structure.nodes
    makers = {index: number for number, node in enumerate(nodes) for index in node.outputs.tolist()}
    needs = {number: [makers[index] for index in node.inputs.tolist()] for number, node in enumerate(nodes)}
    ordered = (nodes[number] for number in TopologicalSorter(needs).static_order())
    return [node for node in ordered if node.operator != "Const"]


def _scale(tensor: Tensor) -> np.float32:
    quantisation = tensor.quantisation
    assert not quantisation.zero_point.any()
    return np.float32(quantisation.scale)


Found = dict[int, np.ndarray]


def _weights(node: Node, tensors: list[Tensor]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    held = tensors[node.inputs[1]]
    bias = tensors[node.inputs[2]].values if node.inputs.size > 2 else np.zeros(1, np.int32)
    return held.values.astype(np.int32), held.quantisation.scale, bias


def _convolution(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    p, (weights, scales, bias) = node.parameters, _weights(node, tensors)
    data = found[node.inputs[0]]
    pads = (p["pad_top"], p["pad_left"], p["pad_bottom"], p["pad_right"])
    sums = convolved(data, weights, pads=pads, stride=(p["stride_h"], p["stride_w"])) + bias.reshape(1, -1, 1, 1)
    real = sums.astype(np.float32) * (_scale(tensors[node.inputs[0]]) * scales).reshape(1, -1, 1, 1)
    if p["activation"] == 0:
        real = np.maximum(real, np.float32(0))
    elif p["activation"] > 0:
        real = np.clip(real, np.float32(0 if p["activation"] == 6 else -1), np.float32(p["activation"]))
    return narrowed(real, scale)


def _fully_connected(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    weights, scales, bias = _weights(node, tensors)
    data = found[node.inputs[0]]
    sums = data.reshape(len(data), -1) @ weights.T + bias
    factors = _scale(tensors[node.inputs[0]]) * scales / scale
    integers = bounded(sums.astype(np.float32) * factors)
    return integers.reshape(*integers.shape, *[1] * (data.ndim - 2))


def _real(index: int, tensors: list[Tensor], found: Found) -> np.ndarray:
    return np.asarray(found[index].astype(np.float32) * _scale(tensors[index]))


def _relu(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    real, slope = _real(node.inputs[0], tensors, found), np.float32(node.parameters["slope"])
    return narrowed(np.where(real < 0, real * slope, real), scale)


def _sum(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    assert node.parameters["kind"] == 2
    one, other = (_real(index, tensors, found) for index in node.inputs.tolist())
    return narrowed(one + other, scale)


def _pooling(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    p, data = node.parameters, found[node.inputs[0]]
    before = _scale(tensors[node.inputs[0]])
    if p["whole"]:
        windows = data.reshape(*data.shape[:2], 1, 1, 1, -1)
    else:
        assert not any(p[f"pad_{side}"] for side in ("top", "left", "bottom", "right"))
        windows = np.lib.stride_tricks.sliding_window_view(data, (p["kernel_h"], p["kernel_w"]), axis=(2, 3))
        windows = windows[:, :, :: p["stride_h"], :: p["stride_w"]]
    windows = windows.reshape(*windows.shape[:4], -1)
    if p["kind"] == 0:
        return bounded(windows.max(-1).astype(np.float32) * (before / scale))
    return narrowed(windows.sum(-1).astype(np.float32) * before / np.float32(windows.shape[-1]), scale)


def _concatenation(node: Node, tensors: list[Tensor], found: Found, scale: np.float32) -> np.ndarray:
    parts = [
        bounded(found[index].astype(np.float32) * (_scale(tensors[index]) / scale)) for index in node.inputs.tolist()
    ]
    return np.concatenate(parts, axis=node.parameters["axis"])


_KERNELS: dict[str, Callable[[Node, list[Tensor], Found, np.float32], np.ndarray]] = {
    "Concat": _concatenation,
    "Convolution": _convolution,
    "Eltwise": _sum,
    "FullyConnected": _fully_connected,
    "Pooling": _pooling,
    "ReLu": _relu,
}

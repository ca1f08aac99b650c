"""Writes tmfiles, Tengine's format tm2, for tests: independent of the frontend that reads them."""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

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

"""What is in a tmfile: the tables of Tengine's format tm2, read into tensors and nodes.

The layouts are those of the C structures in Tengine-Lite's `source/serializer/tmfile/tm2_format.h`, little-endian, with
C's alignment. Tables refer to each other by offsets from the beginning of the file; an offset of zero means that
something is not there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import Cursor, read_bytes

_VERSION = 2

Parameters = dict[str, Any]

# TM2_OPTYPE_*, from 0 on.
_OPERATORS = (
    *("Accuracy", "BatchNormalization", "BilinearResize", "Concat", "Const", "Convolution", "Deconvolution"),
    *("DetectionOutput", "Dropout", "Eltwise", "Flatten", "FullyConnected", "InputOp", "LRN", "Normalize", "Permute"),
    *("Pooling", "PReLU", "PriorBox", "Region", "ReLu", "ReLu6", "Reorg", "Reshape", "ROIPooling", "RPN", "Scale"),
    *("Slice", "Softmax", "Split", "DetectionPostProcess", "Gemm", "Generic", "Logistic", "LSTM", "RNN", "Tanh"),
    *("Sigmoid", "Squeeze", "Fused.BNScaleReLu", "Pad", "StridedSlice", "ArgMax", "ArgMin", "TopKV2", "Reduction"),
    *("Maximum", "Minimum", "GRU", "Addn", "SwapAxis", "Upsample", "SpaceToBatchND", "BatchToSpaceND", "Resize"),
    *("ShuffleChannel", "Crop", "Roialign", "Psroipooling", "Unary", "Expanddims", "Bias", "Noop", "Threshold"),
    *("Hardsigmoid", "Embedding", "InstanceNorm", "MVN", "Absval", "Cast", "HardSwish", "Interp", "Selu", "Elu"),
    *("BroadMul", "Logical", "Gather", "Transpose", "Comparison", "SpaceToDepth", "DepthToSpace", "Reverse"),
    *("SparseToDense", "Ceil", "SquaredDifference", "Round", "ZerosLike", "Clip", "Unsqueeze", "ReduceL2", "Mean"),
    *("MatMul", "Expand", "Scatter", "Shape", "Where", "Tile", "Mish", "L2Pool", "LogSoftmax", "ReLU1"),
    *("L2Normalization", "Softplus", "Reciprocal"),
)


def _record(fields: str) -> np.dtype:
    """A little-endian C structure from `code name` pairs, with the type codes of Python's `struct`."""
    pairs = [field.split() for field in fields.split(", ")]
    return np.dtype([(name, f"<{code}") for code, name in pairs], align=True)


# Of the operators that are translated, as for `_record`; the code V stands for the offset of a vector of int32.
_PARAMETERS = {
    "BatchNormalization": "f rescale, f epsilon, i caffe",
    "Clip": "f high, f low",
    "Concat": "i axis",
    "Convolution": (
        "i kernel_h, i kernel_w, i stride_h, i stride_w, i dilation_h, i dilation_w, i input_channels, "
        "i output_channels, i groups, i activation, i pad_top, i pad_left, i pad_bottom, i pad_right"
    ),
    "Crop": "i inputs, i offset_c, i offset_h, i offset_w, i height, i width, B centred, i axis, i mxnet",
    "Deconvolution": (
        "i output_channels, i kernel_h, i kernel_w, i stride_h, i stride_w, i pad_left, i pad_top, i pad_right, "
        "i pad_bottom, i dilation_h, i dilation_w, i groups, i activation, i output_pad_h, i output_pad_w"
    ),
    "Eltwise": "I kind, i caffe, f shift, f power, f scale",
    "Elu": "f alpha",
    "Flatten": "i axis, i end_axis",
    "Hardsigmoid": "f alpha, f beta",
    "InstanceNorm": "f epsilon",
    "Interp": "i kind, f scale_w, f scale_h, i width, i height",
    "LogSoftmax": "i axis",
    "Pad": "i begin_n, i end_n, i begin_c, i end_c, i begin_h, i end_h, i begin_w, i end_w, i mode, f value",
    "Permute": "i flag, i order_0, i order_1, i order_2, i order_3",
    "Pooling": (
        "I kind, i kernel_h, i kernel_w, i stride_h, i stride_w, i whole, i flavour, i pad_top, i pad_left, "
        "i pad_bottom, i pad_right"
    ),
    "ReLu": "f slope",
    "Reduction": "i axis_0, i axis_1, i axis_2, i axis_3, i kind, i keep",
    "Reshape": "i mxnet, i reverse, V shape",
    "Resize": "f scale_h, f scale_w, i kind",
    "Scale": "i axis, i axes, i bias",
    "Selu": "f alpha, f scale",
    "ShuffleChannel": "i groups",
    "Slice": "i axis, V points, V begins, V sizes, i caffe, i mxnet, i onnx, i begin, i end, i step",
    "Softmax": "i axis",
    "Split": "i axis, i parts, B caffe, B onnx, V sizes",
    "Squeeze": "i axis_0, i axis_1, i axis_2, i axis_3",
    "StridedSlice": (
        "i begin_n, i end_n, i step_n, i begin_c, i end_c, i step_c, i begin_h, i end_h, i step_h, "
        "i begin_w, i end_w, i step_w"
    ),
    "SwapAxis": "i axis_0, i axis_1",
    "Transpose": "V order",
    "Unary": "i kind",
    "Unsqueeze": "V axes",
    "Upsample": "f scale",
}


HEADER = _record("H main, H sub, H compiled, I root")
_MODEL = _record("i origin, i sub_format, I subgraphs, I name")
_SUBGRAPH = _record(
    "I id, i layout, i origin_layout, I inputs, I outputs, I nodes, I tensors, I buffers, I name, I parts"
)
_NODE = _record("I id, I inputs, I outputs, I operator, I name, I attributes, B dynamic")
_OPERATOR = _record("I version, I kind, I parameters")
_TENSOR = _record("I id, I buffer, I shape, I name, I quantisation, i layout, i kind, i dtype")
_QUANTISATION = _record("i zero_point, f scale, i width")  # files have any number for the width
_BUFFER = _record("I size, I data")
_STRING = _record("I size, I data")

_CONSTANT = 2  # of a tensor's kinds
_DTYPES = {0: "<f4", 1: "<f2", 2: "<i1", 3: "<u1", 4: "<i4", 5: "<i2"}  # TENGINE_DT_*
_QUANTISED = {"<i1": "int8", "<u1": "uint8", "<i2": "int16"}
_NCHW = 0
_DARKNET = 7  # of the origins

# Bounds far beyond any network; Tengine itself stores numbers of nodes in 16 bits.
_MOST = 2**14  # of nodes, tensors and the like
MOST_DIMENSIONS = 8
_LONGEST_NAME = 1024


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The meaning of a tensor's integers: `(integer - zero_point) * scale`."""

    scale: np.ndarray  # float32, one or one for each place on the first axis
    zero_point: np.ndarray  # of the scale's shape and the tensor's dtype


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of the network."""

    name: str
    shape: tuple[int, ...] | None  # as far as the file states it
    values: np.ndarray | None  # of a constant: float32, float16, int32, or quantised integers
    quantisation: Quantisation | None = None  # of int8, uint8 and int16


@dataclass(frozen=True, slots=True)
class Node:
    """One operator, by Tengine's name of it, with the numbers of its tensors."""

    name: str
    operator: str
    parameters: Parameters
    inputs: np.ndarray
    outputs: np.ndarray


@dataclass(frozen=True)
class Structure:
    """A network as its tmfile has it."""

    path: Path
    size: int  # of the file, in bytes
    from_darknet: bool  # whether it was converted from Darknet's format
    tensors: list[Tensor]
    nodes: list[Node]
    inputs: np.ndarray  # numbers of nodes, as those of outputs
    outputs: np.ndarray


def _users(nodes: Sequence[Node]) -> dict[int, Node]:
    """A node of each tensor, by number: one that reads it, or else the one that outputs it."""
    users: dict[int, Node] = {}
    for reads in (True, False):
        for node in nodes:
            for index in (node.inputs if reads else node.outputs).tolist():
                users.setdefault(index, node)
    return users


def read_structure(path: Path) -> Structure:
    """Read a tmfile."""
    return _Reader(path, read_bytes(path)).structure()


class _Reader:
    """Reads tables, and no part of a file so often that memory would grow beyond its size."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        self._content = content
        # Parts do not overlap, but parameters that grew over the years are read beyond their old end.
        self._left_to_read = 2 * len(content) + 4096
        self._strings: dict[int, str] = {}

    def structure(self) -> Structure:
        header = self._table(0, HEADER, "the header")
        if header["main"] != _VERSION:
            raise ModelError(
                f"{self._path} is of version {header['main']} of Tengine's format",
                why=f"only version {_VERSION} can be read",
                hints=["convert the network again with Tengine-Lite's convert_tool"],
            )
        model = self._table(header["root"], _MODEL, "the model")
        subgraphs = self._numbers(model["subgraphs"], "<u4", "the subgraphs")
        if len(subgraphs) != 1:
            raise ModelError(
                f"{self._path} has {len(subgraphs)} subgraphs",
                why="only a network that is not divided can be read",
                hints=["convert the network again, without dividing it between devices"],
            )
        graph = self._table(int(subgraphs[0]), _SUBGRAPH, "the subgraph")
        if (graph["layout"], graph["origin_layout"]) != (_NCHW, _NCHW):
            raise ModelError(
                f"{self._path} has its values in another order than NCHW",
                why="it was converted from TensorFlow or TFLite",
                hints=["build from the network that it was converted from"],
            )
        buffers = self._numbers(graph["buffers"], "<u4", "the buffers")
        tensors = self._numbers(graph["tensors"], "<u4", "the tensors").tolist()
        offsets = self._numbers(graph["nodes"], "<u4", "the nodes").tolist()
        nodes = [self._node(offset, len(tensors)) for offset in offsets]
        users = _users(nodes)
        return Structure(
            path=self._path,
            size=len(self._content),
            from_darknet=model["origin"] == _DARKNET,
            tensors=[self._tensor(number, offset, buffers, users) for number, offset in enumerate(tensors)],
            nodes=nodes,
            inputs=self._indices(graph["inputs"], len(nodes), "the network's inputs"),
            outputs=self._indices(graph["outputs"], len(nodes), "the network's outputs"),
        )

    def _tensor(self, number: int, offset: int, buffers: np.ndarray, users: Mapping[int, Node]) -> Tensor:
        table = self._table(offset, _TENSOR, "a tensor")
        name = self._string(table["name"]) or f"tensor_{number}"
        what = f"tensor {name!r}"
        dtype = _DTYPES.get(table["dtype"])
        if dtype is None:
            raise self._damaged(f"{what} is of dtype number {table['dtype']}, which there is not")
        shape = None
        if table["shape"]:
            shape = tuple(self._numbers(table["shape"], "<i4", f"the shape of {what}", MOST_DIMENSIONS).tolist())
            if min(shape, default=1) < 1:
                raise self._damaged(f"{what} has the shape {','.join(map(str, shape))}")
        constant = table["kind"] == _CONSTANT
        quantisation = None
        if dtype in _QUANTISED:
            user = users.get(number)
            by = f"{what} of {user.operator} {user.name!r}" if user else what
            quantisation = self._quantisation(table["quantisation"], dtype, shape if constant else None, by)
        if not constant:
            return Tensor(name, shape, None, quantisation)
        if shape is None or table["buffer"] >= len(buffers):
            raise self._damaged(f"{what} is constant, and has no shape or no values")
        buffer = self._table(int(buffers[table["buffer"]]), _BUFFER, f"the values of {what}")
        if not buffer["data"]:
            raise ModelError(
                f"{self._path} has no weights",
                why=f"its {what} has a shape but no values; Tengine would take zeros",
                hints=["save the network with its weights"],
            )
        count = math.prod(shape)
        if count * np.dtype(dtype).itemsize > buffer["size"]:
            raise self._damaged(f"{what} has {count:,} values, and only {buffer['size']:,} bytes")
        return Tensor(name, shape, self._array(buffer["data"], dtype, count, what).reshape(shape), quantisation)

    def _quantisation(self, offset: int, dtype: str, shape: Sequence[int] | None, what: str) -> Quantisation:
        records = self._numbers(offset, "<u4", f"the quantisation of {what}")
        if len(records) != 1 and (not len(records) or not shape or shape[0] != len(records)):
            raise self._damaged(f"{what} is {_QUANTISED[dtype]}, and has {len(records)} scales")
        tables = [self._table(each, _QUANTISATION, f"the quantisation of {what}") for each in records.tolist()]
        scale = np.array([each["scale"] for each in tables], np.float32)
        zeros = np.array([each["zero_point"] for each in tables], np.int64)
        limits = np.iinfo(dtype)
        if not (np.isfinite(scale) & (scale > 0) & (zeros >= limits.min) & (zeros <= limits.max)).all():
            raise self._damaged(f"{what} has impossible scales or zero points")
        whole = () if len(tables) == 1 else scale.shape
        return Quantisation(scale.reshape(whole), zeros.astype(dtype).reshape(whole))

    def _node(self, offset: int, tensors: int) -> Node:
        table = self._table(offset, _NODE, "a node")
        name = self._string(table["name"])
        what = f"node {name!r}"
        operator = self._table(table["operator"], _OPERATOR, f"the operator of {what}")
        kind = _OPERATORS[operator["kind"]] if operator["kind"] < len(_OPERATORS) else f"number {operator['kind']}"
        parameters: Parameters = {}
        if fields := _PARAMETERS.get(kind):
            layout = _record(fields.replace("V ", "I "))
            parameters = self._table(operator["parameters"], layout, f"the parameters of {what}")
            for field in re.findall(r"V (\w+)", fields):
                parameters[field] = self._numbers(parameters[field], "<i4", f"the {field} of {what}")
        inputs = self._indices(table["inputs"], tensors, f"the inputs of {what}")
        return Node(name, kind, parameters, inputs, self._indices(table["outputs"], tensors, f"the outputs of {what}"))

    def _indices(self, offset: int, count: int, what: str) -> np.ndarray:
        """Numbers of `count` things."""
        indices = self._numbers(offset, "<u4", what)
        if indices.size and indices.max() >= count:
            raise self._damaged(f"{what} name number {indices.max():,} of {count:,}")
        return indices

    def _numbers(self, offset: int, dtype: str, what: str, most: int = _MOST) -> np.ndarray:
        """A vector: a count, and that many numbers."""
        count = int(self._array(offset, "<u4", 1, what)[0]) if offset else 0
        if count > most:
            raise self._damaged(f"{what} are {count:,}, more than there can be")
        return self._array(offset + 4, dtype, count, what)

    def _string(self, offset: int) -> str:
        if offset not in self._strings:
            self._strings[offset] = ""
            if offset:
                table = self._table(offset, _STRING, "a name")
                if table["size"] > _LONGEST_NAME:
                    raise self._damaged(f"a name has {table['size']:,} bytes")
                name = self._array(table["data"], "<u1", table["size"], "a name").tobytes()
                self._strings[offset] = name.split(b"\0")[0].decode("utf-8", "replace")
        return self._strings[offset]

    def _table(self, offset: int, layout: np.dtype, what: str) -> dict[str, Any]:
        return dict(zip(layout.names or (), self._array(offset, layout, 1, what)[0].item(), strict=True))

    def _array(self, offset: int, dtype: str | np.dtype, count: int, what: str) -> np.ndarray:
        self._left_to_read -= np.dtype(dtype).itemsize * count
        values = Cursor(self._path, self._content, offset).array(dtype, count, what)
        if self._left_to_read < 0:
            raise self._damaged("its parts overlap")
        return values

    def _damaged(self, why: str) -> ModelError:
        return ModelError(
            f"{self._path} is damaged", why=why, hints=["check the file's size and checksum, or convert it again"]
        )

"""A network being written as an ONNX graph, node by node; ONNX's shape inference gives the shape of every value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, checker, defs, helper, numpy_helper, shape_inference

from edgedeploy.compile.integers.quantisation import AWAY_FROM_ZERO
from edgedeploy.errors import ModelError, last_line

# Resize with a list of sizes, HardSwish, and everything that older formats hold; onnxruntime 1.18 reads it.
_OPSET = helper.make_opsetid("", 17)
_IR_VERSION = 8

# Inference reads constants up to this size, which may be scales, and all of int64, which may be shapes or axes.
_SMALL = 64

_MOST_VALUES = 2**31 - 1  # of one tensor

_BOUNDLESS = 3.4e38  # larger bounds do not bound anything; converters write the largest float32, rounded to some digits

Shape = tuple[int, ...]

PAD_MODES = ("constant", "edge", "reflect")  # of ncnn's Padding and Tengine's Pad, by number, as ONNX calls them


class Value(str):
    """The name of a tensor, which has a shape; the shape lacks the batch where the format does not state one."""

    shape: Shape

    def __new__(cls, name: str, shape: Iterable[int]) -> Value:  # noqa: D102
        value = super().__new__(cls, name)
        value.shape = tuple(shape)
        return value

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)


class Graph:
    """Nodes in the order in which they run, each output of which has a unique name.

    `batch` is for formats whose shapes and axes leave it out: they lack it here, too, but in ONNX it comes first.
    """

    def __init__(self, name: str, batch: int | None = None) -> None:
        self.batch: tuple[int, ...] = () if batch is None else (batch,)
        self._name = name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._names: set[str] = set()
        self._types: dict[str, onnx.TypeProto] = {}
        self._small: dict[str, onnx.TensorProto] = {}
        self._stem = ""
        self._unnamed: list[Value] = []

    def begin(self, stem: str) -> None:
        """Begin a layer; names of its nodes begin with `stem` unless stated."""
        self._stem, self._unnamed = stem, []

    def finish(self, values: Sequence[Value], names: Sequence[str]) -> list[Value]:
        """End a layer: its outputs get these names, unless the layer passes on other values or has named them."""
        if not values or list(values) != self._unnamed:
            return list(values)
        node = self._nodes[-1]
        self._names.difference_update(node.output)
        named = [Value(self._unique(name), value.shape) for name, value in zip(names, values, strict=True)]
        self._types |= {new: self._types.pop(old) for new, old in zip(named, values, strict=True)}
        node.output[:] = named
        node.name = named[0]
        return named

    def input(self, name: str, shape: Sequence[int]) -> Value:
        """Declare a float32 input."""
        shape = [*self.batch, *shape]
        self._types[name] = helper.make_tensor_type_proto(TensorProto.FLOAT, shape)
        self._inputs.append(helper.make_value_info(name, self._types[name]))
        self._names.add(name)
        return Value(name, shape[len(self.batch) :])

    def constant(self, values: np.ndarray, name: str = "") -> Value:
        """Add a constant of the dtype of `values`, without a batch; the name is made unique."""
        unique = self.declare(values.shape, name or f"{self._stem}weights", values.dtype)
        self.define(unique, values)
        if values.size <= _SMALL or values.dtype == np.int64:
            self._small[unique] = self._weights[-1]
        return unique

    def declare(self, shape: Sequence[int], name: str, dtype: np.dtype | type = np.float32) -> Value:
        """Announce a constant, whose values `define` adds; the name is made unique."""
        unique = Value(self._unique(name), shape)
        self._types[unique] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        return unique

    def define(self, name: str, values: np.ndarray) -> None:
        """Add the values of a constant that was declared."""
        self._weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> Value:
        """Add a node with one output; both get the name, made unique.

        An input of "" is left out. Where shapes lack the batch, `axis` and `axes` do not count it unless negative.
        """
        return self.nodes(operator, *inputs, names=[name], **attributes)[0]

    def nodes(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Any) -> list[Value]:
        """Add a node with an output for each name, which are made unique; see `node`."""
        hidden = len(self.batch)
        for key, value in attributes.items():
            if key == "axis" and value >= 0:
                attributes[key] = value + hidden
            elif key == "axes":
                attributes[key] = self._axes(value)
        stem = f"{self._stem}{operator.lower()}"
        unique = [self._unique(name or (f"{stem}_{index}" if index else stem)) for index, name in enumerate(names)]
        self._nodes.append(helper.make_node(operator, list(inputs), unique, name=unique[0], **attributes))
        used = [name for name in inputs if name]
        try:
            self._types |= shape_inference.infer_node_outputs(
                defs.get_schema(operator, _OPSET.version, ""),
                self._nodes[-1],
                {name: self._types[name] for name in used},
                {name: self._small[name] for name in used if name in self._small},
                opset_imports=[_OPSET],
            )
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError) as error:
            raise self.unsuitable(operator, f"their shapes are {self._shapes(used)}: {last_line(error)}") from error
        for name in unique:
            self.check_output(operator, used, self._shape(name) if name in self._types else (0,))
        outputs = [Value(name, self._shape(name)[hidden:]) for name in unique]
        self._unnamed = [] if any(names) else outputs
        return outputs

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model with these values as its outputs, in order."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, values, self._weights)
        return helper.make_model(graph, opset_imports=[_OPSET], ir_version=_IR_VERSION, producer_name="edgedeploy")

    def check_output(self, operator: str, inputs: Sequence[str], shape: Shape) -> None:
        """Refuse an output of a node that would be empty or too large; `shape` has the batch."""
        if min(shape, default=1) < 1 or is_too_large(shape):
            raise self.unsuitable(operator, f"their shapes are {self._shapes(inputs)}")

    def unsuitable(self, operator: str, why: str) -> ModelError:
        """The error that an operator does not suit its inputs."""
        return ModelError(f"{operator} does not suit its inputs", why=why)

    def floats(self, values: np.ndarray | Sequence[float] | float) -> Value:
        """A constant of float32 numbers, or of one; too large ones become infinite."""
        with np.errstate(over="ignore"):
            return self.constant(np.asarray(values, np.float32))

    def integers(self, values: Sequence[int]) -> Value:
        """A constant int64 vector, such as sizes."""
        return self.constant(np.array(values, np.int64), f"{self._stem}integers")

    def per_channel(self, values: np.ndarray, like: Value) -> Value:
        """A constant float32 number for each channel, the first axis after the batch, that broadcasts to `like`."""
        spatial = like.rank + len(self.batch) - 2
        return self.floats(values.reshape(1, -1, *[1] * spatial))

    def named(self, value: Value, name: str) -> Value:
        """A value under the name of an output."""
        return value if value == name else self.node("Identity", value, name=name)

    def reshape(self, value: Value, shape: Sequence[int], name: str = "") -> Value:
        """The same values in another shape."""
        if tuple(shape) == value.shape:
            return value
        if min(shape) > 0 and math.prod(shape) != math.prod(value.shape):
            raise self.unsuitable("Reshape", f"{times(value.shape)} values do not fit {times(shape)}")
        return self.node("Reshape", value, self.integers([*self.batch, *shape]), name=name)

    def transpose(self, value: str, order: Sequence[int]) -> Value:
        """Axes in another order."""
        return self.node("Transpose", value, perm=[*range(len(self.batch)), *self._axes(order)])

    def cut(self, value: str, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = ()) -> Value:
        """The values from `starts` to before `ends` of the first axes, at distances of `steps` or 1."""
        bounds = [self.integers(each) for each in (starts, ends, self._axes(range(len(starts))), steps) if len(each)]
        return self.node("Slice", value, *bounds)

    def pad(
        self, value: Value, begins: Sequence[int], ends: Sequence[int], mode: str = "constant", fill: float = 0.0
    ) -> Value:
        """More values before and after those of each axis; `mode` is one of `PAD_MODES`."""
        if not any(begins) and not any(ends):
            return value
        if mode == "reflect" and any(
            width >= size for width, size in zip([*begins, *ends], value.shape * 2, strict=True)
        ):
            raise self.unsuitable("Pad", "a reflection is wider than the input")
        hidden = [0] * len(self.batch)
        widths = self.integers([*hidden, *begins, *hidden, *ends])
        return self.node("Pad", value, widths, *([self.floats(fill)] if fill and mode == "constant" else []), mode=mode)

    def split(self, value: str, sizes: Sequence[int], axis: int) -> list[Value]:
        """Parts of these sizes along an axis."""
        return self.nodes("Split", value, self.integers(sizes), names=[""] * len(sizes), axis=axis)

    def shuffle_channels(self, value: Value, groups: int, *, reverse: bool = False) -> Value:
        """Channels of groups one after another as one of each group in turn, or back (Zhang et al., "ShuffleNet")."""
        *batch, channels, height, width = value.shape
        if groups < 1 or channels % groups:
            raise self.unsuitable("ShuffleChannel", f"{channels} channels do not divide into {groups} groups")
        rows = channels // groups if reverse else groups
        lead = range(len(batch))
        parts = self.reshape(value, [*batch, rows, channels // rows, height, width])
        order = [*lead, *(axis + len(batch) for axis in (1, 0, 2, 3))]
        return self.reshape(self.transpose(parts, order), value.shape)

    def reduce(self, operator: str, value: str, axes: Sequence[int], keep: int = 1) -> Value:
        """A reduction, such as `ReduceMean`, over some axes."""
        if operator == "ReduceSum":  # the only one that takes axes as an input, in this version of ONNX
            return self.node(operator, value, self.integers(self._axes(axes)), keepdims=keep)
        return self.node(operator, value, axes=list(axes), keepdims=keep)

    def resize_nearest(self, value: str, *where: str) -> Value:
        """Resizing by repeated pixels: place x of the output is x / scale of the input, rounded down."""
        return self.resize(value, *where, mode="nearest", transform="asymmetric", nearest_mode="floor")

    def resize(self, value: str, *where: str, mode: str, transform: str, **attributes: Any) -> Value:
        """Resizing by scales, or by "" and sizes."""
        return self.node("Resize", value, "", *where, mode=mode, coordinate_transformation_mode=transform, **attributes)

    def clip(self, value: str, low: float, high: float) -> Value:
        """Values between bounds."""
        bounds = ["" if abs(bound) > _BOUNDLESS else self.floats(bound) for bound in (low, high)]
        return self.node("Clip", value, *bounds)

    def leaky_relu(self, value: str, slope: float) -> Value:
        """max(x, 0) + slope min(x, 0)."""
        return self.node("LeakyRelu", value, alpha=slope) if slope else self.node("Relu", value)

    def swish(self, value: str) -> Value:
        """x sigmoid(x), also called SiLU."""
        return self.node("Mul", value, self.node("Sigmoid", value))

    def hard_swish(self, value: str, alpha: float, beta: float) -> Value:
        """x min(max(alpha x + beta, 0), 1)."""
        return self.node("Mul", value, self.node("HardSigmoid", value, alpha=alpha, beta=beta))

    def mish(self, value: str) -> Value:
        """x tanh(log(1 + exp(x))) (Misra, 2019, arXiv:1908.08681)."""
        return self.node("Mul", value, self.node("Tanh", self.node("Softplus", value)))

    def scaled(self, value: Value, factor: float) -> Value:
        """A value times a number."""
        return value if factor == 1 else self.node("Mul", value, self.floats(factor))

    def power(self, value: str, power: float, scale: float, shift: float) -> Value:
        """(shift + scale x) ^ power."""
        shifted = self.node("Add", self.node("Mul", value, self.floats(scale)), self.floats(shift))
        return shifted if power == 1 else self.node("Pow", shifted, self.floats(power))

    def round_half_away(self, value: str, scale: np.ndarray, zero_point: np.ndarray) -> Value:
        """A value as 8 bits can hold it, `(integer - zero_point) * scale`: halves away from zero, and no int8 of -128.

        The scale is one float32, the zero point one int8 or uint8.
        """
        steps = self.floats(scale), self.constant(zero_point, f"{self._stem}zero_point")
        if zero_point.dtype == np.int8:
            low, high = ((np.float32(end) - zero_point) * scale for end in (-127, 127))
            value = self.node("Clip", value, self.floats(low), self.floats(high))
        value = self.node("Mul", value, self.constant(AWAY_FROM_ZERO))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", value, *steps), *steps)

    def _shape(self, name: str) -> Shape:
        return tuple(size.dim_value for size in self._types[name].tensor_type.shape.dim)

    def _shapes(self, names: Iterable[str]) -> str:
        """Shapes for messages, with the batch."""
        return " and ".join(times(self._shape(name)) for name in names)

    def _axes(self, axes: Iterable[int]) -> list[int]:
        """Axes as ONNX counts them."""
        return [axis + len(self.batch) for axis in axes]

    def _unique(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        return unique


def operator(name: str, *attributes: str) -> Callable[..., Any]:
    """A function of a graph, a value, and a number for each of some attributes of an operator of ONNX."""
    return lambda graph, value, *numbers: graph.node(name, value, **dict(zip(attributes, numbers, strict=True)))


def square(graph: Graph, value: str) -> Value:
    """x x."""
    return graph.node("Mul", value, value)


def reciprocal_root(graph: Graph, value: str) -> Value:
    """1 / sqrt(x)."""
    return graph.node("Reciprocal", graph.node("Sqrt", value))


# Functions of one value by the number that ncnn's UnaryOp and Tengine's unary_ref.c give them; Tengine has 17 of them.
UNARY: tuple[Callable[[Graph, str], Value], ...] = (
    *map(operator, ("Abs", "Neg", "Floor", "Ceil")),
    square,
    operator("Sqrt"),
    reciprocal_root,
    *map(operator, ("Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Reciprocal", "Tanh")),
    lambda graph, value: graph.node("Mul", graph.node("Log", value), graph.floats(1 / math.log(10))),
    operator("Round"),
)


def is_too_large(shape: Sequence[int]) -> bool:
    """Whether a tensor has more values than fit any memory."""
    return math.prod(shape) > _MOST_VALUES


def times(shape: Iterable[int]) -> str:
    """A shape for messages, such as 3x224x224."""
    return "x".join(map(str, shape))

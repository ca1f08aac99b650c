"""A network that is written in ONNX's terms, node by node; ONNX's own inference gives the shape of every value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, checker, defs, helper, numpy_helper, shape_inference

from edgedeploy.errors import ModelError, last_line

# It has Resize with a list of sizes, HardSwish, and all that older formats need; onnxruntime 1.18 reads it.
_OPSET = helper.make_opsetid("", 17)
_IR_VERSION = 8

# Inference reads constants up to this size, which may be scales, and all of int64, which may be shapes or axes.
_SMALL = 64

_MOST_VALUES = 2**31 - 1  # of one tensor

Attribute = int | float | str | Sequence[int] | Sequence[float]
Shape = tuple[int, ...]


class Graph:
    """Nodes in the order in which they run; their outputs have names, and nodes that cannot run are refused."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._names: set[str] = set()
        self._types: dict[str, onnx.TypeProto] = {}
        self._small: dict[str, onnx.TensorProto] = {}

    def shape(self, value: str) -> Shape:
        """The shape of a value by its name."""
        return tuple(size.dim_value for size in self._types[value].tensor_type.shape.dim)

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Declare a float32 input."""
        self._types[name] = helper.make_tensor_type_proto(TensorProto.FLOAT, list(shape))
        self._inputs.append(helper.make_value_info(name, self._types[name]))
        self._names.add(name)
        return name

    def constant(self, values: np.ndarray, name: str = "weights") -> str:
        """Add a constant, such as a weight; the name is made unique."""
        unique = self.declare(values.shape, name, values.dtype)
        self.define(unique, values)
        if values.size <= _SMALL or values.dtype == np.int64:
            self._small[unique] = self._weights[-1]
        return unique

    def declare(self, shape: Sequence[int], name: str, dtype: np.dtype | type = np.float32) -> str:
        """Declare a constant, whose values `define` adds; the name is made unique."""
        unique = self._unique(name)
        self._types[unique] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        return unique

    def define(self, name: str, values: np.ndarray) -> None:
        """Add the values of a constant that was declared."""
        self._weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))

    def node(self, operator: str, *inputs: str, name: str = "", **attributes: Attribute) -> str:
        """Add a node with one output, whose name it returns.

        Args:
            operator: ONNX's name.
            inputs: names of values; "" leaves an optional one out.
            name: of the node and its output, made unique; by default the operator's.
        """
        return self.nodes(operator, *inputs, names=[name or operator.lower()], **attributes)[0]

    def nodes(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Attribute) -> list[str]:
        """Add a node with several outputs, whose names are made unique."""
        outputs = [self._unique(name) for name in names]
        self._nodes.append(helper.make_node(operator, list(inputs), outputs, name=outputs[0], **attributes))
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
            raise self.unsuitable(operator, last_line(error)) from error
        for name in outputs:
            self.check_output(operator, used, self.shape(name) if name in self._types else (0,))
        return outputs

    def rename(self, names: Sequence[str]) -> None:
        """Give the outputs of the last node new names, and the node the first of them."""
        node = self._nodes[-1]
        self._types |= {new: self._types.pop(old) for old, new in zip(node.output, names, strict=True)}
        self._names.difference_update(node.output)
        self._names.update(names)
        node.output[:] = names
        node.name = names[0]

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model with these values as its outputs, in order."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, values, self._weights)
        return helper.make_model(graph, opset_imports=[_OPSET], ir_version=_IR_VERSION, producer_name="edgedeploy")

    def check_output(self, operator: str, inputs: Sequence[str], shape: Shape) -> None:
        """Refuse an output of a node that would be empty or too large; subclasses may word it differently."""
        if min(shape, default=1) < 1 or is_too_large(shape):
            stated = " and ".join("x".join(map(str, self.shape(value))) for value in inputs)
            raise self.unsuitable(operator, f"their shapes are {stated}")

    def unsuitable(self, operator: str, why: str) -> ModelError:
        """The error that an operator does not suit its inputs."""
        return ModelError(f"{operator} does not suit its inputs", why=why)

    def _unique(self, name: str) -> str:
        unique, count = name, 1
        while unique in self._names:
            unique, count = f"{name}_{count}", count + 1
        self._names.add(unique)
        return unique


def is_too_large(shape: Sequence[int]) -> bool:
    """Whether a tensor has more values than any memory can hold."""
    return math.prod(shape) > _MOST_VALUES

"""A network being written in ONNX's terms that knows the shape of every value, by ONNX's own inference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, checker, defs, helper, numpy_helper, shape_inference

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.graph import OPSET, Attribute, Graph

# Constants up to this size may be shapes, axes or scales, which inference reads.
_SMALL = 64

_MOST_VALUES = 2**31 - 1  # of one tensor

Shape = tuple[int, ...]


class ShapedGraph(Graph):
    """As `Graph`; all values have a shape, and operators that do not suit their inputs are refused."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._types: dict[str, onnx.TypeProto] = {}
        self._small: dict[str, onnx.TensorProto] = {}

    def shape(self, value: str) -> Shape:
        """The shape of a value by its name."""
        return tuple(size.dim_value for size in self._types[value].tensor_type.shape.dim)

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Declare a float32 input."""
        self._types[name] = helper.make_tensor_type_proto(TensorProto.FLOAT, list(shape))
        return super().input(name, shape)

    def constant(self, values: np.ndarray, name: str = "weights") -> str:
        """Add a constant, such as a weight; the name is made unique."""
        unique = super().constant(values, name)
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self._types[unique] = helper.make_tensor_type_proto(kind, values.shape)
        if values.size <= _SMALL:
            self._small[unique] = numpy_helper.from_array(np.asarray(values, order="C"), unique)
        return unique

    def nodes(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Attribute) -> list[str]:
        """Add a node with several outputs, named as given and made unique.

        Raises:
            ModelError: the operator does not suit its inputs, or its outputs would be empty or too large.
        """
        outputs = super().nodes(operator, *inputs, names=names, **attributes)
        node = helper.make_node(operator, list(inputs), outputs, **attributes)
        used = [name for name in inputs if name]
        self._types |= self._inferred(node, {name: self._types[name] for name in used}, used)
        for name in outputs:
            shape = self.shape(name) if name in self._types else (0,)
            if min(shape, default=1) < 1 or math.prod(shape) > _MOST_VALUES:
                stated = " and ".join("x".join(map(str, self.shape(value))) for value in used)
                raise ModelError(f"{operator} does not suit its inputs", why=f"their shapes are {stated}")
        return outputs

    def _inferred(
        self, node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], used: Sequence[str]
    ) -> dict[str, onnx.TypeProto]:
        try:
            return shape_inference.infer_node_outputs(
                defs.get_schema(node.op_type, OPSET, ""),
                node,
                dict(types),
                {name: self._small[name] for name in used if name in self._small},
                opset_imports=[helper.make_opsetid("", OPSET)],
            )
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError) as error:
            raise ModelError(f"{node.op_type} does not suit its inputs", why=last_line(error)) from error

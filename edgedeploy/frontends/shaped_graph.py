"""A network being written in ONNX's terms that knows the shape of every value, by ONNX's own inference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, checker, defs, helper, numpy_helper, shape_inference

from edgedeploy.errors import ModelError, last_line
from edgedeploy.frontends.graph import OPSET, Attribute, Graph

# Inference reads constants up to this size, which may be scales, and all of int64, which may be shapes or axes.
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
        if values.size <= _SMALL or values.dtype == np.int64:
            self._small[unique] = self._weights[-1]
        return unique

    def declare(self, shape: Sequence[int], name: str = "weights") -> str:
        """Announce a float32 constant, whose values `define` adds; the name is made unique."""
        unique = self._unique(name)
        self._types[unique] = helper.make_tensor_type_proto(TensorProto.FLOAT, list(shape))
        return unique

    def define(self, name: str, values: np.ndarray) -> None:
        """Add the values of a constant that was declared."""
        self._weights.append(numpy_helper.from_array(np.asarray(values, order="C"), name))

    def nodes(self, operator: str, *inputs: str, names: Sequence[str], **attributes: Attribute) -> list[str]:
        """Add a node with several outputs, named as given and made unique.

        Raises:
            ModelError: the operator does not suit its inputs, or its outputs would be empty or too large.
        """
        outputs = super().nodes(operator, *inputs, names=names, **attributes)
        used = [name for name in inputs if name]
        try:
            self._types |= shape_inference.infer_node_outputs(
                defs.get_schema(operator, OPSET, ""),
                self._nodes[-1],
                {name: self._types[name] for name in used},
                {name: self._small[name] for name in used if name in self._small},
                opset_imports=[helper.make_opsetid("", OPSET)],
            )
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError) as error:
            raise self.unsuitable(operator, last_line(error)) from error
        for name in outputs:
            self.check_output(operator, used, self.shape(name) if name in self._types else (0,))
        return outputs

    def rename(self, names: Sequence[str]) -> None:
        """See `Graph.rename`."""
        types = [self._types.pop(name) for name in self._nodes[-1].output]
        super().rename(names)
        self._types.update(zip(names, types, strict=True))

    def check_output(self, operator: str, inputs: Sequence[str], shape: Sequence[int]) -> None:
        """Refuse an output of a node that would be empty or too large; others may say it otherwise.

        Raises:
            ModelError: it would.
        """
        if min(shape, default=1) < 1 or is_too_large(shape):
            stated = " and ".join("x".join(map(str, self.shape(value))) for value in inputs)
            raise self.unsuitable(operator, f"their shapes are {stated}")

    def unsuitable(self, operator: str, why: str) -> ModelError:
        """The error that an operator does not suit its inputs."""
        return ModelError(f"{operator} does not suit its inputs", why=why)


def is_too_large(shape: Sequence[int]) -> bool:
    """Whether a tensor has more values than any memory has room for."""
    return math.prod(shape) > _MOST_VALUES

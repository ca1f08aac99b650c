"""Parts that translations of operators share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import Emitter, constant, constant_value, shape_of


def dtype_of(value: Any) -> str:
    """The dtype of a tensor; empty for other values, such as a shape."""
    return str(getattr(value.ty, "dtype", ""))


def is_float(value: Any) -> bool:
    """Whether a tensor holds floats."""
    return dtype_of(value).startswith(("float", "bfloat"))


def optional(inputs: list[Any], index: int) -> Any:
    """An input that may be left out, at the end or by an empty name."""
    return inputs[index] if index < len(inputs) else None


def integers(inputs: list[Any], index: int) -> list[int] | None:
    """The values of a constant input of integers."""
    value = constant_value(optional(inputs, index))
    return None if value is None else [int(each) for each in value.ravel()]


def text(attr: dict[str, Any], name: str, default: str) -> str:
    """An attribute of text."""
    value = attr.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


class Builder(Emitter):
    """An `Emitter` of an importer, which binds the expressions itself: `build.add(a, b)` is `relax.op.add(a, b)`."""

    def __init__(self, importer: Any) -> None:
        self.importer = importer
        self.block = importer.bb if hasattr(importer, "bb") else importer.block_builder  # the latter is PyTorch's
        super().__init__(self.block)

    def __call__(self, expression: Any) -> Any:
        """A normalised expression."""
        return self.block.normalize(expression)

    bind = __call__

    def cast(self, value: Any, dtype: str) -> Any:
        """A tensor as another dtype; itself if it has that one."""
        return value if dtype_of(value) == dtype else self.bind(relax.op.astype(value, dtype))

    def reshape(self, value: Any, shape: list[int]) -> Any:
        """A tensor in another shape; itself if it has that one."""
        return value if shape_of(value) == shape else self.bind(relax.op.reshape(value, shape))

    def take(self, value: Any, indices: Any, axis: int) -> Any:
        """Parts of a tensor along an axis, by indices that are not negative."""
        if isinstance(indices, np.ndarray):
            indices = constant(indices, "int64")
        return self.bind(relax.op.take(value, indices, axis))

    def permute(self, value: Any, order: list[int]) -> Any:
        """A tensor with its axes in another order."""
        if order == sorted(order):
            return value
        return self.bind(relax.op.permute_dims(value, order))

    def reduce(self, operator: str, value: Any, axes: list[int], *, keepdims: bool = False) -> Any:
        """`sum`, `max` and the like over some axes."""
        return self.bind(getattr(relax.op, operator)(value, axes, keepdims=keepdims))


# Takes a builder, the node's inputs (None for one left out) and its attributes; returns an expression, a tuple of them
# for several outputs, or None to use TVM's own importer.
Translation = Callable[[Builder, list[Any], dict[str, Any]], Any]

"""Parts that translations of operators share, among them LSTM, GRU and RNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import Emitter, constant, constant_value, shape_of
from edgedeploy.compile.operators.recurrence import Recurrence
from edgedeploy.compile.operators.recurrent_loop import called
from edgedeploy.errors import ModelError


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


def recurrent(
    build: Builder,
    layer: Recurrence,
    data: Any,  # (steps, batch, features)
    # Of the data, (directions, gates * hidden, features), and of the state, (directions, gates * hidden, hidden), with
    # gates in ONNX's order.
    weights: tuple[Any, Any],
    biases: tuple[Any, Any] | None = None,  # of both products, (directions, gates * hidden); None for zeros
    # Before the first step, (directions, batch, hidden); those left out, or None, are zeros.
    states: tuple[Any, ...] = (),
    peepholes: Any = None,  # (directions, 3, hidden), for the gates input, output, forget, if `layer.peepholes`
    lengths: Any = None,  # (batch), int32, if `layer.lengths`
) -> list[Any]:
    """The states of a layer of float32: of all steps, (steps, directions, batch, hidden), and each one's last.

    The last states are (directions, batch, hidden). Products of all steps are computed at once, then one function with
    the loop.
    """
    if layer.dtype != "float32":
        raise ModelError(f"recurrent layers of {layer.dtype} are not supported", why="only those of float32 are")
    directions, gates, hidden = layer.directions, layer.gates, layer.hidden
    given = {"products": _products(build, layer, data, weights[0], biases), "peepholes": peepholes}
    given["weights"] = build.reshape(build.permute(weights[1], [0, 2, 1]), [directions, hidden, gates, hidden])
    given["lengths"] = lengths
    for name, state in zip(("hidden", "cell"), (*states, None, None), strict=False):
        shape = [directions, layer.batch, hidden]
        given[name] = constant(np.zeros(shape), layer.dtype) if state is None else state
    if layer.reset_after:
        given["bias"] = (
            constant(np.zeros([directions, hidden]), layer.dtype)
            if biases is None
            else build.strided_slice(biases[1], [1], [2 * hidden], [3 * hidden])
        )
    for each in layer.inputs:  # the function would read beyond others
        found = tuple(shape_of(given[each.name])), str(given[each.name].ty.dtype)
        if found != each[1:]:
            raise ModelError(f"its {each.name} {found} do not fit", why=f"{each[1:]} are needed")
    return called(build.block, layer, given)


def _products(build: Builder, layer: Recurrence, data: Any, weights: Any, biases: tuple[Any, Any] | None) -> Any:
    """The inputs of all steps times their weights, biases added: one product of matrices."""
    directions, gates, hidden = layer.directions, layer.gates, layer.hidden
    features, columns = shape_of(data)[-1], directions * gates * hidden
    rows = build.reshape(data, [layer.steps * layer.batch, features])
    products = build.matmul(rows, build.permute(build.reshape(weights, [columns, features]), [1, 0]))
    if biases is not None:
        other = biases[1]
        if layer.reset_after:  # its last third is for the gate that is reset
            other = build.multiply(other, np.repeat(np.array([1, 1, 0]), hidden))
        products = build.add(products, build.reshape(build.add(biases[0], other), [columns]))
    return build.reshape(products, [layer.steps, layer.batch, directions, gates, hidden])

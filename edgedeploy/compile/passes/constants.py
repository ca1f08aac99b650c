"""Folds operators on constants by numpy, and flushes subnormal constants to zero.

TVM's own `FoldConstant` compiles a function for every distinct operator, which takes seconds for a network that only
reshapes its weights. It gets the operators that numpy does not compute (`optraits.py`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.expressions import Rewriter, bindings_of, constant, constant_value, parts_of, shape_of
from edgedeploy.compile.ir.optraits import along_axis, evaluate, moves_values, operator_name, tensors_of
from edgedeploy.errors import ModelError

_OF_WEIGHTS = ("nn.conv1d", "nn.conv2d", "matmul")  # layers whose weights may stay integers
_MOST_GROWTH = 1 << 30  # what constants may take in bytes, beyond four times the weights


class Room:
    """The memory left for constants that a network computes; `weights` are the bytes of those in its file."""

    def __init__(self, weights: int) -> None:
        self._left = _MOST_GROWTH + 4 * weights

    def take(self, operator: str, size: int | None, read: int, value: str = "") -> None:
        """Count the results of an operator on constants, before they are computed; raises ModelError without room.

        The results take `size` bytes, None if no memory holds them, and the operands `read`; `value` is the result's
        name in the file.
        """
        self._left = 0 if size is None else self._left - max(size - read, 0)
        if self._left <= 0:
            much = f"{size:,} bytes" if size is not None else "more values than any memory has room for"
            raise ModelError(
                "constants of the network fill the memory" + (f" as of value {value!r}" if value else ""),
                why=f"operator {operator} makes {much}",
                hints=["export the network without computing such a tensor of constants"],
            )


def bounded(module: tvm.IRModule) -> tvm.IRModule:
    """The module of an imported network; raises ModelError if its constants are much larger than its weights."""
    weights = {part for part in parts_of(module["main"]) if isinstance(part, tvm.ir.GenericConst)}
    room, known = Room(sum(map(_bytes, weights))), set[relax.Var]()
    for binding in bindings_of(module["main"]):
        variables = relax.analysis.free_vars(binding.value)
        if known.issuperset(variables):
            known.add(binding.var)
            if isinstance(binding.value, relax.Call):
                room.take(operator_name(binding.value), _bytes(binding.var), sum(map(_bytes, variables)))
    return module


def _bytes(expression: relax.Expr) -> int:
    """How many bytes a value takes; dimensions that are not fixed count as 0."""
    fields = expression.ty.fields if isinstance(expression.ty, relax.TupleType) else [expression.ty]
    tensors = [each for each in fields if isinstance(each, relax.TensorType) and each.shape]
    counts = (
        math.prod(int(size) if isinstance(size, tvm.tirx.IntImm) else 0 for size in each.shape) for each in tensors
    )
    return sum(count * tvm.DataType(str(each.dtype)).itemsize for count, each in zip(counts, tensors, strict=True))


class ConstantFolder(Rewriter):
    """Folds in one walk; `left_over` collects operators on constants that numpy does not compute."""

    def __init__(self, module: tvm.IRModule, left_over: list[relax.Call], skipped: list[relax.Call]) -> None:
        super().__init__(module)
        self._left_over, self._skipped = left_over, skipped

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        """The value of a call on constants."""
        found = [constant_value(self.bound_value(argument)) for argument in tensors_of(call)]
        values = [value for value in found if value is not None]
        if not values or len(values) < len(found) or any(original.same_as(each) for each in self._skipped):
            return None
        result = evaluate(self.builder_.normalize(call), values)
        if result is None:
            self._left_over.append(call)
            return None
        return constant(result)


def fold_constants(
    module: tvm.IRModule, folder: type[ConstantFolder] = ConstantFolder, *, but_quantised_weights: bool = False
) -> tvm.IRModule:
    """Replace operators by their values if all arguments are constants.

    With `but_quantised_weights`, `dequantize` of the weights of layers stays, and operators that move them then.
    """
    left_over: list[relax.Call] = []
    skipped = _dequantised_weights(module) if but_quantised_weights else []
    # Constants take the place of the variables they are bound to, where later passes look for them.
    module = folder.canonicalised(module, left_over, skipped)
    return relax.transform.FoldConstant()(module) if left_over else module


def _dequantised_weights(module: tvm.IRModule) -> list[relax.Call]:
    """Each `dequantize` whose result is the weights of a layer, maybe in another order or shape."""
    read: set[relax.Var] = set()
    found = []
    for binding in reversed(bindings_of(module["main"])):
        call, name = binding.value, operator_name(binding.value)
        if name in _OF_WEIGHTS:
            read.add(call.args[1])
        elif binding.var in read and name == "dequantize":
            found.append(call)
        elif binding.var in read and moves_values(call):
            read.add(call.args[0])
    return found


def fold_around_integers(module: tvm.IRModule) -> tvm.IRModule:
    """As `fold_constants`, but `dequantize` of integers stays; operators that move its values move the integers."""
    return fold_constants(module, _IntegerFolder)


class _IntegerFolder(ConstantFolder):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if operator_name(call) == "dequantize":
            return None
        if moves_values(call):
            source = self.bound_value(call.args[0])
            if operator_name(source) == "dequantize" and constant_value(source.args[0]) is not None:
                return _moved(self.builder_.normalize(call), source)
        return super().replacement(call, original)


def _moved(call: relax.Call, source: relax.Call) -> relax.Expr | None:
    """A dequantize of moved integers; None if the scales do not belong to one axis any more."""
    values = constant_value(source.args[0])
    assert values is not None
    integers = evaluate(call, [values])
    if integers is None:
        return None
    axis = -1
    if shape_of(source.args[1]):
        count = values.shape[source.attrs.axis]
        channels = along_axis(np.arange(count), source.attrs.axis, values.ndim)
        places = evaluate(call, [np.ascontiguousarray(np.broadcast_to(channels, values.shape))])
        assert places is not None
        for axis, size in enumerate(places.shape):
            if size == count and (places == along_axis(np.arange(count), axis, places.ndim)).all():
                break
        else:
            return None
    return relax.op.dequantize(constant(integers, values.dtype.name), source.args[1], source.args[2], axis=axis)


class _SubnormalFlusher(Rewriter):
    """Sets constants too small for a normal float32 to zero: arithmetic on them is a hundred times slower."""

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr:
        return relax.Call(call.op, [*map(_flushed, call.args)], call.attrs, call.ty_args)


def _flushed(argument: Any) -> Any:
    value = constant_value(argument)
    if value is None or value.dtype != np.float32:
        return argument
    subnormal = (value != 0) & (np.abs(value) < np.finfo(np.float32).tiny)
    return constant(np.where(subnormal, np.float32(0), value)) if subnormal.any() else argument


flush_subnormals = _SubnormalFlusher.rewritten

"""Evaluates operators on constants with numpy.

TVM's own `FoldConstant` compiles a function for every distinct operator it folds, seconds for a network
whose weights are only reshaped. What numpy does not compute (`optraits.py`) is left to it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, parts_of, rewritten
from edgedeploy.compile.optraits import evaluate, moves_values, operator_name, tensors_of
from edgedeploy.errors import ModelError

# Layers whose weights may stay integers.
_OF_WEIGHTS = ("nn.conv1d", "nn.conv2d", "matmul")

# What constants may take in bytes, beyond four times the weights.
_MOST_GROWTH = 1 << 30


class Room:
    """The memory that constants may take which a network computes.

    Args:
        weights: bytes that its file holds.
    """

    def __init__(self, weights: int) -> None:
        self._left = _MOST_GROWTH + 4 * weights

    def take(self, operator: str, size: int | None, read: int, value: str = "") -> None:
        """Count what an operator makes of constants, before it is computed.

        Args:
            operator: its name.
            size: of its results in bytes; None if no memory holds them.
            read: bytes of what it reads.
            value: the name of its result, if the file has one.

        Raises:
            ModelError: there is no room for it.
        """
        self._left = 0 if size is None else self._left - max(size - read, 0)
        if self._left <= 0:
            raise ModelError(
                "constants of the network fill the memory" + (f" as of value {value!r}" if value else ""),
                why=f"operator {operator} makes "
                + (f"{size:,} bytes" if size is not None else "more values than any memory has room for"),
                hints=["export the network without computing such a tensor of constants"],
            )


def bounded(module: tvm.IRModule) -> tvm.IRModule:
    """The module of a network as an importer made it, where memory has room for its constants.

    Raises:
        ModelError: operators on constants make much more of them than there are weights.
    """
    weights = {part for part in parts_of(module["main"]) if isinstance(part, tvm.ir.GenericConst)}
    room, known = Room(sum(map(_bytes, weights))), set[relax.Var]()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            variables = relax.analysis.free_vars(binding.value)
            if not known.issuperset(variables):
                continue
            known.add(binding.var)
            if isinstance(binding.value, relax.Call):
                room.take(operator_name(binding.value), _bytes(binding.var), sum(map(_bytes, variables)))
    return module


def _bytes(expression: relax.Expr) -> int:
    """How many bytes a value takes, as far as its shapes are fixed."""
    fields = expression.ty.fields if isinstance(expression.ty, relax.TupleType) else [expression.ty]
    shapes = [(each.shape, str(each.dtype)) for each in fields if isinstance(each, relax.TensorType) and each.shape]
    sizes = [(math.prod(map(_size, shape)), dtype) for shape, dtype in shapes]
    return sum(count * tvm.DataType(dtype).itemsize for count, dtype in sizes)


def _size(dimension: Any) -> int:
    return int(dimension) if isinstance(dimension, tvm.tirx.IntImm) else 0


class ConstantFolder(Rewriter):
    """Folds in one walk; operators on constants that numpy does not compute join those that are left over."""

    def __init__(self, module: tvm.IRModule, left_over: list[relax.Call], kept: list[relax.Call]) -> None:
        super().__init__(module)
        self._left_over = left_over
        self._kept = kept

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        """The value of a call on constants."""
        found = [constant_value(self.bound_value(argument)) for argument in tensors_of(call)]
        values = [value for value in found if value is not None]
        if not values or len(values) < len(found) or any(original.same_as(each) for each in self._kept):
            return None
        result = evaluate(self.builder_.normalize(call), values)
        if result is None:
            self._left_over.append(call)
            return None
        return constant(result)


def fold_constants(
    module: tvm.IRModule, folder: type[ConstantFolder] = ConstantFolder, *, but_quantised_weights: bool = False
) -> tvm.IRModule:
    """Replace each operator whose arguments are all constant by its value, as far as `folder` does.

    Args:
        module: the network.
        folder: what folds.
        but_quantised_weights: whether `dequantize` of the weights of layers stays, and what moves them behind it.
    """
    left_over: list[relax.Call] = []
    kept = _dequantised_weights(module) if but_quantised_weights else []
    # Constants take the place of the variables they are bound to, where later passes look for them.
    module = relax.transform.CanonicalizeBindings()(rewritten(folder, module, left_over, kept))
    return relax.transform.FoldConstant()(module) if left_over else module


def _dequantised_weights(module: tvm.IRModule) -> list[relax.Call]:
    """Each `dequantize` whose result is the weights of a layer, maybe in another order or shape."""
    read: set[relax.Var] = set()
    found = []
    for block in reversed(module["main"].body.blocks):
        for binding in reversed(block.bindings):
            call, name = binding.value, operator_name(binding.value)
            if name in _OF_WEIGHTS:
                read.add(call.args[1])
            elif binding.var in read and name == "dequantize":
                found.append(call)
            elif binding.var in read and moves_values(call):
                read.add(call.args[0])
    return found


def flush_subnormals(module: tvm.IRModule) -> tvm.IRModule:
    """Set constants too small for a normal float32 to zero: arithmetic on them is a hundred times slower."""
    return rewritten(_SubnormalFlusher, module)


class _SubnormalFlusher(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr:
        arguments = [self._flushed(argument) for argument in call.args]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    @staticmethod
    def _flushed(argument: Any) -> Any:
        value = constant_value(argument)
        if value is None or value.dtype != np.float32:
            return argument
        subnormal = (value != 0) & (np.abs(value) < np.finfo(np.float32).tiny)
        return constant(np.where(subnormal, np.float32(0), value)) if subnormal.any() else argument

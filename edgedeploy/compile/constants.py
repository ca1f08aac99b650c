"""Evaluates operators on constants with numpy.

TVM's own `FoldConstant` compiles a function for every distinct operator it folds, seconds for a network
whose weights are only reshaped. What numpy does not compute (`optraits.py`) is left to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, rewritten
from edgedeploy.compile.optraits import evaluate, moves_values, operator_name, tensors_of

# Layers whose weights may stay integers.
_OF_WEIGHTS = ("nn.conv1d", "nn.conv2d", "matmul")


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

"""Evaluates operators on constants with numpy.

TVM's own `FoldConstant` compiles a function for every distinct operator it folds, seconds for a network
whose weights are only reshaped. What numpy does not compute (`optraits.py`) is left to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import bound_value, constant, constant_value, rewritten
from edgedeploy.compile.optraits import evaluate, tensors_of


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each operator whose arguments are all constant by its value."""
    folder = _ConstantFolder(module)
    # Constants take the place of the variables they are bound to, where later passes look for them.
    module = relax.transform.CanonicalizeBindings()(rewritten(folder, module))
    return relax.transform.FoldConstant()(module) if folder.left_over else module


def flush_subnormals(module: tvm.IRModule) -> tvm.IRModule:
    """Set constants too small for a normal float32 to zero: arithmetic on them is a hundred times slower."""
    return rewritten(_SubnormalFlusher(module), module)


@relax.expr_functor.mutator
class _SubnormalFlusher(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        arguments = [self._flushed(argument) for argument in call.args]
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    @staticmethod
    def _flushed(argument: Any) -> Any:
        value = constant_value(argument)
        if value is None or value.dtype != np.float32:
            return argument
        subnormal = (value != 0) & (np.abs(value) < np.finfo(np.float32).tiny)
        return relax.const(np.where(subnormal, np.float32(0), value)) if subnormal.any() else argument


@relax.expr_functor.mutator
class _ConstantFolder(relax.PyExprMutator):
    """Folds in one walk.

    Attributes:
        left_over: whether it met an operator on constants that numpy does not compute.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.left_over = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        found = [constant_value(bound_value(self, argument)) for argument in tensors_of(call)]
        values = [value for value in found if value is not None]
        if not values or len(values) < len(found):
            return call
        normalized = self.builder_.normalize(call)
        result = evaluate(normalized, values)
        if result is None:
            self.left_over = True
            return call
        return constant(result)

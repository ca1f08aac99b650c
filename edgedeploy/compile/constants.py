"""Evaluates operators on constants with numpy.

TVM's own `FoldConstant` compiles a function for every distinct operator it folds, seconds for a network
whose weights are only reshaped. What is not in the table here is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import bound_value, constant_value, rewritten


def fold_constants(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each operator whose arguments are all constant by its value."""
    folder = _ConstantFolder(module)
    # Constants take the place of the variables they are bound to, where later passes look for them.
    module = relax.transform.CanonicalizeBindings()(rewritten(folder, module))
    return relax.transform.FoldConstant()(module) if folder.left_over else module


def flush_subnormals(module: tvm.IRModule) -> tvm.IRModule:
    """Set constants too small for a normal float32 to zero: arithmetic on them is a hundred times slower."""
    return rewritten(_SubnormalFlusher(module), module)


def evaluate(call: relax.Call, values: Sequence[np.ndarray]) -> np.ndarray:
    """What an operator of the table makes of arrays in the place of its tensors."""
    return _EVALUATORS[call.op.name](call, *values)


def along_axis(value: np.ndarray, axis: int, dimensions: int) -> np.ndarray:
    """One value, or one for each index along an axis, in a shape that broadcasts."""
    if value.size == 1:
        return value.reshape(())
    return value.reshape([-1 if each == axis % dimensions else 1 for each in range(dimensions)])


def _dequantise(call: Any, quantised: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    scale, zero_point = (along_axis(value, call.attrs.axis, quantised.ndim) for value in (scale, zero_point))
    return (quantised.astype(np.int32) - zero_point.astype(np.int32)) * scale.astype(np.float32)


_EVALUATORS: dict[str, Callable[..., np.ndarray]] = {
    "relax.add": lambda call, a, b: a + b,
    "relax.subtract": lambda call, a, b: a - b,
    "relax.multiply": lambda call, a, b: a * b,
    "relax.divide": lambda call, a, b: a / b if a.dtype.kind == "f" else a // b,
    "relax.maximum": lambda call, a, b: np.maximum(a, b),
    "relax.minimum": lambda call, a, b: np.minimum(a, b),
    "relax.negative": lambda call, a: -a,
    "relax.nn.relu": lambda call, a: np.maximum(a, 0),
    "relax.nn.prelu": lambda call, a, slope: np.where(a > 0, a, a * along_axis(slope, call.attrs.axis, a.ndim)),
    "relax.nn.silu": lambda call, a: a / (1 + np.exp(-a)),
    "relax.sigmoid": lambda call, a: 1 / (1 + np.exp(-a)),
    "relax.tanh": lambda call, a: np.tanh(a),
    "relax.round": lambda call, a: np.rint(a),
    "relax.reshape": lambda call, a: a.reshape([int(size) for size in call.ty.shape]),
    "relax.expand_dims": lambda call, a: a.reshape([int(size) for size in call.ty.shape]),
    "relax.squeeze": lambda call, a: a.reshape([int(size) for size in call.ty.shape]),
    "relax.permute_dims": lambda call, a: a.transpose(
        [int(axis) for axis in call.attrs.axes] if call.attrs.axes else None
    ),
    "relax.astype": lambda call, a: a.astype(str(call.ty.dtype)),
    "relax.dequantize": _dequantise,
}


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
        left_over: whether it met an operator on constants that is not in the table.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.left_over = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        tensors = [argument for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
        found = [constant_value(bound_value(self, argument)) for argument in tensors]
        values = [value for value in found if value is not None]
        if not values or len(values) < len(found):
            return call
        if not isinstance(call.op, tvm.ir.Op) or call.op.name not in _EVALUATORS:
            self.left_over = True
            return call
        normalized = self.builder_.normalize(call)
        result = np.asarray(evaluate(normalized, values), str(normalized.ty.dtype), order="C")
        return relax.const(result, str(result.dtype))  # which would take float64 for float32

"""Operators as the few that layout conversion, fusion and the templates do best."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten
from edgedeploy.compile.optraits import Kind, is_kind, tensors_of


def canonicalise(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite bounds and leaky ReLUs as maximum, minimum and products, and give constants whole shapes.

    Values stay the same. Expects constants in the place of their variables.
    """
    return relax.transform.CanonicalizeBindings()(rewritten(_Canonicaliser, module))


class _Canonicaliser(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr:
        if is_kind(call, Kind.ELEMENTWISE) and not is_call(call, "relax.nn.prelu"):
            call = _with_whole_constants(call)
        if is_call(call, "relax.clip") and "float" in str(call.args[0].ty.dtype):
            return _clip(self.builder_, call)
        if is_call(call, "relax.nn.leakyrelu"):
            return _sloped(self.builder_, call.args[0], float(call.attrs.alpha))
        slope = constant_value(call.args[1]) if is_call(call, "relax.nn.prelu") else None
        return call if slope is None or slope.size > 1 else _sloped(self.builder_, call.args[0], slope.item())


def _with_whole_constants(call: relax.Call) -> relax.Call:
    """A call on feature maps with constants as scalars or of all dimensions: others stop layout conversion."""
    rank = max((len(each.ty.shape) for each in tensors_of(call) if constant_value(each) is None), default=0)
    arguments = list(call.args)
    for index, argument in enumerate(arguments):
        value = constant_value(argument)
        if value is not None and 0 < value.ndim < rank and rank in (4, 5):
            arguments[index] = constant(
                value.reshape(() if value.size == 1 else (1,) * (rank - value.ndim) + value.shape)
            )
    return call if arguments == list(call.args) else relax.Call(call.op, arguments, call.attrs)


def _clip(build: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    value, dtype = call.args[0], str(call.args[0].ty.dtype)
    lowest, highest = (float(bound.value) for bound in call.args[1:3])
    if np.isfinite(lowest):
        value = build.normalize(
            relax.op.nn.relu(value) if lowest == 0 else relax.op.maximum(value, constant(lowest, dtype))
        )
    return relax.op.minimum(value, constant(highest, dtype)) if np.isfinite(highest) else value


def _sloped(build: relax.BlockBuilder, value: relax.Expr, slope: float) -> relax.Expr:
    """x where it is positive, else `slope` x."""
    dtype = str(value.ty.dtype)
    if slope < 0:
        below = build.emit(relax.op.minimum(constant(0, dtype), value))  # in this order NaN stays NaN
        below = build.emit(relax.op.multiply(below, constant(slope, dtype)))
        return relax.op.add(build.emit(relax.op.nn.relu(value)), below)
    scaled = build.emit(relax.op.multiply(value, constant(slope, dtype)))
    return relax.op.maximum(value, scaled) if slope <= 1 else relax.op.minimum(value, scaled)

"""Operators as the few that layout conversion, fusion and the templates do best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import constant, constant_value, rewritten
from edgedeploy.compile.optraits import Kind, bounds_of, is_kind, operator_name, tensors_of


def canonicalise(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite bounds and leaky ReLUs as maximum, minimum and products; make constants of one value scalars.

    Values stay the same. Expects constants in the place of their variables.
    """
    return relax.transform.CanonicalizeBindings()(rewritten(_Canonicaliser(module), module))


@relax.expr_functor.mutator
class _Canonicaliser(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if is_kind(call, Kind.ELEMENTWISE):
            call = _with_scalars(call)
        form = _FORMS.get(operator_name(call))
        return form(self.builder_, call) if form else call


def _with_scalars(call: relax.Call) -> relax.Call:
    """A call with constants of one value as scalars: those of one dimension stop layout conversion."""
    rank = max((len(each.ty.shape) for each in tensors_of(call) if constant_value(each) is None), default=0)
    arguments = list(call.args)
    for index, argument in enumerate(arguments):
        value = constant_value(argument)
        if value is not None and value.size == 1 and 0 < value.ndim < rank:
            arguments[index] = constant(value.reshape(()))
    return call if arguments == list(call.args) else relax.Call(call.op, arguments, call.attrs)


def _clip(build: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    value, (lowest, highest) = call.args[0], bounds_of(call)
    dtype = str(value.ty.dtype)
    if np.isfinite(lowest):
        value = build.normalize(
            relax.op.nn.relu(value) if lowest == 0 else relax.op.maximum(value, constant(lowest, dtype))
        )
    return relax.op.minimum(value, constant(highest, dtype)) if np.isfinite(highest) else value


def _leaky_relu(build: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return _sloped(build, call.args[0], float(call.attrs.alpha))


def _prelu(build: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """PRelu; with one slope for all channels it is a leaky ReLU."""
    slope = constant_value(call.args[1])
    return call if slope is None or slope.size > 1 else _sloped(build, call.args[0], slope.item())


def _sloped(build: relax.BlockBuilder, value: relax.Expr, slope: float) -> relax.Expr:
    """x where it is positive, else `slope` x."""
    dtype = str(value.ty.dtype)
    if slope < 0:
        below = build.emit(relax.op.minimum(value, constant(0, dtype)))
        below = build.emit(relax.op.multiply(below, constant(slope, dtype)))
        return relax.op.add(build.emit(relax.op.nn.relu(value)), below)
    scaled = build.emit(relax.op.multiply(value, constant(slope, dtype)))
    return relax.op.maximum(value, scaled) if slope <= 1 else relax.op.minimum(value, scaled)


_FORMS: dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]] = {
    "clip": _clip,
    "nn.leakyrelu": _leaky_relu,
    "nn.prelu": _prelu,
}

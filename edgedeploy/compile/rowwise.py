"""Softmax and norms along rows become functions that say what they compute, for templates that know it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax

from edgedeploy.compile.expressions import shape_of
from edgedeploy.compile.fusion import OPAQUE
from edgedeploy.compile.operators.rows import ROWS_ATTRIBUTE, Kind, Rows

# Shorter rows are computed side by side instead.
_FEWEST_COLUMNS = 8


def _annotated(kind: Kind, axes_of: Callable[[Any], Any]) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    legalise = ir.Op.get(f"relax.nn.{kind}").get_attr("FLegalize")

    def annotated(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        operator = _operator(kind, call, axes_of(call.attrs))
        if operator is None:
            return legalise(builder, call)
        # In a builder of its own, so that the function that stays has the operator's name.
        aside = relax.BlockBuilder()
        legalised = legalise(aside, call)
        name = str(legalised.args[0].name_hint)
        function = aside.get()[legalised.args[0]]
        said = function.with_attr(ROWS_ATTRIBUTE, operator.model_dump_json()).with_attr("op_pattern", OPAQUE)
        return relax.call_tir(builder.add_func(said, name), legalised.args[1], legalised.ty_args[0])

    return annotated


def _operator(kind: Kind, call: relax.Call, axes: Any) -> Rows | None:
    """What a call computes, if it does so along rows."""
    shape = shape_of(call)
    axis, *others = (int(each) % len(shape) for each in axes)
    factors = [int(shape_of(each)[0]) for each in call.args[1:]]
    types = {str(each.ty.dtype) for each in (*call.args, call)}
    rowwise = not others and all(size == 1 for size in shape[axis + 1 :]) and types == {"float32"}
    if not rowwise or shape[axis] < _FEWEST_COLUMNS or any(count != shape[axis] for count in factors):
        return None
    if not all(bool(getattr(call.attrs, each, True)) for each in ("center", "scale")):
        return None
    epsilon = float(getattr(call.attrs, "epsilon", 0.0))
    return Rows(kind=kind, shape=tuple(shape), axis=axis, epsilon=epsilon, factors=len(factors))


_AXES: dict[Kind, Callable[[Any], Any]] = {
    "softmax": lambda attrs: [attrs.axis],
    "log_softmax": lambda attrs: [attrs.axis],
    "layer_norm": lambda attrs: attrs.axes,
    "rms_norm": lambda attrs: attrs.axes,
}

LEGALISATIONS = {f"relax.nn.{kind}": _annotated(kind, axes_of) for kind, axes_of in _AXES.items()}

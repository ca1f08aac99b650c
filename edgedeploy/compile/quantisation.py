"""Rounding to the steps of a quantised tensor, in float and by operators that keep any layout.

Networks of QuantizeLinear and DequantizeLinear pairs run in float here, rounded where they say. In TVM's own form,
the pair stops layouts: a transpose stays on each side.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten
from edgedeploy.compile.optraits import along_axis


def round_in_float(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite `dequantize(quantize(x))` with constant scales to elementwise operators on float32.

    With the integers' range [low, high], z their zero point and s the scale, what ONNX defines as
    `(saturate(round(x / s) + z) - z) * s` is computed as `round(min(max(x / s, low - z), high - z)) * s`; halves are
    rounded to even in both.
    """
    return rewritten(_Rounder, module)


class _Rounder(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.dequantize") or str(call.ty.dtype) != "float32":
            return None
        quantised = self.bound_value(call.args[0])
        if not is_call(quantised, "relax.quantize") or str(quantised.args[0].ty.dtype) != "float32":
            return None
        parameters = [_parameters(each) for each in (quantised, call)]
        if None in parameters or not all(map(np.array_equal, *parameters)):  # type: ignore[arg-type]
            return None
        scale, zero_point = parameters[0]  # type: ignore[misc]
        limits = np.iinfo(str(quantised.ty.dtype))
        if limits.bits > 16:  # float32 does not hold all of their values
            return None
        low, high = (np.asarray(limit - zero_point, np.float32) for limit in (limits.min, limits.max))
        value = self.emit(relax.op.divide(quantised.args[0], constant(scale, "float32")))
        value = self.emit(relax.op.maximum(value, constant(low, "float32")))
        value = self.emit(relax.op.minimum(value, constant(high, "float32")))
        value = self.emit(relax.op.round(value))
        return relax.op.multiply(value, constant(scale, "float32"))


def _parameters(call: relax.Call) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and zero point, in shapes that broadcast; None if they are no constants."""
    scale, zero_point = (constant_value(argument) for argument in call.args[1:3])
    if scale is None or zero_point is None:
        return None
    dimensions = len(call.ty.shape)
    axis = call.attrs.axis
    return (
        along_axis(scale.astype(np.float32), axis, dimensions),
        along_axis(zero_point.astype(np.int64), axis, dimensions),
    )

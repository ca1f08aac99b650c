"""Quantised tensors: their steps, how floats become integers and back, and rounding to steps in float.

All of it is written by operators that keep any layout: TVM's own forms of `quantize` and `dequantize` stop layouts, a
transpose stays on each side. What networks say by pairs of them and `compute-in-integers` leaves, is rounded in float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.away import rounded_away
from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten
from edgedeploy.compile.optraits import along_axis

# The types that quantised feature maps are stored in.
BYTES = ("uint8", "int8")

# What no such integer less its zero point exceeds.
SPAN = 255

# Values below are integers of 16 bits when they are rounded, with any zero point of bytes added to them.
_SHORT = 2**15 - 2**9


@dataclass(frozen=True)
class Steps:
    """What the integers of a tensor stand for: `(integer - zero_point) * scale`.

    Attributes:
        scale: a float32.
        zero_point: the integer of 0.0.
        dtype: of the integers.
        away: whether values between two integers are rounded away from zero, not to even.
    """

    scale: np.float32
    zero_point: int
    dtype: str
    away: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        found = np.iinfo(self.dtype)
        return int(found.min), int(found.max)

    def stored_as(self, dtype: str) -> Steps:
        """The same values by integers of another type."""
        return replace(self, zero_point=self.zero_point + shift_between(self.dtype, dtype), dtype=dtype)

    def to_even(self) -> Steps:
        """The same without `away`, for values that lie so that it does not matter."""
        return replace(self, away=False)

    def quantised(self, values: np.ndarray | float) -> np.ndarray:
        """The integers of values, as QuantizeLinear of ONNX defines them; in int64."""
        low, high = (np.float32(limit - self.zero_point) for limit in self.limits)
        steps = np.clip(np.asarray(values, np.float32) / self.scale, low, high)
        return (rounded_away if self.away else np.rint)(steps).astype(np.int64) + self.zero_point

    def dequantised(self, integers: np.ndarray) -> np.ndarray:
        """The values of integers, in float32."""
        return (np.asarray(integers, np.int32) - self.zero_point).astype(np.float32) * self.scale


def shift_between(dtype: str, other: str) -> int:
    """What is added to integers of a type when they are stored as another, so that both have the same bits but one."""
    return int(np.iinfo(other).min) - int(np.iinfo(dtype).min)


def steps_of(call: Any) -> Steps | None:
    """The steps of a `quantize` or `dequantize`; None if they are no constants, several, or not of bytes."""
    if not (is_call(call, "relax.quantize") or is_call(call, "relax.dequantize")):
        return None
    quantised = call if is_call(call, "relax.quantize") else call.args[0]
    real = call.args[0] if is_call(call, "relax.quantize") else call
    parameters = _parameters(call)
    dtype = str(quantised.ty.dtype)
    if parameters is None or dtype not in BYTES or str(real.ty.dtype) != "float32":
        return None
    scale, zero_point = parameters
    if scale.size != 1 or zero_point.size != 1 or not scale.item() > 0:
        return None
    return Steps(np.float32(scale.item()), int(zero_point.item()), dtype)


def quantize(value: relax.Expr, steps: Steps) -> relax.Call:
    """The operator of Relax."""
    parameters = constant(steps.scale, "float32"), constant(steps.zero_point, steps.dtype)
    return relax.op.quantize(value, *parameters, axis=0, out_dtype=steps.dtype)


def dequantize(value: relax.Expr, steps: Steps) -> relax.Call:
    """The operator of Relax."""
    parameters = constant(steps.scale, "float32"), constant(steps.zero_point, steps.dtype)
    return relax.op.dequantize(value, *parameters, axis=0, out_dtype="float32")


def to_integers(
    build: relax.BlockBuilder, value: relax.Expr, steps: Steps, bounds: tuple[int, int] | None = None
) -> relax.Expr:
    """The integers of a float32 tensor, elementwise: what ONNX defines as QuantizeLinear; bounds as of `rounded`."""
    return rounded(build, build.emit(relax.op.divide(value, constant(steps.scale, "float32"))), steps, bounds)


def to_floats(build: relax.BlockBuilder, value: relax.Expr, steps: Steps) -> relax.Expr:
    """The float32 values of integers, elementwise."""
    return relax.op.multiply(centred(build, value, steps), constant(steps.scale, "float32"))


def centred(build: relax.BlockBuilder, value: relax.Expr, steps: Steps) -> relax.Expr:
    """Integers less their zero point, in float32."""
    value = build.emit(relax.op.astype(value, "float32"))
    if not steps.zero_point:
        return value
    return build.emit(relax.op.add(value, constant(-steps.zero_point, "float32")))


def rounded(
    build: relax.BlockBuilder,
    value: relax.Expr,
    steps: Steps,
    bounds: tuple[int, int] | None = None,
    largest: float = math.inf,
) -> relax.Expr:
    """Float32 values in steps as integers: rounded as these say, then moved by the zero point, within bounds.

    Args:
        build: where it is emitted.
        value: in steps.
        steps: of the result.
        bounds: the least and the greatest integer; those of the type unless given.
        largest: what no value exceeds, whatever the data; where 16 bits hold it, bounds are those of such integers.
    """
    low, high = bounds or steps.limits
    if largest < _SHORT and not steps.away:
        value = build.emit(relax.op.astype(build.emit(relax.op.round(value)), "int16"))
        if steps.zero_point:
            value = build.emit(relax.op.add(value, constant(steps.zero_point, "int16")))
        return relax.op.astype(bounded(build, value, low, high), steps.dtype)
    if steps.away:  # whole numbers of halves, which a factor takes beyond the middle
        halves = build.emit(relax.op.trunc(build.emit(relax.op.multiply(value, constant(2, "float32")))))
        value = build.emit(relax.op.multiply(halves, constant(0.5 + 2**-20, "float32")))
    value = bounded(build, value, low - steps.zero_point, high - steps.zero_point)
    value = build.emit(relax.op.round(value))
    if steps.zero_point:
        value = build.emit(relax.op.add(value, constant(steps.zero_point, "float32")))
    return relax.op.astype(value, steps.dtype)


def bounded(
    build: relax.BlockBuilder, value: relax.Expr, low: float | np.ndarray, high: float | np.ndarray
) -> relax.Expr:
    """A tensor within bounds, numbers or arrays that broadcast to it."""
    dtype = str(value.ty.dtype)
    value = build.emit(relax.op.maximum(value, constant(low, dtype)))
    return build.emit(relax.op.minimum(value, constant(high, dtype)))


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
        value = self.emit(relax.op.round(bounded(self.builder_, value, low, high)))
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

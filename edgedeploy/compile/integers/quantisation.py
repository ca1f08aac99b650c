"""Quantised tensors: their steps, and how floats become integers and back by elementwise operators.

TVM's own forms of `quantize` and `dequantize` stop layouts: a transpose stays on each side.

Tengine and ncnn round halves away from zero, QuantizeLinear and processors to even. Networks mark that by a factor
before a `quantize`, which moves halves beyond the middle, so that code without knowledge of it rounds them so, too.
Code that recognises the factor leaves it out, and rounds exactly.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.expressions import Emitter, Rewriter, constant, constant_value, is_call, parts_of, shape_of
from edgedeploy.compile.ir.optraits import along_axis
from edgedeploy.compile.ir.types import limits_of

BYTES = ("uint8", "int8")  # the types that quantised feature maps are stored in
SPAN = 255  # the largest magnitude of such integers less their zero point

# The next float32 after 1: products and quotients of float32 keep half a unit of the last place of it at least.
AWAY_FROM_ZERO = np.nextafter(np.float32(1), np.float32(2))

# Smaller values are integers of 16 bits when they are rounded, with any zero point of bytes added to them.
_SHORT = 2**15 - 2**9

_INTEGERS = ("int8", "uint8", "int16", "uint16")

_QUANTISATION = "relax.quantize", "relax.dequantize"

# As bits of a float32, the sum of this and of an integer below `SMALL` is 1.5 * 2^23 plus that integer.
CONVERTER_BITS, CONVERTER, SMALL = 0x4B400000, 12582912.0, 2**22


@dataclass(frozen=True)
class Steps:
    """The meaning of a tensor's integers: `(integer - zero_point) * scale`.

    With `half_away`, values in the middle between two integers are rounded away from zero, not to even.
    """

    scale: np.float32
    zero_point: int
    dtype: str
    half_away: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        return limits_of(self.dtype)

    def stored_as(self, dtype: str) -> Steps:
        """The same values by integers of another type."""
        return replace(self, zero_point=self.zero_point + shift_between(self.dtype, dtype), dtype=dtype)

    def to_even(self) -> Steps:
        """The same without `half_away`, for values that are never halves."""
        return replace(self, half_away=False)

    def quantised(self, values: np.ndarray | float) -> np.ndarray:
        """The integers of values, as QuantizeLinear of ONNX defines them; in int64."""
        low, high = (np.float32(limit - self.zero_point) for limit in self.limits)
        steps = np.clip(np.asarray(values, np.float32) / self.scale, low, high)
        whole = np.trunc(np.trunc(steps * 2) / 2 + np.copysign(0.5, steps)) if self.half_away else np.rint(steps)
        return whole.astype(np.int64) + self.zero_point

    def dequantised(self, integers: np.ndarray) -> np.ndarray:
        """The values of integers, in float32."""
        return (np.asarray(integers, np.int32) - self.zero_point).astype(np.float32) * self.scale


def shift_between(dtype: str, other: str) -> int:
    """The number to add to integers of a type to store them as another, so that both have the same bits but one."""
    return limits_of(other)[0] - limits_of(dtype)[0]


def steps_of(call: Any, dtypes: Collection[str] = BYTES) -> Steps | None:
    """The steps of a `quantize` or `dequantize`; None if they are not constants, several, or not of these types."""
    if not is_call(call, *_QUANTISATION):
        return None
    integers, real = (call, call.args[0]) if is_call(call, "relax.quantize") else (call.args[0], call)
    parameters, dtype = parameters_of(call), str(integers.ty.dtype)
    if parameters is None or dtype not in dtypes or str(real.ty.dtype) != "float32":
        return None
    scale, zero_point = parameters
    if scale.size != 1 or zero_point.size != 1 or not scale.item() > 0:
        return None
    return Steps(np.float32(scale.item()), int(zero_point.item()), dtype)


def parameters_of(call: relax.Call) -> tuple[np.ndarray, np.ndarray] | None:
    """Scale and zero point, in shapes that broadcast; None if they are not constants."""
    scale, zero_point = (constant_value(argument) for argument in call.args[1:3])
    if scale is None or zero_point is None:
        return None
    scale, zero_point = (along_axis(each, call.attrs.axis, len(call.ty.shape)) for each in (scale, zero_point))
    return scale.astype(np.float32), zero_point.astype(np.int64)


def quantize(value: relax.Expr, steps: Steps) -> relax.Call:
    """The operator of Relax."""
    parameters = constant(steps.scale, "float32"), constant(steps.zero_point, steps.dtype)
    return relax.op.quantize(value, *parameters, axis=0, out_dtype=steps.dtype)


def dequantize(value: relax.Expr, steps: Steps) -> relax.Call:
    """The operator of Relax."""
    parameters = constant(steps.scale, "float32"), constant(steps.zero_point, steps.dtype)
    return relax.op.dequantize(value, *parameters, axis=0, out_dtype="float32")


def to_integers(emit: Emitter, value: relax.Expr, steps: Steps, bounds: tuple[int, int] | None = None) -> relax.Expr:
    """The integers of a float32 tensor, elementwise, as ONNX defines QuantizeLinear; bounds as of `rounded`."""
    return rounded(emit, emit.divide(value, steps.scale), steps, bounds)


def to_floats(emit: Emitter, value: relax.Expr, steps: Steps) -> relax.Expr:
    """The float32 values of integers, elementwise."""
    return relax.op.multiply(centred(emit, value, steps), constant(steps.scale, "float32"))


def centred(emit: Emitter, value: relax.Expr, steps: Steps) -> relax.Expr:
    """Integers less their zero point, in float32."""
    value = emit.astype(value, "float32")
    return emit.add(value, -steps.zero_point) if steps.zero_point else value


def rounded(
    emit: Emitter, value: relax.Expr, steps: Steps, bounds: tuple[int, int] | None = None, largest: float = math.inf
) -> relax.Expr:
    """Float32 values in steps as integers: rounded, then moved by the zero point, within bounds.

    Bounds are the least and the greatest integer; the limits of the type if None. `largest` is the largest magnitude of
    values for all data; if 16 bits hold it, bounds apply to such integers.
    """
    low, high = bounds or steps.limits
    if largest < _SHORT and not steps.half_away:
        value = emit.astype(emit.round(value), "int16")
        if steps.zero_point:
            value = emit.add(value, steps.zero_point)
        return relax.op.astype(bounded(emit, value, low, high), steps.dtype)
    if steps.half_away:  # whole numbers of halves, which a factor takes beyond the middle
        value = emit.multiply(emit.trunc(emit.multiply(value, 2)), 0.5 + 2**-20)
    value = emit.round(bounded(emit, value, low - steps.zero_point, high - steps.zero_point))
    if steps.zero_point:
        value = emit.add(value, steps.zero_point)
    return relax.op.astype(value, steps.dtype)


def bounded(emit: Emitter, value: relax.Expr, low: float | np.ndarray, high: float | np.ndarray) -> relax.Expr:
    """A tensor within bounds, numbers or arrays that broadcast to it."""
    return emit.minimum(emit.maximum(value, low), high)


def has_quantisation(module: tvm.IRModule) -> bool:
    """Whether a network quantises or dequantises tensors."""
    return any(is_call(each, *_QUANTISATION) for each in parts_of(module["main"]))


def spell_out(module: tvm.IRModule) -> tvm.IRModule:
    """Write `quantize` and `dequantize` of one scale as elementwise operators, but not of constants.

    With the integers' range [low, high], z their zero point and s the scale, `round(clip(x / s, low - z, high - z)) +
    z` quantises, halves to even, and `(q - z) * s` dequantises.
    """
    return _Speller.rewritten(module)


class _Speller(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = steps_of(call, _INTEGERS)
        if steps is None or constant_value(self.bound_value(call.args[0])) is not None:
            return None
        write = to_floats if is_call(call, "relax.dequantize") else to_integers
        return write(self.emit, call.args[0], steps)


def recognise(module: tvm.IRModule) -> tvm.IRModule:
    """Undo `spell_out`."""
    return _Recogniser.rewritten(module)


class _Recogniser(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(call, "relax.multiply"):
            return self._dequantised(call)
        if is_call(call, "relax.astype") and str(call.ty.dtype) in _INTEGERS:
            return self._quantised(call, str(call.ty.dtype))
        return None

    def _dequantised(self, call: relax.Call) -> relax.Expr | None:
        scale, (value, zero) = _scalar(call.args[1]), self._moved(call.args[0])
        if scale is None or not is_call(value, "relax.astype"):
            return None
        integers = value.args[0]
        if str(value.ty.dtype) != "float32" or str(integers.ty.dtype) not in _INTEGERS:
            return None
        if shape_of(integers) != shape_of(call):  # a factor of more dimensions
            return None
        return relax.op.dequantize(integers, constant(scale, "float32"), constant(-zero, "int32"))

    def _quantised(self, call: relax.Call, dtype: str) -> relax.Expr | None:
        value, zero = self._moved(call.args[0])
        parts: list[relax.Call] = []
        for operator in ("relax.round", "relax.minimum", "relax.maximum", "relax.divide"):
            if not is_call(value, operator):
                return None
            parts.append(value)
            value = self.bound_value(value.args[0])
        *bounds, scale = (_scalar(each.args[1]) for each in parts[1:])
        if scale is None or bounds != [limit - zero for limit in reversed(limits_of(dtype))]:
            return None
        data = parts[-1].args[0]
        if shape_of(data) != shape_of(call):
            return None
        return relax.op.quantize(data, constant(scale, "float32"), constant(zero, "int32"), out_dtype=dtype)

    def _moved(self, value: Any) -> tuple[Any, int]:
        """The other operand of a sum with a whole number, and that number."""
        bound = self.bound_value(value)
        zero = _scalar(bound.args[1]) if is_call(bound, "relax.add") else None
        return (bound, 0) if zero is None or zero != int(zero) else (self.bound_value(bound.args[0]), int(zero))


def _scalar(expression: Any) -> float | None:
    value = constant_value(expression)
    return float(value.item()) if value is not None and value.size == 1 and np.isfinite(value).all() else None

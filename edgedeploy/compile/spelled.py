"""Quantisation spelled out by elementwise operators, which layout conversion passes through, and back.

In TVM's own form, `quantize` and `dequantize` stop layouts: a transpose stays on each side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, parts_of, rewritten, shape_of
from edgedeploy.compile.quantisation import Steps, to_floats, to_integers

_INTEGERS = ("int8", "uint8", "int16", "uint16")


def has_quantisation(module: tvm.IRModule) -> bool:
    """Whether a network has tensors that are quantised or dequantised."""
    return any(_is_quantisation(each) for each in parts_of(module["main"]))


def spell_out(module: tvm.IRModule) -> tvm.IRModule:
    """Write `quantize` and `dequantize` of one scale as elementwise operators; those of constants stay.

    With the integers' range [low, high], z their zero point and s the scale, `round(clip(x / s, low - z, high - z)) +
    z` quantises, halves to even, and `(q - z) * s` dequantises.
    """
    return rewritten(_Speller, module)


def recognise(module: tvm.IRModule) -> tvm.IRModule:
    """Undo `spell_out`."""
    return rewritten(_Recogniser, module)


class _Speller(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not _is_quantisation(call) or constant_value(self.bound_value(call.args[0])) is not None:
            return None
        scale, zero_point = (constant_value(argument) for argument in call.args[1:3])
        dtype = str((call if is_call(call, "relax.quantize") else call.args[0]).ty.dtype)
        if scale is None or zero_point is None or scale.size != 1 or zero_point.size != 1 or dtype not in _INTEGERS:
            return None
        write = to_floats if is_call(call, "relax.dequantize") else to_integers
        return write(self.builder_, call.args[0], Steps(np.float32(scale.item()), int(zero_point.item()), dtype))


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
        if scale is None or bounds != [limit - zero for limit in reversed(_limits(dtype))]:
            return None
        if shape_of(parts[-1].args[0]) != shape_of(call):
            return None
        return relax.op.quantize(
            parts[-1].args[0], constant(scale, "float32"), constant(zero, "int32"), out_dtype=dtype
        )

    def _moved(self, value: Any) -> tuple[Any, int]:
        """What a whole number is added to, and that number."""
        bound = self.bound_value(value)
        zero = _scalar(bound.args[1]) if is_call(bound, "relax.add") else None
        return (bound, 0) if zero is None or zero != int(zero) else (self.bound_value(bound.args[0]), int(zero))


def _is_quantisation(expression: Any) -> bool:
    return is_call(expression, "relax.quantize") or is_call(expression, "relax.dequantize")


def _limits(dtype: str) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _scalar(expression: Any) -> float | None:
    value = constant_value(expression)
    return float(value.item()) if value is not None and value.size == 1 and np.isfinite(value).all() else None

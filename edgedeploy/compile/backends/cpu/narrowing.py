"""Floats to bytes: rounded, halves to even, moved by a zero point, within bounds; by the fewest instructions of a CPU.

Networks have it as `cast(round(minimum(maximum(value, low), high)) + zero_point)`, which LLVM takes literally: it makes
a rounded float first, and then integers of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Add, Cast, Div, FloatImm, IntImm, Max, Min, Mul, Sub

from edgedeploy.compile.backends.cpu.statements import replaced

# Added to a float32 below 2^22, this leaves the nearest integer in the lowest bits; larger values stay larger.
_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000

# Zero points of bytes are far below; other constants may have been added by the network itself.
_MOST_MOVED = 2**15

_PAIRS = (Add, Sub, Mul, Div, Max, Min)
_ROUNDS = ("tirx.nearbyint", "tirx.round")


@dataclass(frozen=True)
class _Narrowing:
    """A float32 value, as bytes between two bounds that hold the zero point already."""

    value: Any
    zero_point: int
    low: int
    high: int
    dtype: str


def narrow_by_instructions(function: tirx.PrimFunc, *, x86: bool) -> tirx.PrimFunc:
    """A function with such expressions in the form that is quickest on x86, or elsewhere."""
    forms = _Forms(_by_conversion, _by_rounding) if x86 else _Forms(_by_addition, _by_two_additions)

    def narrowed(statement: Any) -> Any:
        if not isinstance(statement, tirx.BufferStore):
            return statement
        return tirx.BufferStore(statement.buffer, forms.written(statement.value), statement.indices)

    return function.with_body(replaced(function.body, narrowed))


@dataclass(frozen=True)
class _Forms:
    """How a CPU rounds.

    Attributes:
        bytes: gives integers of a narrowing.
        floats: gives them as float32, less the zero point, where a function goes on with them in float.
    """

    bytes: Callable[[_Narrowing], Any]
    floats: Callable[[_Narrowing], Any]

    def written(self, value: Any) -> Any:
        """An expression, all of its narrowings written so."""
        narrowing = _narrowing(value)
        if narrowing is not None:
            return self.bytes(self._inner(narrowing)).astype(narrowing.dtype)
        added = float(value.b.value) if isinstance(value, Add) and isinstance(value.b, FloatImm) else 0.0
        cast = value.a if added else value
        narrowing = _narrowing(cast.value) if isinstance(cast, Cast) and str(cast.ty.dtype) == "float32" else None
        if narrowing is not None:
            added += narrowing.zero_point
            whole = self.floats(self._inner(narrowing))
            return whole + tirx.const(added, "float32") if added else whole
        if isinstance(value, Cast):
            return self.written(value.value).astype(value.ty.dtype)
        if isinstance(value, _PAIRS):
            return type(value)(self.written(value.a), self.written(value.b))
        return value

    def _inner(self, narrowing: _Narrowing) -> _Narrowing:
        return replace(narrowing, value=self.written(narrowing.value))


def _narrowing(value: Any) -> _Narrowing | None:
    """What a value of bytes is the end of, bounds of the bytes included; None if it is something else."""
    if not isinstance(value, Max | Min) or not isinstance(value.b, IntImm):
        return _of_cast(value)
    inner, bound = _narrowing(value.a), int(value.b.value)
    if inner is None:
        return None
    either = max if isinstance(value, Max) else min
    return replace(inner, low=either(inner.low, bound), high=either(inner.high, bound))


def _of_cast(cast: Any) -> _Narrowing | None:
    dtype = str(cast.ty.dtype)
    if not isinstance(cast, Cast) or dtype not in ("int8", "uint8"):
        return None
    value, zero_point = cast.value, 0.0
    if isinstance(value, Add) and isinstance(value.b, FloatImm):
        value, zero_point = value.a, float(value.b.value)
    if not (isinstance(value, Call) and getattr(value.op, "name", "") in _ROUNDS) or str(value.ty.dtype) != "float32":
        return None
    lesser = value.args[0]
    if not (isinstance(lesser, Min) and isinstance(lesser.a, Max)):
        return None
    bounds = lesser.a.b, lesser.b
    if not all(isinstance(each, FloatImm) for each in bounds):
        return None
    low, high = (float(each.value) + zero_point for each in bounds)
    if not zero_point.is_integer() or abs(zero_point) > _MOST_MOVED:
        return None
    limits = tvm.tirx.min_value(dtype).value, tvm.tirx.max_value(dtype).value
    if not (low.is_integer() and high.is_integer() and limits[0] <= low <= high <= limits[1]):
        return None
    return _Narrowing(lesser.a.a, int(zero_point), int(low), int(high), dtype)


def _by_conversion(narrowing: _Narrowing) -> Any:
    """Bounds in float, and `vcvtps2dq`, which rounds to even."""
    zero_point = narrowing.zero_point
    rounded = tirx.call_llvm_pure_intrin("int32", "llvm.lrint", _bounded(narrowing))
    return rounded + tirx.const(zero_point, "int32") if zero_point else rounded


def _by_rounding(narrowing: _Narrowing) -> Any:
    """`vroundps`."""
    return tirx.nearbyint(_bounded(narrowing))


def _by_two_additions(narrowing: _Narrowing) -> Any:
    """An addition rounds, and a subtraction takes it away: 32-bit ARM has no instruction that rounds."""
    rounder = tirx.const(_ROUNDER, "float32")
    return tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", _bounded(narrowing) + rounder) - rounder


def _bounded(narrowing: _Narrowing) -> Any:
    """The value less the zero point, within the bounds in float."""
    bounds = narrowing.low - narrowing.zero_point, narrowing.high - narrowing.zero_point
    low, high = (tirx.const(float(bound), "float32") for bound in bounds)
    return tirx.min(tirx.max(narrowing.value, low), high)


def _by_addition(narrowing: _Narrowing) -> Any:
    """An addition rounds; a saturating subtraction takes away what was added and adds the zero point.

    Bounds are kept while values are narrowed (`sqxtn`), eight and sixteen at a time: four instructions for four values
    and two more for sixteen, where conversions and bounds in float take eight for four. 32-bit ARM has no conversion
    that rounds.
    """
    # Without the fence LLVM would contract a product and this sum into one operation, which rounds once, not twice.
    fenced = tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", narrowing.value)
    bits = tirx.reinterpret("int32", fenced + tirx.const(_ROUNDER, "float32"))
    less = tirx.const(_ROUNDER_BITS - narrowing.zero_point, "int32")
    wide = tirx.call_llvm_pure_intrin("int32", "llvm.ssub.sat", bits, less)
    half = _within(wide, -32768, 32767, "int32").astype("int16")
    return _within(half, narrowing.low, narrowing.high, "int16")


def _within(value: Any, low: int, high: int, dtype: str) -> Any:
    return tirx.max(tirx.min(value, tirx.const(high, dtype)), tirx.const(low, dtype))

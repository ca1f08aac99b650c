"""Floats to bytes: rounded, halves to even, moved by a zero point, within bounds; by the fewest instructions of a CPU.

Networks have it as `cast(round(minimum(maximum(value, low), high)) + zero_point)`, which LLVM takes literally: it makes
a rounded float first, and then integers of that. Where a function goes on with such bytes in float, it makes none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Add, Cast, FloatImm, Max, Min

from edgedeploy.compile.backends.cpu.statements import replaced, replaced_within

# Added to a float32 below 2^22, this leaves the nearest integer in the lowest bits; larger values stay larger.
_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000

# Zero points of bytes are far below; other constants may have been added by the network itself.
_MOST_MOVED = 2**15

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
    write, rounded = (_by_conversion, tirx.nearbyint) if x86 else (_by_addition, _rounded_by_addition)

    def in_float(expression: Any) -> Any:
        """Floats of bytes, as the floats that these bytes are made of."""
        if isinstance(expression, Add) and isinstance(expression.a, Add) and _is_whole(expression.a.a):
            return _moved_twice(expression)
        narrowing = _narrowing(expression.value) if isinstance(expression, Cast) else None
        if narrowing is None or str(expression.ty.dtype) != "float32":
            return expression
        value = rounded(_bounded(narrowing))
        return value + _zero_point(narrowing, "float32") if narrowing.zero_point else value

    def narrowed(statement: Any) -> Any:
        if not isinstance(statement, tirx.BufferStore):
            return statement
        value = replaced_within(statement.value, in_float)
        narrowing = _narrowing(value)
        if narrowing is not None:
            value = write(narrowing).astype(narrowing.dtype)
        return tirx.BufferStore(statement.buffer, value, statement.indices)

    return function.with_body(replaced(function.body, narrowed))


def _narrowing(cast: Any) -> _Narrowing | None:
    """What a cast is the end of; None if it is of something else."""
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


def _is_whole(value: Any) -> bool:
    """Whether a float is one that was rounded here, or as TVM does."""
    if isinstance(value, tirx.Sub):
        return isinstance(value.b, FloatImm) and float(value.b.value) == _ROUNDER
    return isinstance(value, Call) and getattr(value.op, "name", "") in _ROUNDS


def _moved_twice(total: Add) -> Any:
    """A whole number with two zero points added to it, as one with their sum."""
    moves = [each.b for each in (total.a, total)]
    if not all(isinstance(each, FloatImm) and float(each.value).is_integer() for each in moves):
        return total
    moved = sum(float(each.value) for each in moves)
    return total.a.a + tirx.const(moved, "float32") if moved else total.a.a


def _bounded(narrowing: _Narrowing) -> Any:
    low, high = (tirx.const(float(each - narrowing.zero_point), "float32") for each in (narrowing.low, narrowing.high))
    return tirx.min(tirx.max(narrowing.value, low), high)


def _zero_point(narrowing: _Narrowing, dtype: str) -> Any:
    return tirx.const(narrowing.zero_point, dtype)


def _by_conversion(narrowing: _Narrowing) -> Any:
    """Bounds in float, and `vcvtps2dq`, which rounds to even."""
    rounded = tirx.call_llvm_pure_intrin("int32", "llvm.lrint", _bounded(narrowing))
    return rounded + _zero_point(narrowing, "int32") if narrowing.zero_point else rounded


def _rounded_by_addition(value: Any) -> Any:
    """A float32 value as a whole number; 32-bit ARM has no instruction that rounds to one."""
    return value + tirx.const(_ROUNDER, "float32") - tirx.const(_ROUNDER, "float32")


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

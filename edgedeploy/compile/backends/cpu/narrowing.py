"""Floats to bytes: rounded, halves to even, moved by a zero point, within bounds; by the fewest instructions of a CPU.

Networks have it as `cast(round(minimum(maximum(value, low), high)) + zero_point)`, which LLVM takes literally: it makes
a rounded float first, and then integers of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Add, Cast, FloatImm, Max, Min

from edgedeploy.compile.backends.cpu.statements import replaced
from edgedeploy.triples import Architecture

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


def narrow_by_instructions(function: tirx.PrimFunc, architecture: Architecture) -> tirx.PrimFunc:
    """A function with such expressions in the form that is quickest on an architecture."""
    elsewhere = _by_halves if architecture.name == "aarch64" else _by_addition
    write = _by_conversion if architecture.memory_operands else elsewhere

    def narrowed(statement: Any) -> Any:
        narrowing = _narrowing(statement.value) if isinstance(statement, tirx.BufferStore) else None
        if narrowing is None:
            return statement
        return tirx.BufferStore(statement.buffer, write(narrowing).astype(narrowing.dtype), statement.indices)

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


def _by_conversion(narrowing: _Narrowing) -> Any:
    """Bounds in float, and `vcvtps2dq`, which rounds to even."""
    zero_point = narrowing.zero_point
    low, high = (tirx.const(float(bound - zero_point), "float32") for bound in (narrowing.low, narrowing.high))
    bounded = tirx.min(tirx.max(narrowing.value, low), high)
    rounded = tirx.call_llvm_pure_intrin("int32", "llvm.lrint", bounded)
    return rounded + tirx.const(zero_point, "int32") if zero_point else rounded


def _by_halves(narrowing: _Narrowing) -> Any:
    """Bounds are kept while values are narrowed (`sqxtn`), eight and sixteen at a time.

    That is four instructions for four values and two more for sixteen, where conversions and bounds in float take eight
    for four.
    """
    half = _within(_rounded(narrowing), -32768, 32767, "int32").astype("int16")
    return _within(half, narrowing.low, narrowing.high, "int16")


def _by_addition(narrowing: _Narrowing) -> Any:
    """Bounds are kept first: LLVM finds no saturating narrowing on 32-bit ARM."""
    return _within(_rounded(narrowing), narrowing.low, narrowing.high, "int32")


def _rounded(narrowing: _Narrowing) -> Any:
    """An addition rounds; a saturating subtraction takes away what was added and adds the zero point.

    32-bit ARM has no conversion that rounds.
    """
    # Without the fence LLVM would contract a product and this sum into one operation, which rounds once, not twice.
    fenced = tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", narrowing.value)
    bits = tirx.reinterpret("int32", fenced + tirx.const(_ROUNDER, "float32"))
    less = tirx.const(_ROUNDER_BITS - narrowing.zero_point, "int32")
    return tirx.call_llvm_pure_intrin("int32", "llvm.ssub.sat", bits, less)


def _within(value: Any, low: int, high: int, dtype: str) -> Any:
    return tirx.max(tirx.min(value, tirx.const(high, dtype)), tirx.const(low, dtype))

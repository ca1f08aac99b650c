"""Floats to bytes: rounded, halves to even, moved by a zero point, within bounds; by the fewest instructions of a CPU.

Networks have `cast(round(minimum(maximum(value, low), high)) + zero_point)`, or `cast(minimum(maximum(
int16(round(value)) + zero_point, low), high))` if 16 bits hold every value. LLVM takes both literally: it computes a
rounded float first, and then converts it to integers. If a function goes on with these bytes in float, none are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.tirx import Add, Cast, FloatImm, IntImm, Max, Min, Sub

from edgedeploy.compile.backends.cpu.lookup import LARGEST, STEP, function_of_byte, has_lookup, near_relu
from edgedeploy.compile.backends.cpu.statements import new_operator, replaced, replaced_within, with_body
from edgedeploy.compile.backends.cpu.steps import fuses
from edgedeploy.compile.integers.quantisation import CONVERTER, CONVERTER_BITS
from edgedeploy.compile.ir.types import limits_of
from edgedeploy.compile.operators.direct import DEPTHWISE
from edgedeploy.target.triples import Architecture

_MOST_MOVED = 2**15  # zero points of bytes are far below; the network itself may have added other constants
_HALF_A_VECTOR = 8  # bytes; LLVM puts fewer into vectors of wider types
_TRUNCATING = "avx512f"  # the feature of x86 CPUs that have an instruction to truncate vectors

# The attribute of functions whose sums are floats, but whole numbers that int32 holds.
WHOLE_SUMS = "edgedeploy.whole_sums"

_ROUNDS = ("tirx.nearbyint", "tirx.round")


# QuantizeLinear divides by its scale. A division takes a core ten to thirty cycles for a vector; a product and a fused
# multiply-add with two parts of the reciprocal take one or two (N. Brisebarre, J.-M. Muller, S. K. Raina, Accelerating
# Correctly Rounded Floating-Point Division When the Divisor Is Known in Advance, IEEE Trans. Comput. 53(8), 2004).

# Divisors between these: they, reciprocals and remainders of products are neither subnormal nor infinite.
_LEAST, _MOST = 2.0**-60, 2.0**60

# Floats that are tried on each side of a quotient halfway between two whole numbers: both methods turn over within one.
_NEIGHBOURS = 4


@dataclass(frozen=True)
class Reciprocal:
    """The reciprocal of a constant, as a sum of two float32: the nearest, and the rest."""

    first: np.float32
    second: np.float32

    def times(self, value: Any) -> Any:
        """The product with a float32 expression, rounded once, except in the product with the small part."""
        parts = (tirx.const(float(part), "float32") for part in (self.first, self.second))
        return tirx.call_intrin("float32", _PRODUCT, value, *parts)


def _by_multiply_adds(call: Call) -> Any:
    value, first, second = call.args
    numerator = tirx.Var("numerator", value.ty)
    product = tirx.call_llvm_pure_intrin(call.ty.dtype, "llvm.fma", numerator, first, numerator * second)
    return tirx.Let(numerator, value, product)


# An operator of its own: names of values are unique only when loops are no longer copied.
_ABOUT_PRODUCT = "a value times the two parts of a reciprocal"
_PRODUCT = new_operator("tirx.edgedeploy_times_reciprocal", _ABOUT_PRODUCT, _by_multiply_adds)


def reciprocal_for(divisor: float, low: float, high: float) -> Reciprocal | None:
    """The reciprocal whose products round to the same whole numbers, within bounds, as quotients do; None if none does.

    Quotient and product grow with the numerator: they round alike everywhere if they do next to each value halfway
    between two whole numbers.
    """
    divisor = float(np.float32(divisor))
    if not _LEAST < divisor < _MOST:
        return None
    found = Reciprocal(np.float32(1 / divisor), np.float32(1 / divisor - float(np.float32(1 / divisor))))
    halves = (np.arange(low, high) + 0.5) * divisor
    steps = np.arange(-_NEIGHBOURS, _NEIGHBOURS + 1, dtype=np.int32)
    numerators = (halves.astype(np.float32).view(np.int32)[:, np.newaxis] + steps).view(np.float32)
    small = (numerators * found.second).astype(np.float64)
    total = numerators.astype(np.float64) * np.float64(found.first) + small
    products = total.astype(np.float32)
    # float64 rounds the sum as well: halfway between two float32, it is not known which is right.
    beyond = np.nextafter(products, np.where(total < products, -np.inf, np.inf).astype(np.float32))
    between = total == (products.astype(np.float64) + beyond) / 2
    same = np.rint(products) == np.rint(numerators / np.float32(divisor))
    return found if same.all() and not between.any() else None


@dataclass(frozen=True)
class _Narrowing:
    """A float32 value within whole numbers `low` and `high`, rounded, halves to even, and moved by a zero point."""

    value: Any
    low: int
    high: int
    zero_point: int = 0
    dtype: str = "float32"  # of the result: bytes; float32 if the value is only rounded
    within: bool = False  # whether the value is within the bounds anyway
    short: bool = False  # whether it is an integer of 16 bits as soon as it is rounded, and with a zero point added

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low + self.zero_point, self.high + self.zero_point


def narrow_by_instructions(
    function: tirx.PrimFunc, architecture: Architecture, features: Set[str] = frozenset()
) -> tirx.PrimFunc:
    """A scheduled function with narrowing expressions in the form that is fastest on a CPU with LLVM's `features`."""
    whole = function.attrs is not None and WHOLE_SUMS in function.attrs
    looks_up = has_lookup(architecture, features)
    write: Callable[[_Narrowing, int], Any] = _by_addition
    rounded: Callable[[Any], Any] = tirx.nearbyint if architecture.memory_operands else _rounded_by_addition
    if architecture.name == "aarch64":
        write = partial(_by_halves, adds_to_shorts="dotprod" in features)
    elif architecture.memory_operands:
        write = _by_conversion if _TRUNCATING in features else _by_packing

    def inside(narrowing: _Narrowing) -> _Narrowing:
        narrowing = replace(narrowing, value=replaced_within(narrowing.value, in_float))
        return _without_division(narrowing) if fuses(features) else narrowing

    def in_float(expression: Any) -> Any:
        """Bytes that are cast back to float, less a zero point or not: the rounded floats before the first cast."""
        cast, moved = expression, 0.0
        if isinstance(expression, Add) and isinstance(expression.b, FloatImm):
            cast, moved = expression.a, float(expression.b.value)
        is_float = isinstance(cast, Cast) and str(cast.ty.dtype) == "float32"
        narrowing = _narrowing(cast.value) if is_float and moved.is_integer() else None
        if narrowing is not None:
            value, moved = rounded(_bounded(inside(narrowing))), moved + narrowing.zero_point
            return value + tirx.const(moved, "float32") if moved else value
        rounding = _rounding(expression)
        return expression if rounding is None else rounded(_bounded(inside(rounding)))

    def narrowed(statement: Any, lanes: int = 1) -> Any:
        if isinstance(statement, tirx.For) and statement.kind == tirx.ForKind.VECTORIZED:
            return with_body(statement, replaced(statement.body, partial(narrowed, lanes=int(statement.extent))))
        if not isinstance(statement, tirx.BufferStore):
            return statement
        value = replaced_within(statement.value, partial(_converted, whole=whole))
        return tirx.BufferStore(statement.buffer, stored(value, lanes), statement.indices)

    def stored(value: Any, lanes: int) -> Any:
        narrowing = _narrowing(value)
        if narrowing is None:
            return replaced_within(value, in_float)
        of_byte = function_of_byte(value) if looks_up else None
        if of_byte:
            return of_byte.written(stored(of_byte.byte, lanes))
        near = near_relu(narrowing.value, arithmetic=not architecture.memory_operands) if looks_up else None
        if near is None:
            return write(inside(narrowing), lanes)
        terms = [(near.argument, near.scale), *([] if near.added is None else [(near.added, float(STEP))])]
        scaled = [replaced_within(each, in_float) * tirx.const(scale, "float32") for each, scale in terms]
        value, *added = (write(_Narrowing(each, -LARGEST, LARGEST, dtype="int16"), lanes) for each in scaled)
        whole = near.written(value, added, narrowing.zero_point)
        return _within(whole, *narrowing.bounds).astype(narrowing.dtype)

    return function.with_body(replaced(function.body, narrowed))


def _rounding(call: Any) -> _Narrowing | None:
    """The value and bounds that a call rounds; None if it does something else."""
    lesser = call.args[0] if _rounds(call) else None
    if not (isinstance(lesser, Min) and isinstance(lesser.a, Max)):
        return None
    bounds = [float(each.value) for each in (lesser.a.b, lesser.b) if isinstance(each, FloatImm)]
    if len(bounds) < 2 or not all(each.is_integer() and abs(each) <= _MOST_MOVED for each in bounds):
        return None
    return _Narrowing(lesser.a.a, int(bounds[0]), int(bounds[1]))


def _rounds(call: Any) -> bool:
    return isinstance(call, Call) and getattr(call.op, "name", "") in _ROUNDS and str(call.ty.dtype) == "float32"


def _narrowing(value: Any) -> _Narrowing | None:
    """The narrowing that ends in a value of bytes, bounds of the bytes included; None if it is something else."""
    if not isinstance(value, Max | Min) or not isinstance(value.b, IntImm):
        return _of_cast(value)
    inner = _narrowing(value.a)
    return inner and _with_bound(inner, value)


def _with_bound(inner: _Narrowing, value: Any) -> _Narrowing:
    """A narrowing within one more bound, that of a maximum or minimum with a constant."""
    either, bound = max if isinstance(value, Max) else min, int(value.b.value) - inner.zero_point
    return replace(inner, low=either(inner.low, bound), high=either(inner.high, bound))


def _of_cast(cast: Any) -> _Narrowing | None:
    dtype = str(cast.ty.dtype)
    if not isinstance(cast, Cast) or dtype not in ("int8", "uint8"):
        return None
    value, zero_point = cast.value, 0.0
    if isinstance(value, Add) and isinstance(value.b, FloatImm):
        value, zero_point = value.a, float(value.b.value)
    found = _of_short(value) if str(value.ty.dtype) == "int16" else _rounding(value)
    if found is None or not zero_point.is_integer():
        return None
    found = replace(found, zero_point=found.zero_point + int(zero_point), dtype=dtype)
    (least, most), (low, high) = limits_of(dtype), found.bounds
    return found if least <= low <= high <= most else None


def _of_short(value: Any) -> _Narrowing | None:
    """A value that was rounded, moved and bounded in 16 bits, in any order."""
    if isinstance(value, Cast) and _rounds(value.value):
        return _Narrowing(value.value.args[0], *limits_of("int16"), dtype="int16", short=True)
    if not isinstance(value, Add | Max | Min) or not isinstance(value.b, IntImm):
        return None
    inner = _of_short(value.a)
    if inner and isinstance(value, Add):
        return replace(inner, zero_point=inner.zero_point + int(value.b.value))
    return inner and _with_bound(inner, value)


def _without_division(rounding: _Narrowing) -> _Narrowing:
    """The rounding of a product in place of a quotient; the numerator has the bounds, too."""
    quotient = rounding.value
    if not (isinstance(quotient, tirx.Div) and isinstance(quotient.b, FloatImm)):
        return rounding
    divisor = float(quotient.b.value)
    reciprocal = reciprocal_for(divisor, rounding.low, rounding.high)
    if reciprocal is None:
        return rounding
    # Otherwise infinities would be multiplied by both parts of the reciprocal, whose signs may differ.
    low, high = (tirx.const(float(np.float32(each * divisor)), "float32") for each in (rounding.low, rounding.high))
    product = reciprocal.times(tirx.min(tirx.max(quotient.a, low), high))
    return replace(rounding, value=product, within=True)


def _bounded(rounding: _Narrowing) -> Any:
    low, high = (tirx.const(float(each), "float32") for each in (rounding.low, rounding.high))
    return rounding.value if rounding.within else tirx.min(tirx.max(rounding.value, low), high)


def _by_conversion(narrowing: _Narrowing, _lanes: int) -> Any:
    """Bounds in float, and `vcvtps2dq`, which rounds to even; bounds of integers if 16 bits hold every value."""
    moved = narrowing.zero_point
    value = narrowing.value if narrowing.short else _bounded(narrowing)
    rounded = tirx.call_llvm_pure_intrin("int32", "llvm.lrint", value)
    rounded = rounded + tirx.const(moved, "int32") if moved else rounded
    return (_within(rounded, *narrowing.bounds) if narrowing.short else rounded).astype(narrowing.dtype)


def _by_packing(narrowing: _Narrowing, lanes: int) -> Any:
    """An upper bound in float, `vcvtps2dq`, which turns everything lower into the least integer, and saturating packs.

    These keep the bounds of their types; narrower ones are those of the bytes. Values of 16 bits need no bound before.
    """
    bounded, moved = narrowing.value, narrowing.zero_point
    if lanes < _HALF_A_VECTOR or narrowing.within:
        return _by_conversion(narrowing, lanes)
    if not narrowing.short:
        bounded = tirx.min(bounded, tirx.const(float(narrowing.high), "float32"))
    value = _within(tirx.call_llvm_pure_intrin("int32", "llvm.lrint", bounded), *limits_of("int16")).astype("int16")
    if moved:
        value = tirx.call_llvm_pure_intrin("int16", "llvm.sadd.sat", value, tirx.const(moved, "int16"))
    (least, most), (low, high) = limits_of(narrowing.dtype), narrowing.bounds
    value = _within(value, least, most).astype(narrowing.dtype)
    return _within(value, low, high if narrowing.short else most)


def _rounded_by_addition(value: Any) -> Any:
    """A float32 value as a whole number, for 32-bit ARM. Without the fence LLVM would cancel the addition."""
    rounder = tirx.const(CONVERTER, "float32")
    return tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", value + rounder) - rounder


def _by_halves(narrowing: _Narrowing, lanes: int, *, adds_to_shorts: bool) -> Any:
    """Narrow values by instructions that keep the bounds of a type (`sqxtn`): four for four values, two more for 16.

    Conversions and bounds in float take eight for four. Narrower bounds are those of the bytes, unless they are fewer
    than half a vector.

    In 16 bits an odd zero point takes one more addition; `adds_to_shorts` if that is faster all the same: it is not if
    one of two units multiplies and both add, as on Cortex-A72, by LLVM's model of it.
    """
    short = narrowing.short and (adds_to_shorts or narrowing.zero_point % 2 == 0)
    value = _short(narrowing) if short else _whole(narrowing)
    if narrowing.within:
        return value.astype(narrowing.dtype)
    for each in ([] if short else ["int16"]) + ([narrowing.dtype] if lanes >= _HALF_A_VECTOR else []):
        value = _within(value, *limits_of(each)).astype(each)
    return _within(value, *narrowing.bounds).astype(narrowing.dtype)


def _by_addition(narrowing: _Narrowing, _lanes: int) -> Any:
    """Apply bounds first: LLVM finds no saturating narrowing on 32-bit ARM."""
    whole = _short(narrowing) if narrowing.short else _whole(narrowing)
    return (whole if narrowing.within else _within(whole, *narrowing.bounds)).astype(narrowing.dtype)


def _whole(narrowing: _Narrowing) -> Any:
    """Round by an addition, which a saturating subtraction cancels: 32-bit ARM has no conversion that rounds."""
    less = tirx.const(CONVERTER_BITS - narrowing.zero_point, "int32")
    return tirx.call_llvm_pure_intrin("int32", "llvm.ssub.sat", _rounded_bits(narrowing, CONVERTER), less)


def _short(narrowing: _Narrowing) -> Any:
    """The lowest 16 bits of the sum, for two vectors by `uzp1`; an even zero point leaves halves rounded to even."""
    moved = narrowing.zero_point
    if moved % 2 == 0:
        return _rounded_bits(narrowing, CONVERTER + moved).astype("int16")
    return _rounded_bits(narrowing, CONVERTER).astype("int16") + tirx.const(moved, "int16")


def _rounded_bits(narrowing: _Narrowing, added: float) -> Any:
    """The bits of the sum of a value below 2^22 and `added`, the lowest of which are the nearest integer."""
    # Without the fence LLVM would contract a product and this sum into one operation, which rounds once, not twice.
    fenced = tirx.call_llvm_pure_intrin("float32", "llvm.arithmetic.fence", narrowing.value)
    return tirx.reinterpret("int32", fenced + tirx.const(added, "float32"))


def _within(value: Any, low: int, high: int) -> Any:
    """A value between bounds, without those that its type has anyway."""
    dtype = str(value.ty.dtype)
    least, most = limits_of(dtype)
    value = value if high == most else tirx.min(value, tirx.const(high, dtype))
    return value if low == least else tirx.max(value, tirx.const(low, dtype))


def _converted(expression: Any, *, whole: bool = False) -> Any:
    """A sum to which `CONVERTER_BITS` was added, read as a float32; or a whole number that was a float before."""
    moved = expression.value if isinstance(expression, Cast) and str(expression.ty.dtype) == "float32" else None
    if whole and isinstance(moved, Cast) and str(moved.ty.dtype) == "int32" and _is_sum(moved.value):
        return moved.value
    if not isinstance(moved, Sub | Add) or not isinstance(moved.b, IntImm):
        return expression
    if int(moved.b.value) != (CONVERTER_BITS if isinstance(moved, Sub) else -CONVERTER_BITS):
        return expression
    return tirx.reinterpret("float32", moved.a) - tirx.const(CONVERTER, "float32")


def _is_sum(value: Any) -> bool:
    """Whether it is one of a depthwise convolution's sums."""
    is_float = isinstance(value, TensorLoad) and str(value.ty.dtype) == "float32"
    return is_float and value.source.name.startswith(DEPTHWISE)

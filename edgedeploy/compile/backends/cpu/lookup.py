"""Functions of bytes, and functions whose results become bytes, by tables in vector registers.

A function of one byte is a table of 256. SiLU, GELU and hard-swish of a layer's sums are `max(x, 0)` and a rest that is
even in x and fades: that comes from a table of at most 128 points and straight lines between them, in 16 bits.
Exponentials and divisions take a core several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import permutations
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import Cast, FloatImm, IntImm, Shuffle, call_llvm_pure_intrin, const
from tvm_ffi import structural_equal

from edgedeploy.compile.backends.cpu.statements import new_operator
from edgedeploy.compile.backends.cpu.steps import features_of
from edgedeploy.compile.ir.elementary import POLYNOMIALS, in_registers
from edgedeploy.compile.ir.optraits import OPERATORS
from edgedeploy.compile.ir.types import is_floating
from edgedeploy.target.triples import Architecture, architecture_of

_BYTES = ("int8", "uint8")

_ARITHMETIC = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: np.divide,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
}
# The most parts of an expression, constants among them, that take less time than a table: a leaky ReLU has 20.
_ARITHMETIC_PARTS = 24

_ROUNDS = {"nearbyint", "round"}
_RELAX = {"nearbyint": "round", "pow": "power"}  # names of functions that Relax has by others

# Results are computed in sixteenths of their steps.
_FRACTION = 4
STEP = 1 << _FRACTION
_ENTRIES = (16, 32, 64, 128)
_MOST_BITS = 7  # of a place between two points
# In steps of the result: a rest that is left out, and the largest error before results are rounded.
_FADED, _LARGEST_ERROR = 1 / 8, 1 / 4
LARGEST = 2**15 - 1  # of int16; its opposite is one of int16, too
_MOST = 2**8 - 1  # that a byte of a table holds
_FAR = 2.0**20  # a value for which a function is as its limit


def has_lookup(architecture: Architecture, features: Set[str]) -> bool:
    """Whether a CPU looks up bytes in its vector registers."""
    return architecture.name == "aarch64" or "neon" in features or "ssse3" in features


def lookup(index: Any, table: np.ndarray) -> Any:
    """The byte of a table, a power of two of uint8, at an index of type uint8."""
    words = np.ascontiguousarray(table, np.uint8).view(np.int64)
    return tirx.call_intrin("uint8", _LOOKUP, index, *(IntImm("int64", int(word)) for word in words))


def _looked_up(call: Call) -> Any:
    """The instructions of the target's CPU."""
    index, *words = call.args
    whole = [each.value if isinstance(each, tirx.Broadcast) else each for each in words]
    table = np.array([int(each.value) for each in whole], np.int64).view(np.uint8)
    target = tvm.target.Target.current()
    architecture, features = architecture_of(str(target.attrs["mtriple"])), features_of(target)
    if not architecture.memory_operands:
        wide = architecture.name == "aarch64"
        name, size = ("llvm.aarch64.neon.tb", 16) if wide else ("llvm.arm.neon.vtb", 8)
        return in_registers([index], (16, 8) if wide else (8,), lambda part: _by_tables(part, table, name, size))
    if "avx512vbmi" in features:
        return in_registers([index], (64,), lambda part: _by_permutation(part, table))
    widths = {"llvm.x86.avx2.pshuf.b": 32, "llvm.x86.ssse3.pshuf.b.128": 16}
    found = {width: name for name, width in widths.items() if width == 16 or "avx2" in features}
    return in_registers([index], tuple(found), lambda part: _by_shuffles(part, table, found[part.ty.dtype.lanes]))


_LOOKUP = new_operator("tirx.edgedeploy_lookup", "a byte of a table", _looked_up)


def _vector(values: np.ndarray) -> Any:
    return Shuffle([const(int(each), "uint8") for each in values], list(range(len(values))))


def _by_tables(index: Any, table: np.ndarray, name: str, size: int) -> Any:
    """ARM's `tbl` of up to four registers; `tbx` keeps what it has for indices beyond."""
    dtype, results = str(index.ty.dtype), list[Any]()
    for start in range(0, len(table), 4 * size):
        registers = [_vector(each) for each in table[start : start + 4 * size].reshape(-1, size)]
        kind, place = "x" if results else "l", index ^ const(start, dtype)
        intrinsic = f"{name}{kind}{len(registers)}"
        results.append(call_llvm_pure_intrin(dtype, intrinsic, *results[-1:], *registers, place))
    return results[-1]


def _by_permutation(index: Any, table: np.ndarray) -> Any:
    """`vpermi2b`: the byte at the lowest seven bits of an index among those of two registers."""
    dtype, whole = str(index.ty.dtype), np.resize(table, 256).reshape(2, 2, -1)
    halves = [
        call_llvm_pure_intrin(dtype, "llvm.x86.avx512.vpermi2var.qi.512", _vector(first), index, _vector(second))
        for first, second in whole
    ]
    return halves[0] if len(table) <= 128 else tirx.Select(index < const(128, dtype), *halves)


def _by_shuffles(index: Any, table: np.ndarray, name: str) -> Any:
    """`pshufb` finds one of 16 bytes by the lowest four bits of an index, and zero if the highest is set.

    Of tables one after another, each holds the differences from the one before, in terms of exclusive or: the table of
    an index and those before it make the byte. Those behind it have negative places.
    """
    dtype, lanes, found = str(index.ty.dtype), index.ty.dtype.lanes, []
    signed = dtype.removeprefix("u")
    for start in range(0, len(table), 128):
        place = tirx.reinterpret(signed, index ^ const(start, dtype))
        rows = table[start : start + 128].reshape(-1, 16)
        for number, row in enumerate(np.vstack([rows[:1], rows[1:] ^ rows[:-1]])):
            less = call_llvm_pure_intrin(signed, "llvm.ssub.sat", place, const(16 * number, signed))
            place_in_row = tirx.reinterpret(dtype, less)
            found.append(call_llvm_pure_intrin(dtype, name, _vector(np.resize(row, lanes)), place_in_row))
    return reduce(tirx.bitwise_xor, found)


@dataclass(frozen=True)
class OfByte:
    """A function of a byte: the expression of the byte, and the bytes that the function makes of all 256."""

    byte: Any
    table: np.ndarray
    dtype: str

    def written(self, byte: Any) -> Any:
        """The function, of the byte as it is written now."""
        result = lookup(byte if str(byte.ty.dtype) == "uint8" else tirx.reinterpret("uint8", byte), self.table)
        return result if self.dtype == "uint8" else tirx.reinterpret(self.dtype, result)


def function_of_byte(value: Any) -> OfByte | None:
    """The function of one byte that an expression of bytes is; None for others, and for a little arithmetic."""
    parts = list(_parts_of(value))
    for part in parts if str(value.ty.dtype) in _BYTES else ():
        if str(part.ty.dtype) in _BYTES and part is not value:
            every = np.arange(256, dtype=np.uint8).view(str(part.ty.dtype))
            table = _evaluated(value, part, every)
            if table is None:
                continue
            computed = len(parts) - len(list(_parts_of(part))) * sum(structural_equal(each, part) for each in parts)
            if computed <= _ARITHMETIC_PARTS and not any(map(_is_elementary, parts)):
                return None
            return OfByte(part, table.view(np.uint8), str(value.ty.dtype))
    return None


@dataclass(frozen=True)
class NearRelu:
    """A function that is near a multiple of `max(x, 0)`, and a table of how it differs, which depends on `|x|` alone.

    All values are in sixteenths of a step of the result. Between two points lie `2**cell` of them, of whose places the
    uppermost `bits` count.
    """

    argument: Any
    scale: float  # what takes x to sixteenths of a step
    cell: int
    bits: int
    shift: int  # what a point moved by `bits` is in finer units, in bits
    base: int
    points: np.ndarray  # integers from 0 to 255, above the base; one more than the table has entries
    added: Any = None  # what is added to the function, in float32 and whole steps, if anything

    def written(self, value: Any, added: Sequence[Any], zero_point: int) -> Any:
        """Whole steps in int16, of x in int16, -32767 or more, and of what is added; moved by a zero point."""

        def number(each: int) -> Any:
            return const(each, "int16")

        size = tirx.min(tirx.max(value, number(0) - value), number(self._end - 1))
        index = (size >> number(self.cell)).astype("uint8")
        place = (size & number((1 << self.cell) - 1)) >> number(self.cell - self.bits)
        point = lookup(index, self.points[:-1].astype(np.uint8)).astype("int16")
        slope = tirx.reinterpret("int8", lookup(index, self._slopes.astype(np.int8).view(np.uint8))).astype("int16")
        rest = (point << number(self.bits)) + slope * place >> number(self.shift)
        moved = number(self.base + (zero_point << _FRACTION) + (1 << _FRACTION - 1))
        terms = [tirx.max(value, number(0)), rest, *added, moved]
        return reduce(partial(call_llvm_pure_intrin, "int16", "llvm.sadd.sat"), terms) >> number(_FRACTION)

    def rest(self, size: np.ndarray) -> np.ndarray:
        """The difference from the multiple of `max(x, 0)` for `|x|`, as `written` computes it."""
        size = np.minimum(size, self._end - 1)
        index, place = size >> self.cell, (size & (1 << self.cell) - 1) >> self.cell - self.bits
        return self.base + ((self.points[index] << self.bits) + self._slopes[index] * place >> self.shift)

    @property
    def _end(self) -> int:
        return len(self.points) - 1 << self.cell

    @property
    def _slopes(self) -> np.ndarray:
        return np.diff(self.points)


def near_relu(value: Any, *, arithmetic: bool) -> NearRelu | None:
    """The function near a ReLU that a float32 expression, in steps of its result, is of a part of it; else None.

    It may be the sum of such a function and of something else. `arithmetic` tells whether a function without elementary
    functions is worth it, such as hard-swish.
    """
    if isinstance(value, tirx.Div | tirx.Mul) and isinstance(value.a, tirx.Add) and _is_constant(value.b):
        for term, other in permutations((value.a.a, value.a.b)):
            found = near_relu(type(value)(term, value.b), arithmetic=arithmetic)
            if found and found.added is None and not any(map(_is_elementary, _parts_of(other))):
                return replace(found, added=type(value)(other, value.b))
    parts = list(_parts_of(value))
    for part in parts if arithmetic or any(map(_is_elementary, parts)) else ():
        if str(part.ty.dtype) == "float32" and not _is_constant(part):
            far = _evaluated(value, part, np.array([_FAR, -_FAR]))
            if far is not None and np.isfinite(far).all() and far[0] > 0 and abs(far[1]) < _FADED:
                return _near_relu(value, part, float(far[0]) / _FAR)
    return None


def _near_relu(value: Any, argument: Any, slope: float) -> NearRelu | None:
    scale, sizes = slope * STEP, np.arange(LARGEST)
    above, below = (_evaluated(value, argument, sign * sizes / scale) for sign in (1, -1))
    assert above is not None
    assert below is not None
    rest = above * STEP - sizes
    left = np.flatnonzero(np.abs(rest) > _FADED * STEP)
    if not len(left) or np.abs(rest / STEP - below).max() > _FADED / 2:
        return None
    for entries in _ENTRIES:
        cell = int(left[-1] // entries).bit_length()
        bits, places = min(cell, _MOST_BITS), np.arange(entries + 1) << cell
        points = np.append(np.where(np.abs(rest) > _FADED * STEP, rest, 0), 0)[places.clip(max=LARGEST)]
        if places[-1] > LARGEST + 1 or not points.any():  # a rest that lies between two points
            continue
        finest = math.floor(math.log2(_MOST / max(np.ptp(points), 2 * np.abs(np.diff(points)).max())))
        shift = finest + bits
        if shift < 0:
            continue
        base = math.floor(points.min())
        whole = np.rint((points - base) * 2.0**finest).astype(np.int64).clip(max=_MOST)
        found = NearRelu(argument, scale, cell, bits, shift, base, whole)
        if np.abs(found.rest(sizes) - rest).max() <= _LARGEST_ERROR * STEP:
            return found
    return None


def _is_constant(expression: Any) -> bool:
    return isinstance(expression, FloatImm | IntImm)


def _is_elementary(expression: Any) -> bool:
    return isinstance(expression, Call) and _function(expression) in POLYNOMIALS


def _function(call: Call) -> str:
    return str(getattr(call.op, "name", "")).removeprefix("tirx.")


def _operands(expression: Any) -> Sequence[Any]:
    if isinstance(expression, Cast):
        return [expression.value]
    if isinstance(expression, Call):
        return list(expression.args) if _is_elementary(expression) or _function(expression) in _ROUNDS else []
    return [expression.a, expression.b] if type(expression) in _ARITHMETIC else []


def _parts_of(expression: Any) -> Iterator[Any]:
    """An expression and its parts, the innermost first."""
    for each in _operands(expression):
        yield from _parts_of(each)
    yield expression


def _evaluated(expression: Any, part: Any, values: np.ndarray) -> np.ndarray | None:
    """An expression for all values of a part of it; None if it has other variables. Floats have the values' type."""
    if structural_equal(expression, part):
        return values
    dtype = str(expression.ty.dtype)
    if is_floating(dtype) and is_floating(str(values.dtype)):
        dtype = str(values.dtype)
    if _is_constant(expression):
        return np.asarray(expression.value, dtype)
    operands = [_evaluated(each, part, values) for each in _operands(expression)]
    if not operands or any(each is None for each in operands):
        return None
    with np.errstate(all="ignore"):
        if isinstance(expression, Cast):
            return operands[0].astype(dtype)  # type: ignore[union-attr]
        compute: Callable[..., Any] | None = _ARITHMETIC.get(type(expression))
        if compute is None:
            operator = OPERATORS[_RELAX.get(_function(expression), _function(expression))]
            assert operator.evaluate is not None
            compute = partial(operator.evaluate, expression)
        return np.asarray(compute(*operands), dtype)

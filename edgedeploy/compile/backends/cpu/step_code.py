"""The instructions of `steps`, as intrinsics of TensorIR: LLVM does not find most of them by itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from edgedeploy.compile.backends.cpu.steps import WORD, Step, part_of_word, word_of

INTERLEAVED = 8  # channels of the vectors that become words together


@cache
def intrinsic(step: Step, words: bool = False) -> str:
    """The name of a step's intrinsic, which the first call registers; `words` if its data are words."""
    name = f"{step.name}.of_words" if words else step.name
    data = _Operand((1,), WORD) if words else _Operand((step.depth,), step.data)
    weights, sums = _Operand(step.block, step.weights), _sums_of(step)

    def product(data: Any, weights: Any, spatial: list[Any], terms: list[Any]) -> Any:
        place, weight = step.operands(spatial[0], terms, *spatial[1:])
        value = part_of_word(data[0], place, step.data) if words else data[place]
        return T.cast(value, "int32") * T.cast(weights[tuple(weight)], "int32")

    multiply_add = _by_rows if step.parts > 1 else _MULTIPLY_ADDS[step.instruction]
    plain = partial(_add_one_by_one, sums.shape, step.terms, product)
    return _registered(name, [data, weights], sums, plain, partial(multiply_add, step))


def _registered(
    name: str,
    read: Sequence[_Operand],
    result: _Operand,
    plain: Callable[..., None],
    written: Callable[..., None],
    *,
    adds: bool = True,
    strided: bool = False,
) -> str:
    """Register an intrinsic: `plain` loops, and the instructions that replace them, on parts of `strided` buffers."""
    parts = [replace(each, strided=strided) for each in read]
    functions = _function(read, result, plain, adds=adds), _function(parts, result, written, adds=adds)
    TensorIntrin.register(name, *functions, override=True)  # another thread may have registered it
    return name


@cache
def joining_intrinsic(step: Step) -> str:
    """The name of the intrinsic that adds the parts of a vector of sums: three times `addp`."""
    name, channels = f"edgedeploy.joined.{step.channels}x{step.parts}", step.channels
    parts, sums = _sums_of(step), _Operand((channels,), "int32", "local")

    def plain(parts: Any, sums: Any) -> None:
        with T.grid(channels) as channel, T.sblock("joined"):
            place = T.axis.remap("S", [channel])
            T.buffer_store(sums, added_parts(step, lambda part: parts[place, part]), [place])

    def written(parts: Any, sums: Any) -> None:
        vectors = [_load(parts, [channel, 0], step.parts) for channel in range(channels)]
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [_call("int32x4", "aarch64.neon.addp.v4i32", *pair) for pair in pairs]
        _store(sums, [0], vectors[0])

    return _registered(name, [parts], sums, plain, written, adds=False)


def added_parts(step: Step, part: Callable[[int], Any]) -> Any:
    """The sum over the parts of a sum, as the intrinsic that adds them expects it."""
    return reduce(operator.add, map(part, range(step.parts)))


@cache
def words_intrinsic(step: Step) -> str:
    """The name of the intrinsic that adds to each sum the products of a word of its own, four bytes, with weights."""
    words, weights = _Operand((step.channels,), WORD, "local"), _Operand((step.channels, 4), step.weights)
    sums = _sums_of(step)

    def product(words: Any, weights: Any, spatial: list[Any], terms: list[Any]) -> Any:
        byte = part_of_word(words[spatial[0]], terms[0], step.data)
        return T.cast(byte, "int32") * T.cast(weights[spatial[0], terms[0]], "int32")

    def written(words: Any, weights: Any, sums: Any) -> None:
        values = tirx.reinterpret(f"{step.data}x{4 * step.channels}", _load(words, [0], step.channels))
        _dot_product(step, values, weights, sums)

    plain = partial(_add_one_by_one, sums.shape, [4], product)
    return _registered(f"{step.name}.words", [words, weights], sums, plain, written)


@cache
def interleaving_intrinsic(dtype: str) -> str:
    """The name of the intrinsic that puts four rows of bytes, of `INTERLEAVED` channels, into words: `zip1`, `zip2`."""
    name, channels = f"edgedeploy.interleaved.{dtype}", INTERLEAVED
    rows, words = _Operand((4, 1, channels), dtype), _Operand((channels,), WORD, "local")

    def plain(rows: Any, words: Any) -> None:
        with T.grid(channels) as channel, T.sblock("words"):
            place = T.axis.remap("S", [channel])
            T.buffer_store(words, word_of([rows[row, 0, place] for row in range(4)], dtype), [place])

    def written(rows: Any, words: Any) -> None:
        first, second, third, fourth = (_twice(rows.vload([row, 0, 0], f"{dtype}x{channels}")) for row in range(4))
        pairs = [_interleaved([first, third], 0, channels), _interleaved([second, fourth], 0, channels)]
        for begin in (0, channels):
            bytes_of_words = _interleaved(pairs, begin, channels)
            _store(words, [begin // 2], tirx.reinterpret(f"{WORD}x{channels // 2}", bytes_of_words))

    return _registered(name, [rows], words, plain, written, adds=False, strided=True)


@dataclass(frozen=True)
class _Operand:
    shape: tuple[int, ...]
    dtype: str
    scope: str = "global"
    strided: bool = False

    @property
    def strides(self) -> list[Any] | None:
        """Strides in a larger buffer, whose last dimension is contiguous; None if all dimensions are."""
        if not self.strided:
            return None
        return [*(tirx.Var(f"stride{axis}", "int32") for axis in range(len(self.shape) - 1)), 1]

    @property
    def whole(self) -> tuple[slice, ...]:
        return tuple(slice(0, size) for size in self.shape)


def _sums_of(step: Step) -> _Operand:
    parts = (step.parts,) if step.parts > 1 else ()
    return _Operand((step.channels, *parts), "int32", "local")


def _function(read: Sequence[_Operand], sums: _Operand, body: Callable[..., None], *, adds: bool = True) -> Any:
    """A function for `TensorIntrin` that reads operands and adds to sums, or only stores them."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        handles = [T.arg(f"operand{index}", T.handle()) for index in range(len(read) + 1)]
        buffers = [
            T.match_buffer(handle, each.shape, each.dtype, scope=each.scope, offset_factor=1, strides=each.strides)
            for handle, each in zip(handles, [*read, sums], strict=True)
        ]
        with T.sblock("root"):
            changed = [buffers[-1][sums.whole]] if adds else []
            T.reads(*changed, *(buffer[each.whole] for buffer, each in zip(buffers, read, strict=False)))
            T.writes(buffers[-1][sums.whole])
            body(*buffers)
    return builder.get()


def _add_one_by_one(shape: Sequence[int], terms: Sequence[int], value: Callable[..., Any], *buffers: Any) -> None:
    """Add values to sums one by one, which an intrinsic replaces."""
    *read, sums = buffers
    with T.grid(*shape, *terms) as loops, T.sblock("update"):
        axes = T.axis.remap("S" * len(shape) + "R" * len(terms), list(loops))
        spatial, reduced = axes[: len(shape)], axes[len(shape) :]
        T.buffer_store(sums, sums[tuple(spatial)] + value(*read, list(spatial), list(reduced)), list(spatial))


def _load(buffer: Any, place: Sequence[int], values: int) -> Any:
    return buffer.vload(list(place), f"{buffer.dtype}x{values}")


def _store(buffer: Any, place: Sequence[int], value: Any) -> None:
    T.buffer_store(buffer, value, [*place[:-1], T.ramp(place[-1], 1, int(value.ty.dtype.lanes))])


def _call(dtype: str, name: str, *arguments: Any) -> Any:
    return T.call_llvm_pure_intrin(T.llvm_lookup_intrinsic_id(f"llvm.{name}"), *arguments, dtype=dtype)


def _repeated(step: Step, buffer: Any) -> Any:
    """The data of a step, 32 bits, as a vector of as many copies as there are sums."""
    word = tirx.reinterpret("int32", _load(buffer, [0], int(buffer.shape[0])))
    return tirx.reinterpret(f"{step.data}x{step.depth * step.channels}", tirx.Broadcast(word, step.channels))


def _twice(value: Any) -> Any:
    """64 bits as both halves of a vector: LLVM would interleave a half alone in more instructions."""
    return tirx.reinterpret("int8x16", tirx.Broadcast(tirx.reinterpret("int64", value), 2))


def _interleaved(vectors: Sequence[Any], begin: int, count: int) -> Any:
    """`count` values of two vectors in turns, from `begin` on."""
    lanes = int(vectors[0].ty.dtype.lanes)
    return tirx.Shuffle(vectors, [place + lanes * which for place in range(begin, begin + count) for which in (0, 1)])


def _dot_product(step: Step, values: Any, weights: Any, sums: Any) -> None:
    """VNNI's instruction, or `sdot`: products of 32 bits of values by 32 bits of weights, added to each sum."""
    channels, factors = step.channels, (values, _load(weights, [0, 0], step.depth * step.channels))
    instruction = _SDOT if step.instruction == "sdot" else f"x86.avx512.{step.instruction}.{32 * channels}"
    _store(sums, [0], _call(f"int32x{channels}", instruction, _load(sums, [0], channels), *factors))


# LLVM's names of `sdot`, and of `vpmaddwd` by the number of sums.
_SDOT = "aarch64.neon.sdot.v4i32.v16i8"
_PMADDWD = {16: "x86.avx512.pmaddw.d.512", 8: "x86.avx2.pmadd.wd", 4: "x86.sse2.pmadd.wd"}


def _vpmaddwd(step: Step, data: Any, weights: Any, sums: Any) -> None:
    channels = step.channels
    factors = _repeated(step, data), _load(weights, [0, 0], 2 * channels)
    _store(sums, [0], _load(sums, [0], channels) + _call(f"int32x{channels}", _PMADDWD[channels], *factors))


def _sdot(step: Step, data: Any, weights: Any, sums: Any) -> None:
    """A dot product of four bytes for each group, with one element of a vector of input channels."""
    found, groups = _load(sums, [0], 4), step.groups
    values = _load(data, [0], int(data.shape[0]))
    words = tirx.reinterpret("int32" if groups == 1 else f"int32x{groups}", values)
    for group in range(groups):
        repeated = tirx.Broadcast(words, 4) if groups == 1 else tirx.Shuffle([words, words], [group] * 4)
        place = [group, 0, 0] if groups > 1 else [0, 0]
        factors = _load(weights, place, 16), tirx.reinterpret("int8x16", repeated)
        found = _call("int32x4", _SDOT, found, *factors)
    _store(sums, [0], found)


def _by_element(step: Step, data: Any, weights: Any, sums: Any) -> None:
    """`smlal` by lane: four products of 16 bits with one input channel. Of casts LLVM would widen the factors first."""
    multiply = {"smlal": "aarch64.neon.smull.v4i32", "vmlal.s16": "arm.neon.vmulls.v4i32"}[step.instruction]
    found, values = _load(sums, [0], 4), _load(data, [0], step.depth)
    for group in range(step.groups):
        found = found + _call("int32x4", multiply, _load(weights, [group, 0], 4), tirx.Shuffle([values], [group] * 4))
    _store(sums, [0], found)


def _by_pairs(step: Step, data: Any, weights: Any, sums: Any) -> None:
    """`smull` and `smlal2`: eight sums of two products of int8, which fit int16 unless all four are -128; their pairs.

    Two input channels of a pixel are repeated for four output channels, and two more. LLVM would move casts away from
    the products, which would be of 16 bits then.
    """
    multiply, add_pairs, repeated = _BY_PAIRS[step.instruction]
    found = _load(sums, [0], 4)
    for group in range(0, step.groups, 2):
        halves = zip(repeated(step, data, group), _halves(_load(weights, [group, 0, 0], 16)), strict=True)
        low, high = (_call("int16x8", multiply, *factors) for factors in halves)
        found = add_pairs(found, low + high)
    _store(sums, [0], found)


def _halves(vector: Any) -> list[Any]:
    return [half(vector, dtype="int8x8") for half in (T.vectorlow, T.vectorhigh)]


def _by_rows(step: Step, data: Any, weights: Any, sums: Any) -> None:
    """The same instructions of sixteen consecutive input channels, for each output channel."""
    multiply, add_pairs, _ = _BY_PAIRS[step.instruction]
    values = _load(data, [0], step.depth)
    for channel in range(step.channels):
        halves = zip(_halves(values), _halves(_load(weights, [channel, 0], step.depth)), strict=True)
        low, high = (_call("int16x8", multiply, *factors) for factors in halves)
        _store(sums, [channel, 0], add_pairs(_load(sums, [channel, 0], step.parts), low + high))


def _shuffled(step: Step, data: Any, group: int) -> list[Any]:
    """Two pairs of input channels, four times each, by one shuffle of a whole vector."""
    values = _load(data, [0], int(data.shape[0]))
    if step.reads_words:
        values = tirx.Broadcast(tirx.reinterpret("int32", values), 4)
    pairs = tirx.Shuffle([tirx.reinterpret("int16x8", values)], [group] * 4 + [group + 1] * 4)
    return _halves(tirx.reinterpret("int8x16", pairs))


def _loaded(step: Step, data: Any, group: int) -> list[Any]:
    """The same by loads that repeat: for a shuffle LLVM would move values to registers of integers and back."""

    def pair(place: int) -> Any:
        if int(data.shape[0]) == 1:
            return (data[0] >> tirx.const(16 * place, WORD)).astype("int16")
        return tirx.reinterpret("int16", _load(data, [2 * place], 2))

    return [tirx.reinterpret("int8x8", tirx.Broadcast(pair(place), 4)) for place in (group, group + 1)]


def _sadalp(sums: Any, products: Any) -> Any:
    """LLVM makes `sadalp` of this; without the fence it would add a sum's terms first, and run out of registers."""
    fenced = _call("float32x4", "arithmetic.fence", tirx.reinterpret("float32x4", sums))
    added = _call("int32x4", "aarch64.neon.saddlp.v4i32.v8i16", products)
    return tirx.reinterpret("int32x4", fenced) + added


# LLVM's name of the multiplication, and the functions that add up pairs, in 32-bit code by `vpadal.s16`, and repeat
# input channels.
_BY_PAIRS: dict[str, tuple[str, Callable[..., Any], Callable[..., list[Any]]]] = {
    "smull": ("aarch64.neon.smull.v8i16", _sadalp, _shuffled),
    "vmull.s8": ("arm.neon.vmulls.v8i16", partial(_call, "int32x4", "arm.neon.vpadals.v4i32.v8i16"), _loaded),
}

# From a step and the buffers of its data, weights and sums, to the stores of its instructions.
_MULTIPLY_ADDS: dict[str, Callable[[Step, Any, Any, Any], None]] = {
    "vpdpbusd": lambda step, data, *others: _dot_product(step, _repeated(step, data), *others),
    "vpdpwssd": lambda step, data, *others: _dot_product(step, _repeated(step, data), *others),
    "vpmaddwd": _vpmaddwd,
    "pmaddwd": _vpmaddwd,
    "sdot": _sdot,
    "smull": _by_pairs,
    "vmull.s8": _by_pairs,
    "smlal": _by_element,
    "vmlal.s16": _by_element,
}

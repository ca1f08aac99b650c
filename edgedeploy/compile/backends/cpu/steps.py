"""Inner steps of sums of integer products: what a CPU multiplies and adds at a time.

A step takes `depth` input channels of one pixel, and the weights of `channels` output channels for them, and adds the
products to int32 sums, exactly. A CPU has the steps whose features LLVM lists for its name.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.target import codegen

from edgedeploy.compile.ir.types import LayerTypes, bits_of, bytes_of
from edgedeploy.target.board import Board


@dataclass(frozen=True)
class Step:
    """One way to multiply and add integers, by an instruction that multiplies.

    The weights of `depth / groups` input channels are next to each other for all output channels, then those of the
    next group. With `parts` of a sum, which have a vector of their own and are added after the last step, input
    channels need not be repeated for output channels.
    """

    instruction: str
    data: str  # the instruction's type; narrower ones are widened beforehand
    weights: str
    channels: int  # output channels whose weights are next to each other: a vector of sums
    depth: int  # input channels
    groups: int = 1
    slots: float = 1.0  # the cost, in multiply-adds of float vectors
    adds_bytes: bool = False  # whether it also takes weights of 16 bits, each as the sum of two bytes (`in_bytes`)
    parts: int = 1

    def addends(self, weights: str) -> int:
        """How many of its weights are added for one of the type `weights`."""
        return max(1, bytes_of(weights) // bytes_of(self.weights))

    @property
    def name(self) -> str:
        """The name of its intrinsic of TensorIR."""
        parts = f".{self.parts}" if self.parts > 1 else ""
        return f"edgedeploy.{self.instruction}.{self.channels}x{self.depth}{parts}"

    @property
    def products(self) -> int:
        """Multiplications of one step."""
        return self.channels * self.depth

    @property
    def reads_words(self) -> bool:
        """Whether its input channels are 32 bits, which it reads as one."""
        return self.depth * bits_of(self.data) == bits_of(WORD)

    @property
    def adds_in_16_bits(self) -> bool:
        """Whether the products of two pairs of input channels are added in 16 bits first."""
        return self.instruction in ("smull", "vmull.s8")

    def is_written_out(self, steps: int, sums: int) -> bool:
        """Whether all steps of a tile's sums are written out: a loop takes a third of 32 inputs' time on Cortex-A72.

        It would also let the conversion of sums to bytes wait for the last step.
        """
        if self.parts > 1:
            return steps * sums <= _PARTS_WRITTEN_OUT
        few = sums <= _FEW_SUMS and steps * sums <= _WRITTEN_OUT
        return self.adds_in_16_bits and self.reads_words and few

    @property
    def registers(self) -> int:
        """ARM's registers that hold its weights."""
        if self.parts > 1:
            return self.channels
        return self.groups // 2 if self.adds_in_16_bits else self.groups

    @property
    def block(self) -> tuple[int, ...]:
        """The shape of the weights of one step."""
        together = (self.depth // self.groups,) if self.depth > self.groups else ()
        return (*((self.groups,) if self.groups > 1 else ()), self.channels, *together)

    @property
    def terms(self) -> tuple[int, ...]:
        """The products that a step adds to each sum, or part of one: groups, and those of a group, without ones."""
        found = self.groups, self.depth // self.groups
        if self.parts > 1:
            found = self.depth // (_PAIR * self.parts), _PAIR
        return tuple(each for each in found if each > 1)

    def operands(self, channel: Any, terms: Sequence[Any], part: Any = 0) -> tuple[Any, list[Any]]:
        """The input channel of a product and its weight's place in `block`; `terms` are indices of `self.terms`."""
        if self.parts > 1:
            place = (terms[0] * self.parts + part) * _PAIR + terms[1]
            return place, [channel, place]
        if self.groups == 1:
            return terms[0], [channel, terms[0]]
        if len(terms) == 1:
            return terms[0], [terms[0], channel]
        return terms[0] * (self.depth // self.groups) + terms[1], [terms[0], channel, terms[1]]


def in_bytes(weights: np.ndarray, addends: int) -> np.ndarray:
    """Weights as sums of one or two bytes, along a new first axis."""
    if addends == 1:
        return weights[np.newaxis]
    half = weights >> 1
    return np.stack([half, weights - half])


def steps_for(types: LayerTypes, board: Board) -> list[Step]:
    """The steps by which a CPU can sum up products of these types, the best first; none if LLVM does better alone."""
    if (types.accumulator, types.result) != ("int32", "int32"):
        return []
    return [
        step
        for step in all_steps(board)
        if types.data in (step.data, *_NARROWER[step.data])
        and types.weights in (step.weights, *_NARROWER[step.weights], *(["int16"] if step.adds_bytes else []))
    ]


def step_of(data: str, channels: int, depth: int, board: Board) -> Step:
    """The step of so many output and input channels of data that are read as a type, or as words."""
    found = (step for step in all_steps(board) if (step.channels, step.depth) == (channels, depth))
    return next(step for step in found if step.data == data or (step.reads_words and data == WORD))


def word_steps(types: LayerTypes, board: Board) -> list[Step]:
    """The steps whose instruction can also multiply four bytes per sum by four weights, the widest first."""
    return [step for step in steps_for(types, board) if step.instruction in ("vpdpbusd", "sdot") and step.groups == 1]


# The most vectors of sums, and steps of all of them, of code without a loop. With more LLVM spills.
_FEW_SUMS, _WRITTEN_OUT = 4, 64
_PARTS_WRITTEN_OUT = 16

_PAIR = 2  # neighbouring products that are added in one lane
SUMS_OF_BYTES = (-256, 254)  # the range of the sums of two bytes that differ by one at most
_NARROWER = {"int16": ("int8", "uint8"), "int8": (), "uint8": ()}  # the types that are widened to a type


@cache
def _features(target: str) -> frozenset[str]:
    return features_of(tvm.target.Target(target))


def cpu_features(board: Board) -> frozenset[str]:
    """The features of a board's CPU as LLVM names them."""
    return _features(json.dumps(board.cpu_target()))


def has_half(board: Board) -> bool:
    """Whether a board's CPU has instructions for arithmetic in half precision."""
    return bool(cpu_features(board) & {"fullfp16", "avx512fp16"})


def all_steps(board: Board) -> list[Step]:
    """The steps of a CPU, the best first."""
    features = cpu_features(board)
    if board.family == "x86_64":
        return list(_x86_steps(features, board.vector.bits))
    if board.family == "aarch64" and "dotprod" in features:
        return [Step("sdot", "int8", "int8", 4, 4 * each, each, slots=each, adds_bytes=True) for each in (4, 2, 1)]
    if board.family not in _NEON or "neon" not in features:
        return []
    of_bytes, of_shorts = _NEON[board.family]
    found = [Step(of_bytes, "int8", "int8", 4, 2 * each, each, slots=each) for each in (8, 2)]
    found += [Step(of_shorts, "int16", "int16", 4, each, each, slots=each) for each in (8, 4)]
    if board.in_order and board.family == "aarch64":  # which does not multiply while it repeats input channels
        found[0] = replace(found[0], groups=1, parts=4)
    return found


def _x86_steps(features: Set[str], bits: int) -> Iterator[Step]:
    """`vpdpbusd` is VNNI's. The others multiply 16 bits exactly; `vpmaddubsw`, which takes bytes, saturates."""
    for width in (512, 256, 128):
        if width > bits:
            continue
        has_vnni = "avx512vnni" in features and (width == 512 or "avx512vl" in features)
        if has_vnni or ("avxvnni" in features and width < 512):
            yield Step("vpdpbusd", "uint8", "int8", width // 32, 4)
            yield Step("vpdpwssd", "int16", "int16", width // 32, 2)
        elif {512: "avx512bw", 256: "avx2", 128: "sse2"}[width] in features:
            yield Step("vpmaddwd" if "avx" in features else "pmaddwd", "int16", "int16", width // 32, 2, slots=2)


# The instructions that multiply vectors of bytes, adding two products in 16 bits, and vectors of int16.
_NEON = {"aarch64": ("smull", "smlal"), "arm": ("vmull.s8", "vmlal.s16")}


WORD = "uint32"  # the type of words that hold the values which one step reads


def part_of_word(word: Any, place: Any, dtype: str) -> Any:
    """The value at a place in a word, counted from its lowest bits."""
    return (word >> (place * bits_of(dtype)).astype(WORD)).astype(dtype)


def word_of(values: Sequence[Any], dtype: str) -> Any:
    """Values of a type as a word, the first in its lowest bits; missing values are zero."""
    bits = bits_of(dtype)

    def part(value: Any) -> Any:
        if isinstance(value, tirx.IntImm):  # TVM reads a zero of another type as a pointer
            return tirx.const(value.value % 2**bits, WORD)
        return tirx.reinterpret(f"uint{bits}", value).astype(WORD)

    return reduce(operator.or_, (part(value) << tirx.const(bits * place, WORD) for place, value in enumerate(values)))


# LLVM's names of fused multiply-adds as features of x86, 32-bit ARM, 64-bit ARM, and RISC-V.
_FUSING = {"fma", "vfp4", "fp-armv8", "f"}


def fuses(features: Set[str]) -> bool:
    """Whether LLVM computes a product and a sum in one instruction, rounded once, on a CPU with these features."""
    return not _FUSING.isdisjoint(features)


def features_of(target: tvm.target.Target) -> frozenset[str]:
    """The features of a target's CPU as LLVM names them, with the target's own added or removed."""
    return frozenset(map(str, codegen.llvm_get_cpu_features(target)))

"""Innermost loops of ARM assembly, and what their instructions do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

# Products that are added to sums of vectors, and how many of them an instruction makes: `fmla v0.4s, ...` and
# `vfma.f32 q0, ...` of floats (`vmla.f32` is not fused); of bytes four for each of four sums, or one for each of eight;
# of 16 and of 32 bits.
PRODUCTS = {
    re.compile(r"(fml[as]\s+v\d+\.4s|v(fm|ml)[as]\.f32\s+q\d+)\b"): 4,
    re.compile(r"(fml[as]\s+v\d+\.2s|v(fm|ml)[as]\.f32\s+d\d+)\b"): 2,
    re.compile(r"sdot\s+v\d+\.4s\b"): 16,
    re.compile(r"((s(mull|mlal)2?|mul|mla)\s+v\d+\.8h|v((mull|mlal)\.s8|(mul|mla)\.i16)\s+q\d+)\b"): 8,
    re.compile(r"((s(mull|mlal)2?|mul|mla)\s+v\d+\.4s|v((mull|mlal)\.s16|(mul|mla)\.i32)\s+q\d+)\b"): 4,
}
# Arithmetic on vectors of floats, and what sums up products of bytes, multiply-adds included.
ARITHMETIC = re.compile(
    r"(f\w+\s+v\d+\.[24]s|v\w+\.f32\s+[qd]\d+|(sdot|s(mull|mlal|addw)2?|sadalp|mul|mla)\s+v\d+|v(mull|mlal|padal|addw)\.s(8|16)\s+q\d+"
    r"|v(mul|mla)\.i(16|32)\s+q\d+)\b"
)
# The same on registers of 64 bits.
HALF = re.compile(r"(f\w+\s+v\d+\.2s|v\w+\.f32\s+d\d+)\b")
LOAD = re.compile(r"(ld[a-z0-9]*|vld[a-z0-9.]*)\s")
STORE = re.compile(r"(st[a-z0-9]*|vst[a-z0-9.]*|v?push)\s")
# What an instruction computes or moves into a register of addresses, and from which: 32-bit code computes where on the
# stack a vector is (`add r0, sp, #32`). TVM's functions have no frame pointer.
ADDRESS = re.compile(r"(\w+)\s+([xr]\d+|lr|r?ip)\b,?\s*(\w+)?")
# The register by which memory is read or written: `[x0, #16]`, `vldmia r3!, {...}`.
BY = re.compile(r"(?:\[\s*|v(?:ld|st)mia\s+)(\w+)")

LABEL = re.compile(r"([.\w$]+):")
BRANCH = re.compile(r"(b|b\.?[a-z]{2}|cbn?z|tbn?z)\s(?:.*\s)?([.\w$]+)$")
# TVM's functions for one thread's part of another function, which names them.
TASK = re.compile(r"\.L__tvm_parallel_lambda[.\w]*")
# Where a function begins: `.type name,%function` or `@function`.
FUNCTION = re.compile(r"\.type\s+([^,\s]+),\s*[@%]function")


@dataclass(frozen=True)
class Loop:
    """An innermost loop: the instructions from its first label to the branch back, in the order of the text.

    Attributes:
        function: the function that it is in, or that has a thread's part of it computed there.
        instructions: without labels and directives.
        stack_accesses: those of them that read or write the stack: values for which there was no register.
    """

    function: str
    instructions: tuple[str, ...]
    stack_accesses: tuple[str, ...] = ()

    @property
    def multiply_adds(self) -> list[str]:
        """The multiply-adds of vectors."""
        return [instruction for instruction in self.instructions if _products(instruction)]

    @property
    def products(self) -> int:
        """How many values one iteration multiplies."""
        return sum(map(_products, self.instructions))

    @property
    def arithmetic(self) -> list[str]:
        """All arithmetic on vectors that are summed up."""
        return self._those(ARITHMETIC)

    @property
    def loads(self) -> list[str]:
        """What reads memory."""
        return self._those(LOAD)

    @property
    def stores(self) -> list[str]:
        """What writes memory."""
        return self._those(STORE)

    @property
    def accumulates(self) -> bool:
        """Whether it is the loop of a sum: multiply-adds, and nothing stored but to the stack."""
        return bool(self.multiply_adds) and not set(self.stores) - set(self.stack_accesses)

    def _those(self, pattern: re.Pattern[str]) -> list[str]:
        return [instruction for instruction in self.instructions if pattern.match(instruction)]


def _products(instruction: str) -> int:
    return next((count for pattern, count in PRODUCTS.items() if pattern.match(instruction)), 0)


def registers(arithmetic: Sequence[str]) -> float:
    """How many registers of 128 bits instructions compute; one of 64 bits is half."""
    return sum(0.5 if HALF.match(instruction) else 1.0 for instruction in arithmetic)


@dataclass(frozen=True)
class Nest:
    """A loop with the loops in it, or a whole function.

    Attributes:
        own: its instructions but for those of the loops in it.
        inner: these loops, in the order of the text.
    """

    own: Loop
    inner: tuple[Nest, ...] = ()

    @property
    def products(self) -> int:
        """How many values are multiplied if each loop in it runs once."""
        return self.own.products + sum(each.products for each in self.inner)


def innermost_loops(assembly: str) -> Iterator[Loop]:
    """The loops that have no other loop inside them, in the order of the text.

    Args:
        assembly: a module's code as LLVM prints it for AArch64 or 32-bit ARM.
    """

    def innermost(nest: Nest) -> Iterator[Loop]:
        for each in nest.inner:
            yield from innermost(each) if each.inner else [each.own]

    for function in nests(assembly):
        yield from innermost(function)


def nests(assembly: str) -> Iterator[Nest]:
    """The functions with their loops.

    A loop is what lies between a label and the last branch back to it. Jumps inside the loop are not followed.

    Args:
        assembly: a module's code as LLVM prints it for AArch64 or 32-bit ARM.
    """
    owners: dict[str, str] = {}  # modules that follow each other have tasks of the same names
    for function, lines in _functions(assembly):
        owners |= {task: function for task in TASK.findall("\n".join(lines)) if task != function}
        places = {match[1]: index for index, line in enumerate(lines) if (match := LABEL.match(line))}
        ends: dict[int, int] = {}
        for index, line in enumerate(lines):
            branch = BRANCH.match(line)
            if branch and places.get(branch[2], index) < index:
                ends[places[branch[2]]] = index
        yield _nest(owners.get(function, function), lines, _on_stack(lines), range(len(lines)), sorted(ends.items()))


def _nest(
    function: str, lines: Sequence[str], on_stack: Set[int], part: range, loops: Sequence[tuple[int, int]]
) -> Nest:
    """A part of a function's lines, with the loops in it, of which the first and last lines are given."""
    own, inner, place = list[int](), list[Nest](), part.start
    for first, last in loops:
        if first >= place:
            inside = [each for each in loops if first < each[0] <= last]
            inner.append(_nest(function, lines, on_stack, range(first, last + 1), inside))
            own += range(place, first)
            place = last + 1
    own += range(place, part.stop)
    own = [index for index in own if not LABEL.match(lines[index]) and lines[index][0] != "."]
    spilled = tuple(lines[index] for index in own if index in on_stack)
    return Nest(Loop(function, tuple(lines[index] for index in own), spilled), tuple(inner))


def _on_stack(lines: Sequence[str]) -> Set[int]:
    """Which lines of a function read or write the stack, by its pointer or a register that holds an address there."""
    pointers, found = {"sp"}, set[int]()
    for index, line in enumerate(lines):
        if LOAD.match(line) or STORE.match(line):
            by = BY.search(line)
            if line.startswith(("push", "vpush")) or (by and by[1] in pointers):
                found.add(index)
        if (written := ADDRESS.match(line)) and not STORE.match(line):
            pointers.discard(written[2])
            if written[1] in ("add", "mov", "sub") and written[3] in pointers:
                pointers.add(written[2])
    return found


def _functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    """Each function's name and lines, stripped of comments, blanks and indentation."""
    name, lines = "", []
    for raw in assembly.splitlines():
        line = re.split(r"//|@ |\s#\s", raw, maxsplit=1)[0].strip()
        begins = FUNCTION.match(line)
        if begins:
            if lines:
                yield name, lines
            name, lines = begins[1], []
        elif line:
            lines.append(line)
    if lines:
        yield name, lines

"""The table of triples: all that depends on a processor's architecture, one row of data for each (`triples/*.yaml`).

What is told from a triple's first part stands here once; an architecture is added by a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record

Positive = Annotated[int, Field(gt=0)]


class FloatAbi(Record):
    """How an ELF header's `e_flags` state the calling convention of floats.

    Attributes:
        mask: the bits that state it.
        hard: their value where registers of the floating-point unit pass floats of up to 64 bits.
    """

    mask: int
    hard: int


class ControlBits(Record):
    """Bits of the floating-point unit's control register, which glibc's `fegetenv` stores.

    Attributes:
        word: where the register lies in `fenv_t`, in 32-bit words.
        bits: the bits to set there.
    """

    word: int
    bits: int


class Core(Record):
    """A CPU that LLVM knows.

    Attributes:
        name: LLVM's.
        part: what /proc/cpuinfo says for it; None where its features tell.
        features: what its code relies on, as /proc/cpuinfo names it; empty where nothing is known.
        in_order: whether it executes instructions in their order, two in a cycle: a load is not hidden behind the
            arithmetic of an earlier step.
    """

    name: str
    part: str | None = None
    features: list[str] = []
    in_order: bool = False


class Vector(Record):
    """The vector unit: register width in bits, and how many registers instructions can name.

    One without a vector unit has 32 bits: its vectors are single values of float32.
    """

    bits: Literal[32, 64, 128, 256, 512]
    registers: Positive


class VectorUnit(Vector):
    """That of a machine that has these features."""

    features: list[str] = []


class Fma(Record):
    """Fused multiply-add of full vectors of float32: latency in cycles, and how many start per cycle."""

    latency: Positive
    per_cycle: Annotated[float, Field(gt=0)]


class Architecture(Record):
    """One row of the table. What is absent is not known, or does not exist.

    Attributes:
        description: one line for people.
        names: what triples, kernels and tools call it, as shell patterns; the first is ours.
        bits: of a pointer.
        elf_machine: ELF's name of it.
        float_abi: how ELF headers state the float ABI, where there is more than one.
        zig: zig's name; the triple's own if absent.
        target: what TVM's target has beside triple, CPU and features.
        memory_operands: whether multiply-adds read an operand from memory, as on x86.
        qemu: qemu's name.
        debian: Debian's name.
        suite: the Debian that virtual boards have unless another one is named.
        loader: where the loader of glibc lies in a system.
        python: what Python's wheels call it, in tags such as `manylinux_2_28_armv7l`.
        tvm_wheels: whether Apache TVM has wheels for it, so that edgedeploy itself runs there.
        flush_subnormals: the mode of arithmetic without subnormal numbers.
        instruction_pointer: where glibc's `ucontext_t` holds it, as an index of words of the size of a pointer.
        cpuinfo: lines of /proc/cpuinfo about one processor; `{features}`, `{part}` and `{name}` stand for the core's.
        generic: LLVM's name of a CPU that is not in `cpus`.
        features: those of such a CPU.
        cpus: the CPUs, newest first.
        feature_words: LLVM's feature flags beyond a CPU's own, and the words of /proc/cpuinfo for them.
        implied_features: words of /proc/cpuinfo that stand for several.
        vectors: vector units of this machine if it is one; the first whose features it has.
        fma: of this machine if it is one.
    """

    description: str
    names: Annotated[list[str], Field(min_length=1)]
    bits: Literal[32, 64]
    elf_machine: str | None = None
    float_abi: FloatAbi | None = None
    zig: str | None = None
    target: dict[str, str] = {}
    memory_operands: bool = False
    qemu: str | None = None
    debian: str | None = None
    suite: str = "bookworm"
    loader: str | None = None
    python: str | None = None
    tvm_wheels: bool = False
    flush_subnormals: ControlBits | None = None
    instruction_pointer: int | None = None
    cpuinfo: dict[str, str] = {}
    generic: str = "generic"
    features: list[str] = []
    cpus: list[Core] = []
    feature_words: dict[str, str] = {}
    implied_features: dict[str, list[str]] = {}
    vectors: Annotated[list[VectorUnit], Field(min_length=1)] = [VectorUnit(bits=128, registers=32)]
    fma: Fma = Fma(latency=4, per_cycle=2)

    @property
    def name(self) -> str:
        """Our name of it."""
        return self.names[0]

    def float_abi_of(self, flags: int) -> Literal["hard", "soft"] | None:
        """The float ABI that the flags of an ELF header state; None where there is one only."""
        if self.float_abi is None:
            return None
        return "hard" if flags & self.float_abi.mask == self.float_abi.hard else "soft"

    def core_of(self, cpuinfo: Mapping[str, str], features: Collection[str]) -> Core:
        """The core of a machine, by its lines of /proc/cpuinfo (names in lower case) and its features."""
        part = next((cpuinfo.get(name.lower()) for name, text in self.cpuinfo.items() if text == "{part}"), None)
        for core in self.cpus:
            if core.part == part if core.part else set(core.features).issubset(features):
                return core
        return Core(name=self.generic, features=self.features)

    def core(self, cpu: str) -> Core:
        """The core of LLVM's name, or the generic one."""
        known = (core for core in self.cpus if core.name == cpu)
        return next(known, Core(name=self.generic, features=self.features))

    def vector_of(self, cpu: str) -> Vector | None:
        """The vector unit of the CPU of LLVM's name; None if it is not in the table, or has what all of them have."""
        known = next((core for core in self.cpus if core.name == cpu), None)
        if known is None or len(self.vectors) == 1:
            return None
        unit = next(unit for unit in self.vectors if set(unit.features) <= set(known.features))
        return Vector(bits=unit.bits, registers=unit.registers)


ARCHITECTURES = Catalog("architecture", "triples", Architecture)


@cache
def architectures() -> tuple[Architecture, ...]:
    """The table."""
    return tuple(ARCHITECTURES.load(name) for name in ARCHITECTURES.names())


@cache
def architecture_of(name: str) -> Architecture:
    """The row of a triple, of its first part, or of what a kernel or a tool calls an architecture.

    One that the table lacks has a row in which all but its name is absent.
    """
    first = name.split("-", 1)[0]
    # Most are called as their file is: the others need not be read for them.
    rows = [ARCHITECTURES.load(first)] if first in ARCHITECTURES.names() else architectures()
    for row in rows:
        if any(fnmatchcase(first, pattern) for pattern in row.names):
            return row
    return Architecture(description="not in the table", names=[first], bits=64 if first.endswith("64") else 32)


def multiarch(triple: str) -> str:
    """GNU's triple of a four-part one, as Debian names folders of libraries: `arm-linux-gnueabihf`."""
    return f"{architecture_of(triple).name}-linux-{triple.rpartition('-')[2]}"


def architecture_of_elf(machine: str) -> Architecture | None:
    """The row of ELF's name of a machine, if the table has it."""
    return next((row for row in architectures() if row.elf_machine == machine), None)

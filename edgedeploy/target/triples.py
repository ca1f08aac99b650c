"""The table of triples: all properties of processor architectures, one row of data for each (`triples/*.yaml`).

A file adds an architecture.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from edgedeploy.base.catalog import Catalog
from edgedeploy.base.documents import Record

Positive = Annotated[int, Field(gt=0)]


class FloatAbi(Record):
    """The bits of an ELF header's `e_flags` that state the float ABI, and their value if it is the hard one."""

    mask: int
    hard: int


class ControlBits(Record):
    """Bits of the floating-point control register, which is this 32-bit word of glibc's `fenv_t`."""

    word: int
    bits: int


class Core(Record):
    """A CPU, by LLVM's name."""

    name: str
    part: str | None = None  # its part number in /proc/cpuinfo; None if its features identify it
    features: list[str] = []  # the features that its code relies on, as in /proc/cpuinfo; empty if unknown
    in_order: bool = False  # whether a load is not hidden behind the arithmetic of an earlier step


class Vector(Record):
    """The vector unit: register width in bits, and the number of registers.

    32 bits mean no vector unit: vectors are single float32 values.
    """

    bits: Literal[32, 64, 128, 256, 512]
    registers: Positive


class VectorUnit(Vector):
    """The vector unit of machines with these features."""

    features: list[str] = []


class Fma(Record):
    """Fused multiply-add of full float32 vectors: latency in cycles, and the number that start per cycle."""

    latency: Positive
    per_cycle: Annotated[float, Field(gt=0)]


class Architecture(Record):
    """One row of the table; docs/data-files.md describes its fields. Absent ones are unknown or do not apply."""

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
        """Our name."""
        return self.names[0]

    def float_abi_of(self, flags: int) -> Literal["hard", "soft"] | None:
        """The float ABI in the flags of an ELF header; None if there is only one."""
        if self.float_abi is None:
            return None
        return "hard" if flags & self.float_abi.mask == self.float_abi.hard else "soft"

    def core_of(self, cpuinfo: Mapping[str, str], features: Collection[str]) -> Core:
        """A machine's core, by its lines of /proc/cpuinfo (names in lower case) and its features."""
        part = next((cpuinfo.get(name.lower()) for name, text in self.cpuinfo.items() if text == "{part}"), None)
        for core in self.cpus:
            if core.part == part if core.part else set(core.features).issubset(features):
                return core
        return Core(name=self.generic, features=self.features)

    def core(self, cpu: str) -> Core:
        """The core by LLVM's name, or the generic one."""
        known = (core for core in self.cpus if core.name == cpu)
        return next(known, Core(name=self.generic, features=self.features))

    def vector_of(self, cpu: str) -> Vector | None:
        """The vector unit of a CPU by LLVM's name; None if it is unknown, or if all have the same."""
        known = next((core for core in self.cpus if core.name == cpu), None)
        if known is None or len(self.vectors) == 1:
            return None
        unit = next(unit for unit in self.vectors if set(unit.features) <= set(known.features))
        return Vector(bits=unit.bits, registers=unit.registers)


ARCHITECTURES = Catalog("architecture", "triples", Architecture)


@cache
def architectures() -> tuple[Architecture, ...]:
    """All rows."""
    return tuple(ARCHITECTURES.load(name) for name in ARCHITECTURES.names())


@cache
def architecture_of(name: str) -> Architecture:
    """The row of a triple, of its first part, or of an architecture's name in a kernel or tool.

    Unknown architectures get a row with a name and nothing else.
    """
    first = name.split("-", 1)[0]
    # Most have the name of their file: the other files need not be read then.
    rows = [ARCHITECTURES.load(first)] if first in ARCHITECTURES.names() else architectures()
    for row in rows:
        if any(fnmatchcase(first, pattern) for pattern in row.names):
            return row
    return Architecture(description="not in the table", names=[first], bits=64 if first.endswith("64") else 32)


def multiarch(triple: str) -> str:
    """GNU's triple for a four-part one, as in Debian's library folders: `arm-linux-gnueabihf`."""
    return f"{architecture_of(triple).name}-linux-{triple.rpartition('-')[2]}"


def architecture_of_elf(machine: str) -> Architecture | None:
    """The row by ELF's name of a machine, if any."""
    return next((row for row in architectures() if row.elf_machine == machine), None)

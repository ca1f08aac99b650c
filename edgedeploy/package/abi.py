"""What code needs of the machine that runs it, read from its ELF file, and whether a machine has that."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import ARMAttributesSection

from edgedeploy.board import Board
from edgedeploy.errors import PackageError
from edgedeploy.facts import Facts
from edgedeploy.hosts import missing_features
from edgedeploy.package.manifest import Abi
from edgedeploy.triples import architecture_of, architecture_of_elf

# Value of Tag_ABI_VFP_args, "Addenda to, and Errata in, the ABI for the Arm Architecture", section 3.3.
_VFP_REGISTERS = 1


def read_abi(library: Path, board: Board) -> Abi:
    """The needs of a shared library, with the CPU it was generated for.

    Raises:
        PackageError: the file is not ELF.
    """
    try:
        with library.open("rb") as stream:
            elf = ELFFile(stream)
            versions, libraries = set(), []
            for section in elf.iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    versions |= {aux.name for _, entries in section.iter_versions() for aux in entries}
                elif isinstance(section, DynamicSection):
                    libraries = [tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
            return Abi(
                elf_class=elf.elfclass,
                machine=elf["e_machine"],
                float_abi=_float_abi(elf),
                glibc=_newest_glibc(versions),
                libraries=sorted(libraries),
                cpu=board.cpu,
                features=list(board.features),
            )
    except ELFError as error:
        raise PackageError(f"{library} is not an ELF file", why=str(error)) from error


def needs_of(board: Board) -> Abi:
    """What any code for a board needs; which glibc and which libraries is known only of what was linked."""
    architecture = architecture_of(board.triple)
    return Abi(
        elf_class=architecture.bits,
        machine=architecture.elf_machine or architecture.name,
        float_abi=board.float_abi,
        glibc=None,
        libraries=[],
        cpu=board.cpu,
        features=list(board.features),
    )


def elf_machine(number: int) -> str:
    """ELF's name of a machine; the number where the table of triples lacks it."""
    named = (name for name, value in ENUM_E_MACHINE.items() if value == number)
    return next(filter(architecture_of_elf, named), str(number))


def machine_of(path: Path) -> tuple[str, Literal["hard", "soft"] | None] | None:
    """The machine and the float ABI that an ELF file is for, as in `Abi`; None if it is none."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            return elf["e_machine"], _float_abi(elf)
    except (OSError, ELFError):
        return None


def misfits(abi: Abi, system: Facts, name: str) -> list[str]:
    """Why code does not run on a system called `name`, each reason with both sides; empty if it does.

    What is not known of the system is not held against it.
    """
    if system.elf_machine and (abi.machine, abi.elf_class) != (system.elf_machine, system.elf_class):
        code, runs = f"{abi.machine} ({abi.elf_class} bits)", f"{system.elf_machine} ({system.elf_class} bits)"
        return [f"its code is {code}, {name} runs {runs}"]  # the rest compares within one architecture
    reasons = []
    if abi.float_abi and system.float_abi and abi.float_abi != system.float_abi:
        reasons.append(f"its code has the {abi.float_abi}-float ABI, {name} the {system.float_abi}-float one")
    if abi.glibc and system.glibc and _numbers(abi.glibc) > _numbers(system.glibc):
        reasons.append(f"it needs glibc {abi.glibc}, {name} has {system.glibc}")
    missing = missing_features(abi.cpu, system.features, abi.features)
    if missing:
        code = " ".join([abi.cpu, *(feature for feature in abi.features if feature.startswith("+"))])
        reasons.append(f"its code is for {code}, the processor of {name} lacks {', '.join(sorted(missing))}")
    return reasons


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _newest_glibc(versions: set[str]) -> str | None:
    numbers = [version.removeprefix("GLIBC_") for version in versions if version.startswith("GLIBC_")]
    numbers = [number for number in numbers if number.replace(".", "").isdigit()]
    return max(numbers, key=_numbers, default=None)


def _float_abi(elf: ELFFile) -> Literal["hard", "soft"] | None:
    """The calling convention of floats that a file states in its build attributes, as 32-bit ARM has, or its head."""
    for section in elf.iter_sections():
        if isinstance(section, ARMAttributesSection):
            for part in section.iter_subsections():
                for group in part.iter_subsubsections():
                    for attribute in group.iter_attributes("TAG_ABI_VFP_ARGS"):
                        return "hard" if attribute.value == _VFP_REGISTERS else "soft"
    architecture = architecture_of_elf(elf["e_machine"])
    return architecture.float_abi_of(elf["e_flags"]) if architecture else None

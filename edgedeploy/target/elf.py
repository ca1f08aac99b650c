"""The machine and float ABI that ELF files are for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from elftools.elf.sections import ARMAttributesSection

from edgedeploy.target.triples import architecture_of_elf

# Value of Tag_ABI_VFP_args, "Addenda to, and Errata in, the ABI for the Arm Architecture", section 3.3.
_VFP_REGISTERS = 1


def elf_machine(number: int) -> str:
    """ELF's name of a machine, or the number if it is not in the table of triples."""
    named = (name for name, value in ENUM_E_MACHINE.items() if value == number)
    return next(filter(architecture_of_elf, named), str(number))


def machine_of(path: Path) -> tuple[str, Literal["hard", "soft"] | None] | None:
    """The machine and the float ABI of an ELF file, as in `Abi`; None for other files."""
    try:
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            return elf["e_machine"], float_abi(elf)
    except (OSError, ELFError):
        return None


def float_abi(elf: ELFFile) -> Literal["hard", "soft"] | None:
    """The float calling convention in a file's build attributes (32-bit ARM) or header."""
    for section in elf.iter_sections():
        if isinstance(section, ARMAttributesSection):
            for part in section.iter_subsections():
                for group in part.iter_subsubsections():
                    for attribute in group.iter_attributes("TAG_ABI_VFP_ARGS"):
                        return "hard" if attribute.value == _VFP_REGISTERS else "soft"
    architecture = architecture_of_elf(elf["e_machine"])
    return architecture.float_abi_of(elf["e_flags"]) if architecture else None

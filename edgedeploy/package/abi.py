"""The ABI that a package's code needs, read from its ELF file, and whether a machine provides it."""

from __future__ import annotations

import re
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from edgedeploy.errors import PackageError
from edgedeploy.package.manifest import Abi
from edgedeploy.target.board import Board
from edgedeploy.target.elf import float_abi
from edgedeploy.target.facts import Facts
from edgedeploy.target.hosts import missing_features
from edgedeploy.target.triples import architecture_of

_GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)*)", re.ASCII)


def read_abi(library: Path, board: Board) -> Abi:
    """The needs of a shared library, with the CPU it was generated for."""
    try:
        with library.open("rb") as stream:
            elf = ELFFile(stream)
            versions, libraries = set(), []
            for section in elf.iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    names = (aux.name for _, entries in section.iter_versions() for aux in entries)
                    versions |= {found[1] for name in names if (found := _GLIBC.fullmatch(name))}
                elif isinstance(section, DynamicSection):
                    libraries = [tag.needed for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
            return Abi(
                elf_class=elf.elfclass,
                machine=elf["e_machine"],
                float_abi=float_abi(elf),
                glibc=max(versions, key=_numbers, default=None),
                libraries=sorted(libraries),
                cpu=board.cpu,
                features=list(board.features),
            )
    except ELFError as error:
        raise PackageError(f"{library} is not an ELF file", why=str(error)) from error


def needs_of(board: Board) -> Abi:
    """The ABI of any code for a board, without glibc and libraries, which are known after linking."""
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


def misfits(abi: Abi, system: Facts, name: str) -> list[str]:
    """Why code does not run on the system `name`, as far as is known; empty if it runs."""
    if system.elf_machine and (abi.machine, abi.elf_class) != (system.elf_machine, system.elf_class):
        code, runs = f"{abi.machine} ({abi.elf_class} bits)", f"{system.elf_machine} ({system.elf_class} bits)"
        return [f"its code is {code}, {name} runs {runs}"]  # the rest compares within one architecture
    reasons = []
    if abi.float_abi and system.float_abi and abi.float_abi != system.float_abi:
        reasons.append(f"its code has the {abi.float_abi}-float ABI, {name} the {system.float_abi}-float one")
    if abi.glibc and system.glibc and _numbers(abi.glibc) > _numbers(system.glibc):
        reasons.append(f"it needs glibc {abi.glibc}, {name} has {system.glibc}")
    if missing := missing_features(abi.cpu, system.features, abi.features):
        code = " ".join([abi.cpu, *(feature for feature in abi.features if feature.startswith("+"))])
        reasons.append(f"its code is for {code}, the processor of {name} lacks {', '.join(sorted(missing))}")
    return reasons


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]

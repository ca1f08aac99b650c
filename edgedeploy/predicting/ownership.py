"""Which function of a network each part of a record belongs to.

A package's library exports the entry of each function, `__tvm_ffi_NAME`, and no name of anything else: bodies of loops
are stripped, exponentials are the C library's. So what runs belongs to the function that was entered last, wherever it
lies, until the agent itself runs: that is the runtime, which calls the functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgedeploy.predicting.record import Mapping, Record

_ENTRY = "__tvm_ffi_"
# The owner of what belongs to no function of the network.
RUNTIME = "runtime"


@dataclass(frozen=True)
class Ownership:
    """Owners of a record.

    Attributes:
        names: of the owners; the first is `RUNTIME`.
        runs: int64 [n]: the owner of each run, as an index.
        calls: by owner, how often it is entered; the runtime never is.
    """

    names: Sequence[str]
    runs: np.ndarray
    calls: Sequence[int]


def owners(record: Record) -> Ownership:
    """The owner of each run of a record."""
    places = _Places(record.mappings)
    entries = exported_functions(record.library)
    names = [RUNTIME]
    entered = np.full(len(record.blocks), -1)  # by block: the owner that begins with it
    side = np.full(len(record.blocks), -1)  # by block: 0 in the agent, 1 in the network's library
    for index, block in enumerate(record.blocks):
        path, offset = places.of(block.address)
        if path == record.agent:
            side[index] = 0
        elif path == record.library:
            side[index] = 1
            if offset in entries:
                if entries[offset] not in names:
                    names.append(entries[offset])
                entered[index] = names.index(entries[offset])
    ran = record.runs[:, 0]
    begun = entered[ran]
    functions, sides = _latest(begun), _latest(side[ran])
    calls = np.bincount(begun[begun >= 0], minlength=len(names)).tolist()
    return Ownership(names, np.where((sides == 0) | (functions < 0), 0, functions), calls)


def owners_by_file(record: Record) -> Ownership:
    """The files that what runs lies in: of other engines' code that is all that is told apart."""
    places = _Places(record.mappings)
    of_block = [places.of(block.address)[0] for block in record.blocks]
    names = sorted({path.name if path else RUNTIME for path in of_block})
    indices = np.array([names.index(path.name if path else RUNTIME) for path in of_block])
    return Ownership(names, indices[record.runs[:, 0]], [0] * len(names))


def _latest(values: np.ndarray) -> np.ndarray:
    """For each place the last value up to there that is not negative; a negative one where there is none."""
    places = np.maximum.accumulate(np.where(values >= 0, np.arange(len(values)), 0))
    return np.asarray(values[places])


def exported_functions(library: Path) -> dict[int, str]:
    """By offset in a network's library, the functions that begin there."""
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        symbols = [
            (symbol.name, symbol["st_value"])
            for symbol in (table.iter_symbols() if table else ())
            if symbol.name.startswith(_ENTRY) and symbol["st_shndx"] != "SHN_UNDEF"
        ]
        found = {}
        for name, address in symbols:
            for offset in elf.address_offsets(address):
                found[offset] = name.removeprefix(_ENTRY).removesuffix("_scheduled")
    return found


class _Places:
    """Finds the file, and the offset in it, of addresses in a program's memory."""

    def __init__(self, mappings: Sequence[Mapping]) -> None:
        self._mappings = sorted(mappings, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self._mappings]

    def of(self, address: int) -> tuple[Path | None, int]:
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._mappings[index].end:
            return None, 0
        mapping = self._mappings[index]
        return mapping.path, address - mapping.start + mapping.offset

"""A recorded inference: blocks of instructions, the function of the network that each run belongs to, and samples.

A package's library exports the entry of each function, `__tvm_ffi_NAME`, and no other names: bodies of loops are
stripped, exponentials are the C library's. So code belongs to the function that was entered last, in any file, until
the agent itself runs: that is the runtime, which calls the functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np

from edgedeploy.errors import UnsupportedError

# The counters of each block, in the order of `enum counter` in native/caches.h.
MISSES = (
    *("l2_foreseen", "l2_random", "l2_store"),
    *("l3_foreseen", "l3_random", "l3_store"),
    *("memory_foreseen", "memory_random", "memory_store", "memory_written_back"),
)

BLOCKS, TRACE = "blocks", "trace"  # the files that the recorder writes
WIDTH, LINE = 4, 64  # bytes of an instruction of 64-bit ARM, and of a line of its caches

_ENTRY = "__tvm_ffi_"
RUNTIME = "runtime"  # the owner of code outside the network's functions

# Instructions of a window: the lead, which fills the pipeline, and the measured ones after it.
LEAD, MEASURED = 500, 1500
# Windows of a record, in proportion to the instructions of its functions, and the fewest of each function.
WINDOWS, FEWEST = 400, 12


@dataclass(frozen=True)
class Block:
    """Instructions that run one after another; `misses` are lines of 64 bytes, in the order of `MISSES`."""

    address: int
    code: bytes
    misses: tuple[int, ...] = (0,) * len(MISSES)

    @property
    def length(self) -> int:
        """How many instructions there are."""
        return len(self.code) // WIDTH


@dataclass(frozen=True)
class Mapping:
    """A part of a file in the program's memory: addresses from `start` to before `end`, the file's from `offset` on."""

    start: int
    end: int
    offset: int
    path: Path


@dataclass(frozen=True)
class Record:
    """One inference of a network's library in a program, the agent; both as mappings name them.

    `runs`, int64 [n, 2], are in the order of time: the index of a block, and how often it ran before another one did.
    """

    blocks: Sequence[Block]
    runs: np.ndarray
    mappings: Sequence[Mapping]
    agent: Path
    library: Path

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 [blocks]: the instructions of each block."""
        return np.array([block.length for block in self.blocks], np.int64)

    @cached_property
    def instructions_of_runs(self) -> np.ndarray:
        """int64 [n]: the instructions of each run."""
        return np.asarray(self.lengths[self.runs[:, 0]] * self.runs[:, 1])

    def places(self) -> list[tuple[Path | None, int]]:
        """The file of each block, and the offset in it; None if it is in no file."""
        mappings = sorted(self.mappings, key=lambda mapping: mapping.start)
        starts = [mapping.start for mapping in mappings]
        found: list[tuple[Path | None, int]] = []
        for block in self.blocks:
            index = bisect_right(starts, block.address) - 1
            if index < 0 or block.address >= mappings[index].end:
                found.append((None, 0))
            else:
                mapping = mappings[index]
                found.append((mapping.path, block.address - mapping.start + mapping.offset))
        return found


def read_record(folder: Path, *, agent: Path, library: Path) -> Record:
    """Read the files of a recording, in which files have their real paths, however `agent` and `library` name them."""
    places: dict[int, int] = {}
    blocks: list[Block] = []
    mappings: list[Mapping] = []
    for line in (folder / BLOCKS).read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        kind, rest = line.split(" ", 1)
        if kind == "block":
            number, address, *misses, code = rest.split(" ")
            places[int(number)] = len(blocks)
            blocks.append(Block(int(address, 16), bytes.fromhex(code), tuple(map(int, misses))))
        else:
            start, end, offset, path = rest.split(" ", 3)
            mappings.append(Mapping(int(start, 16), int(end, 16), int(offset, 16), Path(path)))
    runs = np.fromfile(folder / TRACE, np.uint32).reshape(-1, 2).astype(np.int64)
    if not len(runs):
        raise UnsupportedError("nothing was recorded", why="the program ended before its second inference")
    index = np.zeros(max(places) + 1, np.int64)
    index[list(places)] = list(places.values())
    runs[:, 0] = index[runs[:, 0]]
    return Record(blocks, runs, mappings, agent.resolve(), library.resolve())


@dataclass(frozen=True)
class Ownership:
    """The owners of a record: the first is `RUNTIME`, which is never entered by a call.

    `runs`, int64 [n], has the index of the owner of each run; `calls` how often each owner is entered.
    """

    names: Sequence[str]
    runs: np.ndarray
    calls: Sequence[int]


def owners(record: Record) -> Ownership:
    """The function of the network that each run of a record belongs to."""
    entries = exported_functions(record.library)
    numbers = {RUNTIME: 0}  # of the owners
    entered = np.full(len(record.blocks), -1)  # by block: the owner that begins with it
    side = np.full(len(record.blocks), -1)  # by block: 0 in the agent, 1 in the network's library
    for index, (path, offset) in enumerate(record.places()):
        if path == record.agent:
            side[index] = 0
        elif path == record.library:
            side[index] = 1
            if offset in entries:
                entered[index] = numbers.setdefault(entries[offset], len(numbers))
    ran = record.runs[:, 0]
    begun = entered[ran]
    functions, sides = _latest(begun), _latest(side[ran])
    calls = np.bincount(begun[begun >= 0], minlength=len(numbers)).tolist()
    return Ownership(list(numbers), np.where((sides == 0) | (functions < 0), 0, functions), calls)


def owners_by_file(record: Record) -> Ownership:
    """The file that each run belongs to: other engines' functions cannot be told apart."""
    of_block = [path.name if path else RUNTIME for path, _ in record.places()]
    names, indices = np.unique(of_block, return_inverse=True)
    return Ownership(names.tolist(), indices[record.runs[:, 0]], [0] * len(names))


def _latest(values: np.ndarray) -> np.ndarray:
    """For each place the last value up to there that is not negative; a negative value without one."""
    places = np.maximum.accumulate(np.where(values >= 0, np.arange(len(values)), 0))
    return np.asarray(values[places])


def exported_functions(library: Path) -> dict[int, str]:
    """The functions that a network's library exports, by their offset in the file."""
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        return {
            offset: symbol.name.removeprefix(_ENTRY).removesuffix("_scheduled")
            for symbol in (table.iter_symbols() if table else ())
            if symbol.name.startswith(_ENTRY) and symbol["st_shndx"] != "SHN_UNDEF"
            for offset in elf.address_offsets(symbol["st_value"])
        }


@dataclass(frozen=True)
class Window:
    """Blocks that ran one after another, by index: a lead to fill the pipeline, then measured ones."""

    lead: tuple[int, ...]
    measured: tuple[int, ...]


def windows(record: Record, ownership: Ownership, number: int = WINDOWS) -> dict[int, list[Window]]:
    """By owner, windows at even distances in the instructions of the owner; their measured part is its own."""
    lengths = record.instructions_of_runs
    total = int(lengths.sum())
    found = {}
    for owner in np.unique(ownership.runs).tolist():
        own = np.flatnonzero(ownership.runs == owner)
        ends = np.cumsum(lengths[own])
        count = max(FEWEST, round(number * int(ends[-1]) / total))
        positions = ((np.arange(count) + 0.5) * int(ends[-1]) / count).astype(np.int64)
        places = np.searchsorted(ends, positions, "right")
        found[owner] = [
            _window(record, ownership, int(own[place]), int(position - (ends[place - 1] if place else 0)))
            for place, position in zip(places.tolist(), positions.tolist(), strict=True)
        ]
    return found


def _window(record: Record, ownership: Ownership, run: int, into: int) -> Window:
    """The window whose measured part begins `into` instructions after the beginning of a run."""
    done = into // int(record.lengths[record.runs[run, 0]])
    lead = _up_to(record, _backwards(record.runs, run, done), LEAD)
    measured = _up_to(record, _forwards(record.runs, run, done, ownership), MEASURED)
    return Window(tuple(reversed(lead)), tuple(measured))


def _up_to(record: Record, blocks: Iterator[int], instructions: int) -> list[int]:
    """The first blocks, up to a total number of `instructions`."""
    taken: list[int] = []
    for block in blocks:
        taken.append(block)
        instructions -= int(record.lengths[block])
        if instructions <= 0:
            break
    return taken


def _backwards(runs: np.ndarray, run: int, done: int) -> Iterator[int]:
    """The blocks before one, the nearest first; in its own run, it ran `done` times before."""
    yield from repeat(int(runs[run, 0]), done)
    for earlier in range(run - 1, -1, -1):
        block, times = runs[earlier].tolist()
        yield from repeat(block, times)


def _forwards(runs: np.ndarray, run: int, done: int, ownership: Ownership) -> Iterator[int]:
    """The blocks from one on as long as they belong to the same owner."""
    owner = ownership.runs[run]
    while run < len(runs) and ownership.runs[run] == owner:
        block, times = runs[run].tolist()
        yield from repeat(block, times - done)
        run, done = run + 1, 0

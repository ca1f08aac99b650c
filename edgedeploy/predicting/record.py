"""What the recorder wrote: which blocks of instructions ran, in which order, and what they missed in the caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from edgedeploy.errors import UnsupportedError

# What is counted of each block, in the order of `enum counter` in native/caches.h.
MISSES = (
    "l2_foreseen",
    "l2_random",
    "l2_store",
    "l3_foreseen",
    "l3_random",
    "l3_store",
    "memory_foreseen",
    "memory_random",
    "memory_store",
    "memory_written_back",
)

# The files that the recorder writes.
BLOCKS, TRACE = "blocks", "trace"

# Bytes of an instruction of 64-bit ARM.
WIDTH = 4


@dataclass(frozen=True)
class Block:
    """Instructions that run one after another.

    Attributes:
        address: where the first one lies in the program's memory.
        code: their bytes.
        misses: lines of 64 bytes that they missed, as `MISSES` names them.
    """

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
    """One inference.

    Attributes:
        blocks: those that ran.
        runs: int64 [n, 2]: in the order of time, the index of a block, and how often it ran before another one did.
        mappings: the files in the program's memory.
        agent, library: the program, and the network's library, as mappings name them.
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

    @property
    def instructions(self) -> int:
        """All that ran."""
        return int(self.instructions_of_runs.sum())


def read_record(folder: Path, *, agent: Path, library: Path) -> Record:
    """Read the files of a recording."""
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
    return Record(blocks, runs, mappings, agent, library)

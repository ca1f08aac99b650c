"""Windows of a record, at even distances in what each function executes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from edgedeploy.predicting.ownership import Ownership
from edgedeploy.predicting.record import Record

# Instructions of a window: those that fill the pipeline first, and those that are measured then.
LEAD, MEASURED = 500, 1500
# Windows of a record, in proportion to what functions execute, and at least so many of each function.
WINDOWS, FEWEST = 400, 12


@dataclass(frozen=True)
class Window:
    """Blocks that ran one after another, as indices into a record's: those that lead, and those that are measured."""

    lead: tuple[int, ...]
    measured: tuple[int, ...]


def windows(record: Record, ownership: Ownership, number: int = WINDOWS) -> dict[int, list[Window]]:
    """By owner, windows whose measured part is its own."""
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
    """The window that is measured from the block on which is so many instructions into a run."""
    block, _ = record.runs[run].tolist()
    done = into // int(record.lengths[block])
    lead = _up_to(record, _backwards(record.runs, run, done), LEAD)
    measured = _up_to(record, _forwards(record.runs, run, done, ownership), MEASURED)
    return Window(tuple(reversed(lead)), tuple(measured))


def _up_to(record: Record, blocks: Iterator[int], instructions: int) -> list[int]:
    """The first blocks that have so many instructions together."""
    taken: list[int] = []
    for block in blocks:
        taken.append(block)
        instructions -= int(record.lengths[block])
        if instructions <= 0:
            break
    return taken


def _backwards(runs: np.ndarray, run: int, done: int) -> Iterator[int]:
    """The blocks before one, the nearest first: the run that it is in was `done` so often before."""
    block = int(runs[run, 0])
    for _ in range(done):
        yield block
    for earlier in range(run - 1, -1, -1):
        block, times = runs[earlier].tolist()
        for _ in range(times):
            yield block


def _forwards(runs: np.ndarray, run: int, done: int, ownership: Ownership) -> Iterator[int]:
    """The blocks from one on as long as they belong to the same owner."""
    owner = ownership.runs[run]
    while run < len(runs) and ownership.runs[run] == owner:
        block, times = runs[run].tolist()
        for _ in range(times - done):
            yield block
        run, done = run + 1, 0

"""The recorder's model of the data caches, in C, against one in Python that is written for plainness."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgedeploy.predicting.record import MISSES
from edgedeploy.predicting.tools import NATIVE
from edgedeploy.target.board import load_board
from edgedeploy.target.toolchain import c_compiler, run_tool

PROGRAM = Path(__file__).parents[1] / "support" / "cache_program.c"
# Bytes and ways of each level; nothing is a level that there is not.
PI_4 = ((32 << 10, 2), (1 << 20, 16), (0, 0))
PI_5 = ((64 << 10, 4), (512 << 10, 8), (2 << 20, 16))
TINY = ((512, 2), (2048, 4), (0, 0))
TINY_OF_THREE = ((256, 1), (1024, 2), (4096, 8))

Access = tuple[int, int, bool]  # instruction, address, whether it stores


class Level:
    """A cache of lines, of which the least recently used of a set goes."""

    def __init__(self, size: int, ways: int) -> None:
        self.ways = ways
        self.sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(size // 64 // ways)]

    def take(self, line: int, dirty: bool) -> tuple[bool, tuple[int, bool] | None]:
        """Whether the line is there, and the one that had to go with whether it was written to."""
        lines = self.sets[line % len(self.sets)]
        hit = line in lines
        gone = lines.popitem(last=False) if not hit and len(lines) == self.ways else None
        lines[line] = lines.pop(line, False) or dirty
        return hit, gone


def misses(sizes: Sequence[tuple[int, int]], accesses: Sequence[Access]) -> dict[str, int]:
    """What the accesses miss, by the rules that native/caches.h states."""
    l1, l2, l3 = (Level(*size) if size[0] else None for size in sizes)
    assert l1 is not None
    counts = dict.fromkeys(MISSES, 0)
    last: dict[int, int] = {}
    strides: dict[int, int] = {}
    streams = [0] * 16
    oldest = 0

    def written_back(gone: tuple[int, bool] | None) -> None:
        counts["memory_written_back"] += bool(gone and gone[1] and not l3)

    for instruction, address, store in accesses:
        line = address // 64
        hit, gone = l1.take(line, store)
        if hit:
            continue
        if gone and gone[1]:
            written_back(l2.take(gone[0], True)[1] if l2 else gone)
        stride = line - last.get(instruction, 0)
        foreseen = last.get(instruction, 0) != 0 and stride == strides.get(instruction) and abs(stride) < 64
        last[instruction], strides[instruction] = line, stride
        beside = next((place for place, other in enumerate(streams) if abs(other - line) == 1), None)
        if beside is None:
            streams[oldest] = line
            oldest = (oldest + 1) % len(streams)
        else:
            streams[beside], foreseen = line, True
        level = "memory"
        if l2:
            hit, gone = l2.take(line, False)
            if hit:
                level = "l2"
            else:
                written_back(gone)
        if level == "memory" and l3 and l3.take(line, False)[0]:
            level = "l3"
        counts[f"{level}_{'store' if store else 'foreseen' if foreseen else 'random'}"] += 1
    return counts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("caches") / "caches.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", "-shared", "-fPIC"]
    run_tool([*c_compiler(load_board("local")).command, *options, "-o", str(library), str(PROGRAM)], timeout_s=600)
    return ctypes.CDLL(str(library))


def counted(model: ctypes.CDLL, sizes: Sequence[tuple[int, int]], accesses: Sequence[Access]) -> dict[str, int]:
    given = np.array(accesses, np.uint64)
    counters = np.zeros(len(MISSES), np.uint64)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (np.array(sizes, np.uint64), given, counters)]
    number, instructions = ctypes.c_uint64(len(given)), ctypes.c_uint64(int(given[:, 0].max()) + 1)
    assert model.count_misses(*pointers[:2], number, instructions, pointers[2]) == 0
    return dict(zip(MISSES, counters.tolist(), strict=True))


@pytest.mark.parametrize("sizes", [TINY, TINY_OF_THREE, PI_4, PI_5], ids=["tiny", "tiny-l3", "pi-4", "pi-5"])
@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_plain_model(model: ctypes.CDLL, sizes: Sequence[tuple[int, int]], seed: int) -> None:
    """Streams, strides, columns and random accesses, of loads and stores, mixed; more than the largest cache holds."""
    random = np.random.default_rng(seed)
    room = 3 * max(size for size, _ in sizes)
    accesses: list[Access] = []
    for _ in range(60):
        instruction, store = int(random.integers(0, 8)), bool(random.integers(0, 2))
        start, step = int(random.integers(4096, room)), int(random.choice([4, 16, 64, 128, 192, 4096, -64]))
        addresses = start + step * np.arange(300) if random.random() < 0.7 else random.integers(4096, room, 300)
        accesses += [(instruction, int(address) % room + 4096, store) for address in addresses]
    assert counted(model, sizes, accesses) == misses(sizes, accesses)
    assert sum(misses(sizes, accesses).values()) > 100


def test_what_fits_misses_once(model: ctypes.CDLL) -> None:
    pass_over = [(0, address, False) for address in range(1 << 20, (1 << 20) + (32 << 10), 16)]
    counts = counted(model, PI_4, pass_over * 3)
    assert sum(counts.values()) == 512
    assert counts["memory_foreseen"] == 511
    assert counts["memory_random"] == 1


def test_what_is_written_goes_back_to_memory_once(model: ctypes.CDLL) -> None:
    lines = (4 << 20) // 64
    writes = [(0, (1 << 24) + 64 * line, True) for line in range(lines)]
    counts = counted(model, PI_4, writes)
    assert counts["memory_store"] == lines
    # The rest is still in the caches: the second holds what the first gave up, and lines that the first has too.
    assert lines - ((1 << 20) + (32 << 10)) // 64 <= counts["memory_written_back"] <= lines - (1 << 20) // 64


def test_a_cache_without_room_for_a_line_is_refused(model: ctypes.CDLL) -> None:
    with pytest.raises(AssertionError):
        counted(model, ((64, 2), (0, 0), (0, 0)), [(0, 64, False)])

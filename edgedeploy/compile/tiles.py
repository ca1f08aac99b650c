"""Register tiles, and the arithmetic of tiles and vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgedeploy.target.board import Positive


@dataclass(frozen=True)
class Tile:
    """Output pixels (rows x columns) and output channels whose sums are in registers at the same time."""

    rows: Positive
    columns: Positive
    channels: Positive

    def whole(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns rounded up to whole tiles."""
        return round_up(height, self.rows), round_up(width, self.columns)

    def useful(self, height: int, width: int) -> float:
        """The part of the computed pixels that is not cropped."""
        return height * width / math.prod(self.whole(height, width))

    def __str__(self) -> str:
        pixels = f"{self.rows} x {self.columns}" if self.rows > 1 else f"{self.columns}"
        return f"{pixels} pixels x {self.channels} channels"


ONE_BY_ONE = Tile(1, 1, 1)


def row_tiles(channels: int, length: int, counts: Iterable[int], most: Callable[[int], int]) -> list[Tile]:
    """Tiles of one row, of `counts` of vectors that divide the channels, and `most` columns for a count."""
    return [
        Tile(1, columns, count * length)
        for count in counts
        if channels % (count * length) == 0
        for columns in range(1, most(count) + 1)
    ]


# Less work, in cycles, is not worth other threads: they begin and end a microsecond or two later than the first one.
_SERIAL_CYCLES = 6_000

_MOST_WRITTEN_OUT = 16  # of steps of a convolution's sum, each of up to thirty multiply-adds


@dataclass(frozen=True)
class WeightOrder:
    """How a convolution goes through its weights."""

    # Whether all pixels use a tile's weights before the next tile's; otherwise all weights are used for a few rows of
    # pixels before the next rows.
    by_channels: bool = False
    # The parts of a tile's weights, each used for all pixels before the next: as many as there are rows of the kernel,
    # or one; for a kernel of one row, any number that divides the input channels.
    slices: int = 1
    interval: int = 0  # the steps of the sum between two fetches of the next slice; 0 if it is not fetched ahead
    panel: int = 1  # if not `by_channels`, how many tiles of a row use a tile's weights before the next tile's

    @property
    def written_out(self) -> int:
        """The steps of the sum that follow each other in the code: they divide `interval`.

        The code generator knows which of them fetches. More of them take LLVM seconds for each function, and the first
        cache of instructions does not hold them.
        """
        return max(count for count in divisors(max(1, self.interval)) if count <= _MOST_WRITTEN_OUT)


def round_up(number: int, step: int) -> int:
    """The least multiple of `step` from `number` on."""
    return -(-number // step) * step


def ravelled(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """The flat index of an element of an array; of numbers, or TVM's expressions."""
    place: Any = 0
    for index, size in zip(indices, shape, strict=True):
        place = place * size + index
    return place


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [value for value in range(1, number + 1) if number % value == 0]


def vector_length(extent: int, lanes: int) -> int:
    """The longest power of two up to `lanes` that divides an extent."""
    length = lanes
    while extent % length:
        length //= 2
    return length


def padded_count(channels: int, lanes: int) -> int:
    """Channels rounded up to whole vectors.

    Tiles of several vectors must divide it: one vector alone would wait for its own sums. So it is a multiple of four
    vectors if that adds less than a thirtieth. Counts below a whole vector become a power of two of at least 4, for
    shorter vectors.
    """
    if channels >= lanes:
        fours = round_up(channels, 4 * lanes)
        return fours if fours - channels <= channels / 30 else round_up(channels, lanes)
    return max(4, 1 << (channels - 1).bit_length())


def is_worth_threads(operations: float, rate: float) -> bool:
    """Whether work is worth other threads; `rate` is the operations of a core per cycle."""
    return operations > _SERIAL_CYCLES * rate


def imbalance(tasks: int, cores: int) -> float:
    """The time of equal tasks on all cores, relative to tasks that could be cut to fit."""
    return -(-tasks // cores) * cores / tasks

"""Register tiles, and the arithmetic of tiles and vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgedeploy.board import Positive


@dataclass(frozen=True)
class Tile:
    """Output pixels (rows x columns) and output channels whose sums are in registers at the same time."""

    rows: Positive
    columns: Positive
    channels: Positive

    def whole(self, height: int, width: int) -> tuple[int, int]:
        """The least rows and columns, at least as many, that whole tiles cover."""
        return round_up(height, self.rows), round_up(width, self.columns)

    def useful(self, height: int, width: int) -> float:
        """The part of the computed pixels that is not cropped."""
        return height * width / math.prod(self.whole(height, width))

    def __str__(self) -> str:
        pixels = f"{self.rows} x {self.columns}" if self.rows > 1 else f"{self.columns}"
        return f"{pixels} pixels x {self.channels} channels"


ONE_BY_ONE = Tile(1, 1, 1)

# Work of so many cycles is not worth other threads: they begin and end a microsecond or two later than the first one.
_SERIAL_CYCLES = 6_000

# Of steps of a convolution's sum, each of up to thirty multiply-adds.
_MOST_WRITTEN_OUT = 16


@dataclass(frozen=True)
class WeightOrder:
    """How a convolution goes through its weights.

    Attributes:
        by_channels: whether all pixels use a tile's weights before the next tile's; otherwise all weights are used for
            a few rows of pixels before the next rows.
        slices: in how many parts a tile's weights are used, each for all pixels before the next: as many as there are
            rows of the kernel, or one; of a kernel of one row, any number that divides the input channels.
        interval: where the next slice is fetched ahead, the steps of the sum between two fetches; 0 where it is not.
        panel: otherwise, how many tiles of a row of them use a tile's weights before the next tile's.
    """

    by_channels: bool = False
    slices: int = 1
    interval: int = 0
    panel: int = 1

    @property
    def written_out(self) -> int:
        """How many steps of the sum follow each other in the code: up to `interval`, which they divide.

        Which step fetches is known of these when the code is generated. More of them take LLVM seconds for each
        function, and the first cache of instructions does not hold them.
        """
        return max(count for count in divisors(max(1, self.interval)) if count <= _MOST_WRITTEN_OUT)


def round_up(number: int, step: int) -> int:
    """The least multiple of `step` that is not below `number`."""
    return -(-number // step) * step


def ravelled(indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """The place in memory of an element of an array: numbers, or TVM's expressions."""
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
    """The least number of channels, at least as many, that fills vectors without a tail.

    Tiles of several vectors need numbers that these divide: one vector alone would wait for its own sums. So it is
    four vectors where that adds less than a thirtieth. Counts below a whole vector become a power of two of at
    least 4: shorter vectors serve them.
    """
    if channels >= lanes:
        fours = round_up(channels, 4 * lanes)
        return fours if fours - channels <= channels / 30 else round_up(channels, lanes)
    return max(4, 1 << (channels - 1).bit_length())


def is_worth_threads(operations: float, rate: float) -> bool:
    """Whether work is worth other threads, where a core does so many of its operations in a cycle."""
    return operations > _SERIAL_CYCLES * rate


def imbalance(tasks: int, cores: int) -> float:
    """How many times as long equal tasks take on all cores as they would if they could be cut to fit."""
    return -(-tasks // cores) * cores / tasks

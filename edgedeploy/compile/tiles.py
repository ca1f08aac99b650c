"""Sizes of register tiles, from a model of what a step of a convolution's reduction costs on a board.

All costs are in cycles of one core. The constants without a source were fitted to timings on x86-64 with
512-bit vectors; what they decide is only which of several correct forms is generated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from edgedeploy.board import Board

# Bytes that arrive per cycle from the second cache and, beyond it, from memory, beside the arithmetic.
SECOND_CACHE_BYTES = 12
MEMORY_BYTES = 4

# Most rows of a tile: each is one more pointer in the innermost loop.
MAX_ROWS = 4

# The part of the peak that the best tiles reach.
EFFICIENCY = 0.9


@dataclass(frozen=True)
class Tile:
    """Output pixels (rows x columns) and output channels whose sums are in registers at the same time."""

    rows: int
    columns: int
    channels: int

    def whole(self, height: int, width: int) -> tuple[int, int]:
        """The least rows and columns, at least as many, that whole tiles cover."""
        return round_up(height, self.rows), round_up(width, self.columns)

    def useful(self, height: int, width: int) -> float:
        """The part of the computed pixels that is not cropped."""
        return height * width / math.prod(self.whole(height, width))

    def __str__(self) -> str:
        pixels = f"{self.rows} x {self.columns}" if self.rows > 1 else f"{self.columns}"
        return f"{pixels} pixels x {self.channels} channels"


def lanes_for(board: Board) -> int:
    """How many float32 values a vector register of the board holds."""
    return board.vector.bits // 32


def round_up(number: int, step: int) -> int:
    """The least multiple of `step` that is not below `number`."""
    return -(-number // step) * step


def vector_length(extent: int, lanes: int) -> int:
    """The longest power of two up to `lanes` that divides an extent."""
    length = lanes
    while extent % length:
        length //= 2
    return length


def step_cycles(pixels: int, vectors: int, length: int, board: Board) -> float:
    """What one step of the reduction costs: pixels x vectors multiply-adds, from as many inputs and weights.

    Multiply-adds are started at the board's rate, but not before those of the last step are done. As many
    loads as multiply-adds start in a cycle, at least one. Weights stream from the second cache. Loads cost a
    little even where they hide behind the arithmetic.
    """
    loads = pixels + vectors
    arithmetic = max(pixels * vectors / board.fma.per_cycle, board.fma.latency)
    loading = loads / max(1.0, board.fma.per_cycle)
    streaming = vectors * length * 4 / SECOND_CACHE_BYTES
    return max(arithmetic, loading, streaming) + 0.05 * loads


def choose_tile(height: int, width: int, channels: int, board: Board) -> Tile:
    """The tile that does the most useful arithmetic in a cycle.

    Accumulators must fit the registers beside the weight vectors and one input. Tiles need not divide the
    picture: what lies beyond it is computed and cropped, and counts as useless.

    Args:
        height, width: of the output, in pixels.
        channels: output channels, of one group; the tile's divide them.
        board: whose registers and multiply-add units are modelled.
    """
    best, best_rate = Tile(1, 1, 1), 0.0
    for vectors, length in _vectors(channels, lanes_for(board)):
        for rows in range(1, min(MAX_ROWS, height) + 1):
            for columns in range(1, min(width, board.vector.registers) + 1):
                if rows * columns * vectors + vectors + 1 > board.vector.registers:
                    break
                tile = Tile(rows, columns, vectors * length)
                work = rows * columns * vectors * length * tile.useful(height, width)
                rate = work / step_cycles(rows * columns, vectors, length, board)
                if rate > best_rate * 1.001:
                    best, best_rate = tile, rate
    return best


def choose_depthwise_tile(height: int, width: int, channels: int, board: Board) -> Tile:
    """A tile for a convolution that filters each channel by itself: one row, up to two vectors of channels.

    Every multiply-add has a load of its own, so registers serve only to hide latency: half of them are enough.
    """
    length = vector_length(channels, lanes_for(board))
    vectors = 2 if channels % (2 * length) == 0 else 1
    most = max(1, (board.vector.registers - 2) // 2 // vectors)
    tiles = [Tile(1, columns, vectors * length) for columns in range(1, min(most, width) + 1)]
    return max(tiles, key=lambda tile: tile.useful(height, width) * tile.columns / (tile.columns + 0.5))


def _vectors(channels: int, lanes: int) -> Iterable[tuple[int, int]]:
    """How many vectors of which length a tile of these channels may have."""
    for vectors in (2, 1, 3, 4, 8):
        length = lanes
        while length >= 1:
            if channels % (vectors * length) == 0:
                yield vectors, length
                break
            length //= 2


def direct_cycles(height: int, width: int, taps: int, inputs: int, outputs: int, board: Board) -> float:
    """An estimate of a direct convolution of `taps` positions, its weights read once from memory."""
    tile = choose_tile(height, width, outputs, board)
    length = vector_length(tile.channels, lanes_for(board))
    pixels, vectors = tile.rows * tile.columns, tile.channels // length
    steps = math.prod(tile.whole(height, width)) / pixels * outputs / tile.channels * taps * inputs
    return steps * step_cycles(pixels, vectors, length, board) / EFFICIENCY + 4 * taps * inputs * outputs / MEMORY_BYTES

"""Blocks of a depthwise convolution: the rows, columns and channels that a task copies, and computes from the copy.

A core fetches lines of memory, each of which holds channels of a pixel. A task that reads some of a line's channels
fetches all of it, as those tasks do that read the others; rows and columns at the edges of blocks are read by two; and
what begins elsewhere is not foreseen by prefetchers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Depthwise
from edgedeploy.compile.backends.cpu.traffic import LINE, beginnings, beyond, near, waiting
from edgedeploy.compile.layers import DepthwiseConvolution
from edgedeploy.compile.tiles import Tile, divisors, imbalance, is_worth_threads
from edgedeploy.compile.types import bytes_of, lanes_for

# The part of the first cache that a copy may fill: what is read for it and what is stored pass through the same cache.
_CACHED = 0.75


def choose_block(layer: DepthwiseConvolution, tile: Tile, board: Board) -> Depthwise:
    """The quickest blocks of those whose copies stay in the first cache; else those of the smallest copies."""
    room = _CACHED * board.cache.l1_kib * 1024

    def preference(block: Block) -> tuple[float, float, int]:
        return max(room, block.copied_bytes), block.cycles(board), block.tasks

    return min(_blocks(layer, tile), key=preference).form


def _blocks(layer: DepthwiseConvolution, tile: Tile) -> Iterator[Block]:
    height, width = layer.size
    for rows in divisors(height):
        for across in divisors(-(-width // tile.columns)):
            for deep in divisors(layer.channels // tile.channels):
                form = Depthwise(tile=tile, rows_per_task=rows, tasks_across=across, tasks_deep=deep, copied=True)
                yield Block(layer, form)


@dataclass(frozen=True)
class Block:
    """What a task does of a layer.

    Attributes:
        layer: it.
        form: how it is dealt out to tasks.
    """

    layer: DepthwiseConvolution
    form: Depthwise

    @property
    def columns(self) -> int:
        """Of the result, in whole tiles."""
        return -(-self.layer.size[1] // self.form.tile.columns) // self.form.tasks_across * self.form.tile.columns

    @property
    def channels(self) -> int:
        """Of the data and of the result."""
        return self.layer.channels // self.form.tasks_deep

    @property
    def read(self) -> tuple[int, int]:
        """Padded rows and columns of the data."""
        return self.layer.window.input_size(self.form.rows_per_task, self.columns)

    @property
    def copied_bytes(self) -> int:
        """Of the copy, which has the type of the data."""
        return math.prod(self.read) * self.channels * bytes_of(self.layer.types.data)

    @property
    def tasks(self) -> int:
        """How many there are."""
        bands = self.layer.batch * self.layer.size[0] // self.form.rows_per_task
        return bands * self.form.tasks_across * self.form.tasks_deep

    def cycles(self, board: Board) -> float:
        """An estimate, for all tasks, of what depends on the block: copies, and waiting for lines."""
        layer, types = self.layer, self.layer.types
        (rows, columns), pixel = self.read, layer.channels * bytes_of(types.data)
        data = math.prod(layer.data) * bytes_of(types.data)
        result = layer.batch * math.prod(layer.size) * layer.channels * bytes_of(types.result)
        far = beyond(data + result, board)
        reading = self.tasks * rows * columns * self._lines(types.data)
        writing = self.tasks * self.form.rows_per_task * self.columns * self._lines(types.result)
        unforeseen = self.tasks * rows * (beginnings(columns, pixel) if self._is_steady else columns)
        cycles = (
            # a vector is loaded and stored in a cycle
            self.tasks * rows * columns * self.channels / lanes_for(board, types.data)
            + waiting(reading, min(reading, data / LINE), unforeseen, far, board)
            + result / LINE * far.store
            + (writing - result / LINE) * near(board).store
        )
        threads = is_worth_threads(layer.operations, board.fma.per_cycle * lanes_for(board, types.accumulator))
        return cycles * (imbalance(self.tasks, board.cores) if threads else 1)

    @property
    def _is_steady(self) -> bool:
        """Whether the first lines of pixels lie at one distance, which prefetchers go by."""
        pixel = self.layer.channels * bytes_of(self.layer.types.data)
        return self.form.tasks_deep == 1 or pixel % LINE == 0

    def _lines(self, dtype: str) -> float:
        """Lines that its channels of a pixel lie in, on average over all places where they may begin."""
        run, pixel = self.channels * bytes_of(dtype), self.layer.channels * bytes_of(dtype)
        return run / LINE if run == pixel else 1 + (run - math.gcd(run, pixel, LINE)) / LINE

"""Tiles of direct convolutions and the orders in which they are computed, by the time that a core waits for its caches.

A tile reads its pixels' data and its channels' weights. Lines that stay in the first cache until they are read again
cost nothing; the others come from the second cache once more, at the cost in the `core_model` of a board's profile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from edgedeploy.compile.backends.cpu import tiles
from edgedeploy.compile.backends.cpu.traffic import LINE, beyond, first_cache, near, reread
from edgedeploy.compile.ir.types import bytes_of
from edgedeploy.compile.tiles import Tile, WeightOrder, divisors
from edgedeploy.target.board import Board

_FEWEST_STEPS = 64  # the fewest steps of a sum that are worth storing it and continuing later


def choose_tile_and_order(shape: tiles.ConvolutionShape, board: Board) -> tuple[Tile, WeightOrder]:
    """Those of the fewest cycles, arithmetic and waiting; for a core without a model, arithmetic alone."""
    if board.core_model is None:
        tile = tiles.choose_tile(shape, board)
        return tile, tiles.choose_order(shape, tile, board)
    ways = (
        Way(shape, tile, order, board)
        for tile in tiles.fitting_tiles(shape, board)
        for order in orders(shape, tile, board)
    )
    best = min(ways, key=lambda way: way.cycles)
    return best.tile, best.order


def orders(shape: tiles.ConvolutionShape, tile: Tile, board: Board) -> Iterator[WeightOrder]:
    """Row by row, in panels; and by channels, if these are enough tasks, in slices."""
    height, width = tile.whole(shape.height, shape.width)
    down, deep = height // tile.rows, shape.channels // tile.channels
    for panel in divisors(width // tile.columns):
        yield WeightOrder(panel=panel)
    if deep >= min(down, 2 * board.cores):
        rows = shape.kernel[0]
        parts = [each for each in divisors(shape.inputs) if each * _FEWEST_STEPS <= shape.terms]
        choices = [1, rows] if rows > 1 else parts or [1]
        for slices in choices if tiles.may_be_sliced(shape.types) else [1]:
            yield WeightOrder(by_channels=True, slices=slices)


@dataclass(frozen=True)
class Way:
    """A way to compute a convolution's tiles; sizes of memory are in bytes."""

    shape: tiles.ConvolutionShape
    tile: Tile
    order: WeightOrder
    board: Board

    @property
    def cycles(self) -> float:
        """The estimated cost, without everything that comes from memory in any case."""
        return self._passes * self._deep * self._tile_cycles + self.waiting

    @property
    def waiting(self) -> float:
        """Cycles for lines that are read once more, and for lines of the result that are written part by part."""
        room = first_cache(self.board)
        if self.order.by_channels:
            return self._waiting_by_channels(room) + self._waiting_for_parts
        panels, line = self._passes // self.order.panel, near(self.board).foreseen
        panel = self._data(self.tile.rows, self.tile.columns * self.order.panel)
        weights, all_weights = self._weights, self._weights * self._deep
        if panel + all_weights <= room:
            return 0.0
        again = (panels - 1) * all_weights / LINE * reread(all_weights + panel, self.board)
        if panel + weights <= room:
            return again
        data = self._data(self.tile.rows, self.tile.columns)
        if data + weights <= room:
            return again + panels * (self._deep - 1) * panel / LINE * line
        again = (self._passes - 1) * all_weights / LINE * reread(all_weights + panel, self.board)
        return again + self._passes * (self._deep - 1) * data / LINE * line

    def _waiting_by_channels(self, room: float) -> float:
        """A tile's weights, or a slice of them, are read for one tile of pixels after the other."""
        tile, slices, deep, line = self.tile, self.order.slices, self._deep, near(self.board).foreseen
        data, weights = self._data(tile.rows, tile.columns), self._weights
        all_data = self._data(self.shape.height, self.shape.width)
        if all_data + weights <= room:
            return 0.0
        cycles = self._passes * data * (deep - 1) / LINE * reread(all_data, self.board)
        if (data + weights) / slices > room:
            cycles += (self._passes - 1) * deep * weights / LINE * line
        sums = self._passes * tile.rows * tile.columns * tile.channels * bytes_of(self.shape.types.accumulator)
        if sums + weights / slices > room:
            cycles += deep * (slices - 1) * sums / LINE * (line + near(self.board).store)
        return cycles

    @property
    def _waiting_for_parts(self) -> float:
        """Lines of the result that are stored part by part, with all pixels between two parts."""
        shape, one = self.shape, bytes_of(self.shape.types.result)
        result = shape.height * shape.width * shape.channels * one
        return result / LINE * (max(1.0, LINE / (self.tile.channels * one)) - 1) * beyond(result, self.board).store

    @property
    def _tile_cycles(self) -> float:
        """Cycles of the arithmetic of a tile; sums of slices are loaded, added and stored once more."""
        sums = self.tile.rows * self.tile.columns * tiles.vectors_of(self.tile.channels, self.shape.types, self.board)
        return tiles.tile_cycles(self.tile, self.shape, self.board) + (self.order.slices - 1) * 3 * sums

    @property
    def _passes(self) -> int:
        """Tiles of pixels."""
        return math.prod(self.tile.whole(self.shape.height, self.shape.width)) // (self.tile.rows * self.tile.columns)

    @property
    def _deep(self) -> int:
        """Tiles of channels."""
        return self.shape.channels // self.tile.channels

    @property
    def _weights(self) -> int:
        """Those of a tile."""
        return bytes_of(self.shape.types.weights) * self.shape.terms * self.tile.channels

    def _data(self, rows: int, columns: int) -> int:
        """The data that so many pixels of the result read."""
        reach = [count - 1 + kernel for count, kernel in zip((rows, columns), self.shape.kernel, strict=True)]
        return bytes_of(self.shape.types.data) * math.prod(reach) * self.shape.inputs

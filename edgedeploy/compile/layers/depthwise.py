"""Convolutions that filter each channel by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

from typing_extensions import override

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Configuration, Depthwise
from edgedeploy.compile.layers.layer import Form, Layer
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.tiles import (
    Tile,
    choose_depthwise_tile,
    divisors,
    imbalance,
    lanes_for,
    rows_per_task,
    tasks_for,
    tile_registers,
    vector_length,
)

# Most vectors of channels of a tile.
_MOST_VECTORS = 4


class DepthwiseConvolution(Layer):
    """A convolution in NHWC, HWIO, of as many groups as channels."""

    kind: Literal["depthwise convolution"] = "depthwise convolution"
    window: Window

    @property
    @override
    def name(self) -> str:
        return direct.DEPTHWISE

    @property
    @override
    def operations(self) -> int:
        return 2 * self.data[0] * math.prod(self.size) * math.prod(self.weights)

    @override
    def plain(self) -> Form:
        return self._form(Tile(1, 1, 1))

    @override
    def default(self, board: Board) -> Configuration:
        height, width = self.size
        tile = choose_depthwise_tile(height, width, self._channels, self.window.kernel, self.window.strides[1], board)
        deep = self._channels // tile.channels
        if board.is_x86:
            deep = next(count for count in divisors(deep) if count * height >= tasks_for(board.cores) or count == deep)
        return Depthwise(
            tile=tile,
            rows_per_task=rows_per_task(height, deep, board.cores),
            tasks_deep=deep,
            copied=not board.is_x86,
        )

    @override
    def configurations(self, board: Board) -> Iterator[Configuration]:
        default = self.default(board)
        yield default
        height, width = self.size
        length = vector_length(self._channels, lanes_for(board))
        tiles = [
            Tile(1, columns, vectors * length)
            for vectors in range(1, _MOST_VECTORS + 1)
            if self._channels % (vectors * length) == 0
            for columns in range(1, min(width, tile_registers(board) // vectors) + 1)
        ]
        for tile in tiles:
            if tile.useful(height, width) * tile.columns / (tile.columns + 0.5) < 0.6:
                continue
            for deep in divisors(self._channels // tile.channels):
                for rows in divisors(height):
                    tasks = deep * (height // rows)
                    if tasks < board.cores and tasks < height * self._channels // tile.channels:
                        continue
                    for copied in (False, True):
                        found = Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=copied)
                        if found != default:
                            yield found

    @override
    def estimate(self, configuration: Configuration, board: Board) -> float:
        assert isinstance(configuration, Depthwise)
        height, width = self.size
        tile, length = configuration.tile, vector_length(configuration.tile.channels, lanes_for(board))
        tasks = configuration.tasks_deep * (height // configuration.rows_per_task)
        steps = height * width * self._channels / length * math.prod(self.window.kernel) / tile.useful(height, width)
        return steps * (1 + 0.5 / tile.columns) * imbalance(tasks, board.cores)

    @override
    def fits(self, configuration: Configuration, board: Board) -> bool:
        return (
            isinstance(configuration, Depthwise)
            and configuration.tile.rows == 1
            and configuration.tile.columns <= min(self.size[1], tile_registers(board))
            and self._channels % (configuration.tile.channels * configuration.tasks_deep) == 0
            and configuration.tile.channels <= _MOST_VECTORS * lanes_for(board)
            and self.size[0] % configuration.rows_per_task == 0
        )

    @override
    def written(self, configuration: Configuration, board: Board) -> Form:
        return self._form(configuration.register_tile)

    def _form(self, tile: Tile) -> Form:
        return partial(direct.convolution, window=self.window, groups=self._channels, tile=tile)

    @property
    def _channels(self) -> int:
        return self.weights[3]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.output_size(self.data[1], self.data[2])

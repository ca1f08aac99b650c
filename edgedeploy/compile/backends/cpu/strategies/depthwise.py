"""Convolutions that filter each channel by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from edgedeploy.compile.backends.cpu.configuration import Depthwise
from edgedeploy.compile.backends.cpu.tiles import choose_depthwise_tile, rows_per_task, tasks_for, tile_registers
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import DepthwiseConvolution
from edgedeploy.compile.layers.layer import Form
from edgedeploy.compile.operators import direct
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.tiles import Tile, divisors, imbalance, vector_length
from edgedeploy.compile.types import lanes_for

# Most vectors of channels of a tile.
_MOST_VECTORS = 4


class DepthwiseStrategy(Strategy[DepthwiseConvolution]):
    """A convolution in NHWC, HWIO, of as many groups as channels."""

    @override
    def default(self) -> Configuration:
        (height, width), window, channels = self.layer.size, self.layer.window, self.layer.channels
        board = self.board
        tile = choose_depthwise_tile(height, width, channels, window.kernel, window.strides[1], self.layer.types, board)
        deep = channels // tile.channels
        if board.is_x86:
            deep = next(count for count in divisors(deep) if count * height >= tasks_for(board.cores) or count == deep)
        return Depthwise(
            tile=tile,
            rows_per_task=rows_per_task(height, deep, board.cores),
            tasks_deep=deep,
            copied=not board.is_x86,
        )

    @override
    def candidates(self) -> Iterator[Configuration]:
        default = self.default()
        yield default
        (height, width), channels, board = self.layer.size, self.layer.channels, self.board
        length = vector_length(channels, lanes_for(board, self.layer.types.accumulator))
        tiles = [
            Tile(1, columns, vectors * length)
            for vectors in range(1, _MOST_VECTORS + 1)
            if channels % (vectors * length) == 0
            for columns in range(1, min(width, tile_registers(board) // vectors) + 1)
        ]
        for tile in tiles:
            if tile.useful(height, width) * tile.columns / (tile.columns + 0.5) < 0.6:
                continue
            for deep in divisors(channels // tile.channels):
                for rows in divisors(height):
                    tasks = deep * (height // rows)
                    if tasks < board.cores and tasks < height * channels // tile.channels:
                        continue
                    for copied in (False, True):
                        found = Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=copied)
                        if found != default:
                            yield found

    @override
    def estimate(self, configuration: Configuration) -> float:
        assert isinstance(configuration, Depthwise)
        height, width = self.layer.size
        tile = configuration.tile
        length = vector_length(tile.channels, lanes_for(self.board, self.layer.types.accumulator))
        tasks = configuration.tasks_deep * (height // configuration.rows_per_task)
        steps = height * width * self.layer.channels / length * math.prod(self.layer.window.kernel)
        steps /= tile.useful(height, width)
        return steps * (1 + 0.5 / tile.columns) * imbalance(tasks, self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return (
            isinstance(configuration, Depthwise)
            and configuration.tile.rows == 1
            and configuration.tile.columns <= min(self.layer.size[1], tile_registers(self.board))
            and self.layer.channels % (configuration.tile.channels * configuration.tasks_deep) == 0
            and configuration.tile.channels <= _MOST_VECTORS * lanes_for(self.board, self.layer.types.accumulator)
            and self.layer.size[0] % configuration.rows_per_task == 0
        )

    @override
    def lower(self, configuration: Configuration) -> Form:
        layer = self.layer
        tile = configuration.register_tile
        return partial(direct.convolution, window=layer.window, groups=layer.channels, types=layer.types, tile=tile)

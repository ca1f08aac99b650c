"""Convolutions in which output channels sum over several input channels: direct, or Winograd's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np
from typing_extensions import override

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Configuration, Direct, Winograd
from edgedeploy.compile.layers.layer import Form, Layer
from edgedeploy.compile.operators import direct, winograd
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.operators.prefetch import vector_to_prefetch
from edgedeploy.compile.tiles import (
    Tile,
    WeightOrder,
    choose_order,
    choose_tile,
    direct_cycles,
    divisors,
    fitting_tiles,
    imbalance,
    lanes_for,
    rows_per_task,
    tile_fits,
    tile_rate,
)

# Tiles and plans that the model says take so many times as long as the best are not worth a trial.
WORTH_TRYING = 1.6

_ONE_BY_ONE = Tile(1, 1, 1)


class _Direct(Layer):
    """What both kinds of convolution share."""

    window: Window
    groups: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the result."""
        return self.window.output_size(*self._picture)

    @property
    @override
    def operations(self) -> int:
        return 2 * self.data[0] * math.prod(self.size) * math.prod(self.weights)

    @property
    def inputs(self) -> int:
        """Input channels of one group."""
        return self.weights[2]

    @property
    def outputs(self) -> int:
        """Output channels of one group."""
        return self.weights[3] // self.groups

    @property
    def _picture(self) -> tuple[int, int]:
        raise NotImplementedError

    def _directly(self, board: Board) -> Direct:
        tile = choose_tile(*self.size, self.outputs, self.window.kernel, self.inputs, board)
        order = self._order(tile, board)
        tiles_down = self._tiles_down(tile)
        return Direct(
            tile=tile,
            order=order,
            rows_per_task=tiles_down if order.by_channels else rows_per_task(tiles_down, 1, board.cores),
        )

    def _order(self, tile: Tile, board: Board) -> WeightOrder:
        return WeightOrder()

    def _orders(self, tile: Tile, board: Board) -> Iterator[WeightOrder]:
        yield WeightOrder()

    def _tiles_down(self, tile: Tile) -> int:
        return -(-self.size[0] // tile.rows)

    def _all_direct(self, board: Board) -> Iterator[Direct]:
        kernel, inputs = self.window.kernel, self.inputs

        def rate(tile: Tile) -> float:
            return tile_rate(tile, *self.size, kernel, inputs, board)

        tiles = list(fitting_tiles(*self.size, self.outputs, kernel, inputs, board))
        best = max(map(rate, tiles), default=0.0)
        for tile in tiles:
            if rate(tile) * WORTH_TRYING < best:
                continue
            for order in self._orders(tile, board):
                for rows in divisors(self._tiles_down(tile)):
                    yield Direct(tile=tile, order=order, rows_per_task=rows)

    def _direct_estimate(self, found: Direct, board: Board) -> float:
        return (
            direct_cycles(*self.size, self.window.kernel, self.inputs, self.outputs, board, found.tile)
            * self.groups
            * imbalance(self._tasks(found), board.cores)
        )

    def _tasks(self, found: Direct) -> int:
        down = self._tiles_down(found.tile) // found.rows_per_task
        return down * (self.outputs // found.tile.channels if found.order.by_channels else 1)

    def _fits_directly(self, found: Direct, board: Board) -> bool:
        return (
            self.outputs % found.tile.channels == 0
            and tile_fits(found.tile, *self.size, self.window.kernel, self.inputs, board)
            and self._fits_order(found.order)
            and self._tiles_down(found.tile) % found.rows_per_task == 0
        )

    def _fits_order(self, order: WeightOrder) -> bool:
        return order == WeightOrder()


class Convolution(_Direct):
    """A convolution in NHWC, HWIO."""

    kind: Literal["convolution"] = "convolution"

    @property
    @override
    def name(self) -> str:
        return direct.DENSE

    @property
    def _picture(self) -> tuple[int, int]:
        return self.data[1], self.data[2]

    @override
    def plain(self) -> Form:
        return partial(direct.convolution, window=self.window, groups=self.groups, tile=_ONE_BY_ONE)

    @override
    def default(self, board: Board) -> Configuration:
        plan = winograd.choose_plan(*self.size, self.inputs, self.outputs, board) if self._may_be_winograd else None
        return plan or self._directly(board)

    @override
    def configurations(self, board: Board) -> Iterator[Configuration]:
        yield from dict.fromkeys([self._directly(board), *self._all_direct(board)])
        if self._may_be_winograd:
            yield from self._all_winograd(board)

    @override
    def estimate(self, configuration: Configuration, board: Board) -> float:
        if isinstance(configuration, Winograd):
            return winograd.cycles(configuration, *self.size, self.inputs, self.outputs, board)
        assert isinstance(configuration, Direct)
        return self._direct_estimate(configuration, board)

    @override
    def forms(self, board: Board) -> list[Configuration]:
        shape = (*self.size, self.inputs, self.outputs, board)
        plans = [winograd.best_plan([size], *shape) for size in winograd.TRANSFORMS] if self._may_be_winograd else []
        return [self._directly(board), *plans]

    @override
    def rounding(self, configuration: Configuration) -> float:
        if isinstance(configuration, Winograd):
            return winograd.rounding(configuration.size, self.inputs)
        return super().rounding(configuration)

    @override
    def fits(self, configuration: Configuration, board: Board) -> bool:
        if isinstance(configuration, Direct):
            return self._fits_directly(configuration, board)
        return (
            isinstance(configuration, Winograd)
            and self._may_be_winograd
            and winograd.fits(configuration, *self.size, self.outputs, board)
        )

    @override
    def written(self, configuration: Configuration, board: Board) -> Form:
        prefetch = vector_to_prefetch(board)
        if isinstance(configuration, Winograd):
            return partial(winograd.convolution, padding=self.window.padding, plan=configuration, prefetch=prefetch)
        return partial(
            direct.convolution,
            window=self.window,
            groups=self.groups,
            tile=configuration.register_tile,
            order=configuration.order if isinstance(configuration, Direct) else WeightOrder(),
            prefetch=prefetch,
        )

    @override
    def relaid(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        if isinstance(configuration, Winograd):
            return winograd.transform_weights(weights, configuration.size)
        return weights

    @override
    def relaid_shape(self, configuration: Configuration) -> tuple[int, ...]:
        if isinstance(configuration, Winograd):
            return configuration.values, configuration.values, *self.weights[2:]
        return self.weights

    @property
    def _may_be_winograd(self) -> bool:
        fits = self.window.kernel == (winograd.KERNEL, winograd.KERNEL)
        fits = fits and self.window.strides == self.window.dilation == (1, 1)
        return fits and self.constant and self.dtype == "float32" and self.data[0] == self.groups == 1

    def _all_winograd(self, board: Board) -> Iterator[Winograd]:
        shape = (*self.size, self.inputs, self.outputs)
        plans = [(winograd.cycles(plan, *shape, board), plan) for plan in winograd.plans(*shape, board)]
        best = min((cycles for cycles, _ in plans), default=0.0)
        if best < WORTH_TRYING * direct_cycles(*self.size, self.window.kernel, self.inputs, self.outputs, board):
            yield from (plan for cycles, plan in plans if cycles <= WORTH_TRYING * best)

    def _order(self, tile: Tile, board: Board) -> WeightOrder:
        return choose_order(*self.size, self.outputs, self.window.kernel, self.inputs, tile, board)

    def _fits_order(self, order: WeightOrder) -> bool:
        slices = order.slices in (1, self.window.kernel[0])
        interval = order.interval == 0 or (order.interval > 0 and self.inputs % order.interval == 0)
        return order == WeightOrder() or (order.by_channels and slices and interval)

    def _orders(self, tile: Tile, board: Board) -> Iterator[WeightOrder]:
        """By rows; and by channels, where each thread has some, with and without slices and fetching ahead."""
        yield WeightOrder()
        if self.outputs // tile.channels < board.cores:
            return
        chosen = self._order(tile, board)
        for slices in sorted({1, self.window.kernel[0]}):
            intervals = {0}
            if vector_to_prefetch(board):
                passes = self._tiles_down(tile) * -(-self.size[1] // tile.columns)
                intervals |= {
                    chosen.interval,
                    *(count for count in divisors(self.inputs) if passes <= count < 4 * passes),
                }
            yield from (WeightOrder(True, slices, interval) for interval in sorted(intervals))


class FirstConvolution(_Direct):
    """A convolution of planes, in NCHW, into NHWC: a network's first layer."""

    kind: Literal["first convolution"] = "first convolution"

    @property
    @override
    def name(self) -> str:
        return f"{direct.DENSE}_planes"

    @property
    def _picture(self) -> tuple[int, int]:
        return self.data[2], self.data[3]

    @override
    def plain(self) -> Form:
        return partial(direct.convolution_of_planes, window=self.window, tile=_ONE_BY_ONE, lanes=1)

    @override
    def default(self, board: Board) -> Configuration:
        return self._directly(board)

    @override
    def configurations(self, board: Board) -> Iterator[Configuration]:
        yield from dict.fromkeys([self._directly(board), *self._all_direct(board)])

    @override
    def estimate(self, configuration: Configuration, board: Board) -> float:
        assert isinstance(configuration, Direct)
        return self._direct_estimate(configuration, board)

    @override
    def fits(self, configuration: Configuration, board: Board) -> bool:
        return isinstance(configuration, Direct) and self._fits_directly(configuration, board)

    @override
    def written(self, configuration: Configuration, board: Board) -> Form:
        tile = configuration.register_tile
        return partial(direct.convolution_of_planes, window=self.window, tile=tile, lanes=lanes_for(board))

"""Convolutions in which output channels sum over several input channels: direct, or Winograd's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from typing_extensions import override

from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.configuration import Direct, Winograd
from edgedeploy.compile.backends.cpu.tiles import (
    ConvolutionShape,
    choose_order,
    choose_tile,
    direct_cycles,
    fitting_tiles,
    rows_per_task,
    tile_fits,
    tile_rate,
    vector_to_prefetch,
)
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import Convolution, FirstConvolution
from edgedeploy.compile.layers.layer import Form
from edgedeploy.compile.operators import direct
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.tiles import Tile, WeightOrder, divisors, imbalance
from edgedeploy.compile.types import FLOAT32, lanes_for

# Tiles and plans that the model says take so many times as long as the best are not worth a trial.
WORTH_TRYING = 1.6

AnyConvolution = TypeVar("AnyConvolution", Convolution, FirstConvolution, covariant=True)


class _DirectStrategy(Strategy[AnyConvolution]):
    """What both kinds of convolution share."""

    @override
    def default(self) -> Configuration:
        return self._directly()

    @override
    def candidates(self) -> Iterator[Configuration]:
        yield from dict.fromkeys([self._directly(), *self._all_direct()])

    @override
    def estimate(self, configuration: Configuration) -> float:
        assert isinstance(configuration, Direct)
        cycles = direct_cycles(self._shape, self.board, configuration.tile)
        return cycles * self.layer.groups * imbalance(self._tasks(configuration), self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return (
            isinstance(configuration, Direct)
            and self.layer.outputs % configuration.tile.channels == 0
            and tile_fits(configuration.tile, self._shape, self.board)
            and self._fits_order(configuration.order)
            and self._tiles_down(configuration.tile) % configuration.rows_per_task == 0
        )

    @cached_property
    def _shape(self) -> ConvolutionShape:
        layer = self.layer
        return ConvolutionShape(*layer.size, layer.outputs, layer.window.kernel, layer.inputs, layer.types)

    def _directly(self) -> Direct:
        tile = choose_tile(self._shape, self.board)
        order = self._order(tile)
        tiles_down = self._tiles_down(tile)
        return Direct(
            tile=tile,
            order=order,
            rows_per_task=tiles_down if order.by_channels else rows_per_task(tiles_down, 1, self.board.cores),
        )

    def _order(self, tile: Tile) -> WeightOrder:
        return WeightOrder()

    def _orders(self, tile: Tile) -> Iterator[WeightOrder]:
        yield WeightOrder()

    def _fits_order(self, order: WeightOrder) -> bool:
        return order == WeightOrder()

    def _tiles_down(self, tile: Tile) -> int:
        return -(-self.layer.size[0] // tile.rows)

    def _all_direct(self) -> Iterator[Direct]:
        def rate(tile: Tile) -> float:
            return tile_rate(tile, self._shape, self.board)

        tiles = list(fitting_tiles(self._shape, self.board))
        best = max(map(rate, tiles), default=0.0)
        for tile in tiles:
            if rate(tile) * WORTH_TRYING < best:
                continue
            for order in self._orders(tile):
                for rows in divisors(self._tiles_down(tile)):
                    yield Direct(tile=tile, order=order, rows_per_task=rows)

    def _tasks(self, found: Direct) -> int:
        down = self._tiles_down(found.tile) // found.rows_per_task
        return down * (self.layer.outputs // found.tile.channels if found.order.by_channels else 1)


class ConvolutionStrategy(_DirectStrategy[Convolution]):
    """A convolution in NHWC, HWIO."""

    @override
    def default(self) -> Configuration:
        plan = winograd.choose_plan(self._shape, self.board) if self._may_be_winograd else None
        return plan or self._directly()

    @override
    def candidates(self) -> Iterator[Configuration]:
        yield from super().candidates()
        if self._may_be_winograd:
            yield from self._all_winograd()

    @override
    def estimate(self, configuration: Configuration) -> float:
        if isinstance(configuration, Winograd):
            return winograd.cycles(configuration, self._shape, self.board)
        return super().estimate(configuration)

    @override
    def alternatives(self) -> list[Configuration]:
        sizes = winograd.TRANSFORMS if self._may_be_winograd else ()
        return [self._directly(), *(winograd.best_plan([size], self._shape, self.board) for size in sizes)]

    @override
    def roundings(self, configuration: Configuration) -> float:
        if isinstance(configuration, Winograd):
            return winograd.roundings(configuration.size, self.layer.inputs)
        return super().roundings(configuration)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if isinstance(configuration, Winograd):
            return self._may_be_winograd and winograd.fits(configuration, self._shape, self.board)
        return super().fits(configuration)

    @override
    def lower(self, configuration: Configuration) -> Form:
        window, types = self.layer.window, self.layer.types
        prefetch = vector_to_prefetch(types, self.board)
        if isinstance(configuration, Winograd):
            return partial(winograd.convolution, window=window, types=types, plan=configuration, prefetch=prefetch)
        assert isinstance(configuration, Direct)
        return partial(
            direct.convolution,
            window=window,
            groups=self.layer.groups,
            types=types,
            tile=configuration.tile,
            order=configuration.order,
            prefetch=prefetch,
        )

    @override
    def packed(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        if isinstance(configuration, Winograd):
            return winograd.transform_weights(weights, configuration.size)
        return weights

    @override
    def packed_shape(self, configuration: Configuration) -> tuple[int, ...]:
        if isinstance(configuration, Winograd):
            return configuration.values, configuration.values, *self.layer.weights[2:]
        return self.layer.weights

    @property
    def _may_be_winograd(self) -> bool:
        layer = self.layer
        fits = layer.window.kernel == (winograd.KERNEL, winograd.KERNEL)
        fits = fits and layer.window.strides == layer.window.dilation == (1, 1)
        return fits and layer.constant and layer.types == FLOAT32 and layer.data[0] == layer.groups == 1

    def _all_winograd(self) -> Iterator[Winograd]:
        shape, board = self._shape, self.board
        plans = [(winograd.cycles(plan, shape, board), plan) for plan in winograd.plans(shape, board)]
        best = min((cycles for cycles, _ in plans), default=0.0)
        if best < WORTH_TRYING * direct_cycles(shape, board):
            yield from (plan for cycles, plan in plans if cycles <= WORTH_TRYING * best)

    @override
    def _order(self, tile: Tile) -> WeightOrder:
        return choose_order(self._shape, tile, self.board)

    @override
    def _fits_order(self, order: WeightOrder) -> bool:
        slices = order.slices in (1, self.layer.window.kernel[0])
        interval = order.interval == 0 or (order.interval > 0 and self.layer.inputs % order.interval == 0)
        return order == WeightOrder() or (order.by_channels and slices and interval)

    @override
    def _orders(self, tile: Tile) -> Iterator[WeightOrder]:
        """By rows; and by channels, where each thread has some, with and without slices and fetching ahead."""
        yield WeightOrder()
        if self.layer.outputs // tile.channels < self.board.cores:
            return
        chosen = self._order(tile)
        for slices in sorted({1, self.layer.window.kernel[0]}):
            intervals = {0}
            if vector_to_prefetch(self.layer.types, self.board):
                passes = self._tiles_down(tile) * -(-self.layer.size[1] // tile.columns)
                intervals |= {
                    chosen.interval,
                    *(count for count in divisors(self.layer.inputs) if passes <= count < 4 * passes),
                }
            yield from (WeightOrder(True, slices, interval) for interval in sorted(intervals))


class FirstConvolutionStrategy(_DirectStrategy[FirstConvolution]):
    """A convolution from NCHW into NHWC: a network's first layer."""

    @override
    def lower(self, configuration: Configuration) -> Form:
        layer, lanes = self.layer, lanes_for(self.board, self.layer.types.data)
        tile = configuration.register_tile
        return partial(direct.convolution_of_nchw, window=layer.window, types=layer.types, tile=tile, lanes=lanes)

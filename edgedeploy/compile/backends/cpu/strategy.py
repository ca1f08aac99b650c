"""How CPUs compute layers, chosen by models of the board."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, partial

import numpy as np
from typing_extensions import override

from edgedeploy.compile.backends.cpu import tiles, winograd
from edgedeploy.compile.backends.cpu.configuration import Direct, Product, Winograd
from edgedeploy.compile.backends.cpu.orders import choose_tile_and_order, orders
from edgedeploy.compile.backends.cpu.traffic import MEMORY_BYTES, with_reading
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import FLOAT32, LayerTypes, bytes_of, is_floating, lanes_for
from edgedeploy.compile.layers import BatchMatmul, Convolution, Dense, FirstConvolution
from edgedeploy.compile.operators.product import packed_stack
from edgedeploy.compile.strategy import Anchor, PackedForm, Strategy, additions
from edgedeploy.compile.tiles import Tile, WeightOrder, divisors, imbalance, is_worth_threads, padded_count, round_up
from edgedeploy.target.board import Board

# The types of Winograd's convolutions: floats, or bytes whose products are summed up as floats.
_WINOGRAD = [
    FLOAT32,
    LayerTypes("float16", "float16", "float16", "float16"),
    *(LayerTypes(dtype, "float32", "float32", "int32") for dtype in ("uint8", "int8")),
]


def multiply_add(types: LayerTypes, board: Board, products: float = 1.0) -> tuple[str, float]:
    """LLVM's step, for reports, and the layer's products per cycle: one multiplication stands for `products`."""
    name = "multiply-add of floats" if is_floating(types.accumulator) else "multiply-add of integers"
    return name, lanes_for(board, types.accumulator) * board.fma.per_cycle * products


class ConvolutionStrategy(Strategy[Convolution | FirstConvolution]):
    """Convolutions that sum over several input channels: direct, as a first layer of NCHW always is, or Winograd's."""

    @override
    def default(self) -> Configuration:
        plan = winograd.choose_plan(self._shape, self.board) if self._may_be_winograd else None
        return plan or self._directly()

    @override
    def candidates(self) -> Iterator[Configuration]:
        yield from dict.fromkeys([self._directly(), *self._all_direct()])
        if self._may_be_winograd:
            yield from self._all_winograd()

    @override
    def alternatives(self) -> list[Configuration]:
        sizes = winograd.TRANSFORMS if self._may_be_winograd else ()
        return [self._directly(), *(winograd.best_plan([size], self._shape, self.board) for size in sizes)]

    @override
    def estimate(self, configuration: Configuration) -> float:
        if isinstance(configuration, Winograd):
            return winograd.cycles(configuration, self._shape, self.board)
        assert isinstance(configuration, Direct)
        tile = configuration.tile
        tasks = self._tiles_down(tile) // configuration.rows_per_task
        tasks *= self.layer.outputs // tile.channels if configuration.order.by_channels else 1
        if tasks < self.board.cores and configuration.order.slices == 1:
            tasks *= -(-self.layer.size[1] // tile.columns)
        cycles = tiles.direct_cycles(self._shape, self.board, tile)
        return cycles * self.layer.groups * imbalance(tasks, self.board.cores)

    @override
    def roundings(self, configuration: Configuration) -> float:
        if isinstance(configuration, Winograd):
            return winograd.roundings(configuration.size, additions(self.layer.inputs, self.layer.types.accumulator))
        return super().roundings(configuration)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if isinstance(configuration, Winograd):
            return self._may_be_winograd and winograd.fits(configuration, self._shape, self.board)
        return (
            isinstance(configuration, Direct)
            and self.layer.outputs % configuration.tile.channels == 0
            and tiles.tile_fits(configuration.tile, self._shape, self.board)
            and self._fits_order(configuration.order, configuration.tile)
            and self._tiles_down(configuration.tile) % configuration.rows_per_task == 0
        )

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        products = 1.0
        if isinstance(configuration, Winograd):
            products = (winograd.KERNEL * configuration.size / configuration.values) ** 2
        return multiply_add(self.layer.types, self.board, products)

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        layer, types, window = self.layer, self.layer.types, self.layer.window
        prefetch = tiles.vector_to_prefetch(types, self.board)
        if isinstance(configuration, Winograd):
            size, values = configuration.size, configuration.values
            return PackedForm(
                partial(winograd.convolution, window=window, types=types, plan=configuration, prefetch=prefetch),
                (values, values, *layer.weights[2:]),
                types.weights,
                partial(winograd.transform_weights, size=size),
                partial(winograd.transformed_weights, size=size, dtype=types.weights),
            )
        assert isinstance(configuration, Direct)
        if isinstance(layer, FirstConvolution):
            compute = layer.in_tiles(configuration.tile, lanes=lanes_for(self.board, types.data))
        else:
            compute = layer.in_tiles(configuration.tile, order=configuration.order, prefetch=prefetch)
        return self.unpacked(compute)

    @cached_property
    def _shape(self) -> tiles.ConvolutionShape:
        layer = self.layer
        return tiles.ConvolutionShape(*layer.size, layer.outputs, layer.window.kernel, layer.inputs, layer.types)

    @property
    def _may_be_winograd(self) -> bool:
        layer = self.layer
        fits = isinstance(layer, Convolution) and layer.window.kernel == (winograd.KERNEL, winograd.KERNEL)
        fits = fits and layer.window.strides == layer.window.dilation == (1, 1)
        return fits and layer.constant and layer.types in _WINOGRAD and layer.data[0] == layer.groups == 1

    def _directly(self) -> Direct:
        if isinstance(self.layer, FirstConvolution):
            tile, order = tiles.choose_tile(self._shape, self.board), WeightOrder()
        else:
            tile, order = choose_tile_and_order(self._shape, self.board)
        down = self._tiles_down(tile)
        rows = down if order.by_channels else tiles.rows_per_task(down, 1, self.board.cores)
        return Direct(tile=tile, order=order, rows_per_task=rows)

    def _tiles_down(self, tile: Tile) -> int:
        return -(-self.layer.size[0] // tile.rows)

    def _fits_order(self, order: WeightOrder, tile: Tile) -> bool:
        if not order.by_channels:
            fits = isinstance(self.layer, Convolution) and -(-self.layer.size[1] // tile.columns) % order.panel == 0
            return order == WeightOrder() or (fits and order == WeightOrder(panel=order.panel))
        rows = self.layer.window.kernel[0]
        slices = order.slices in (1, rows) or (rows == 1 and self.layer.inputs % order.slices == 0)
        slices = slices and (order.slices == 1 or tiles.may_be_sliced(self.layer.types))
        interval = order.interval == 0 or (order.interval > 0 and self.layer.inputs % order.interval == 0)
        return isinstance(self.layer, Convolution) and slices and interval and order.panel == 1

    def _orders(self, tile: Tile) -> Iterator[WeightOrder]:
        """By rows; as in `orders`, if caches have a model; by channels, if threads have some, in slices, prefetched."""
        yield WeightOrder()
        if self.board.core_model and isinstance(self.layer, Convolution):
            yield from orders(self._shape, tile, self.board)
        if isinstance(self.layer, FirstConvolution) or self.layer.outputs // tile.channels < self.board.cores:
            return
        intervals = {0}
        if tiles.vector_to_prefetch(self.layer.types, self.board):
            passes = self._tiles_down(tile) * -(-self.layer.size[1] // tile.columns)
            some = (count for count in divisors(self.layer.inputs) if passes <= count < 4 * passes)
            intervals |= {tiles.choose_order(self._shape, tile, self.board).interval, *some}
        for slices in sorted({1, self.layer.window.kernel[0]} if tiles.may_be_sliced(self.layer.types) else {1}):
            yield from (WeightOrder(True, slices, interval) for interval in sorted(intervals))

    def _all_direct(self) -> Iterator[Direct]:
        shape, board = self._shape, self.board
        rates = {tile: tiles.tile_rate(tile, shape, board) for tile in tiles.fitting_tiles(shape, board)}
        best = max(rates.values(), default=0.0)
        for tile in (tile for tile, rate in rates.items() if rate * tiles.WORTH_TRYING >= best):
            for order in self._orders(tile):
                for rows in divisors(self._tiles_down(tile)):
                    yield Direct(tile=tile, order=order, rows_per_task=rows)

    def _all_winograd(self) -> Iterator[Winograd]:
        shape, board = self._shape, self.board
        plans = [(winograd.cycles(plan, shape, board), plan) for plan in winograd.plans(shape, board)]
        best = min((cycles for cycles, _ in plans), default=0.0)
        if best < tiles.WORTH_TRYING * tiles.direct_cycles(shape, board):
            yield from (plan for cycles, plan in plans if cycles <= tiles.WORTH_TRYING * best)


class _ProductStrategy(Strategy[Anchor]):
    """Rows x terms times terms x columns, or a stack of such products."""

    @override
    def default(self) -> Product:
        rows, columns, types = self._rows, self.layer.channels, self.layer.types
        padded = padded_count(columns, lanes_for(self.board, types.accumulator))
        whole = tiles.whole_columns(rows, columns, padded, types, self.board)
        rate = self.board.fma.per_cycle * lanes_for(self.board, types.accumulator)
        worthwhile = is_worth_threads(self.layer.operations, rate)
        tasks = -(-self.board.cores // self.layer.batch) if worthwhile else 1
        tile = tiles.choose_product_tile(rows, whole, types, self.board, tasks=tasks)
        return Product(whole=whole, rows=tile.columns, columns=tile.channels)

    @override
    def candidates(self) -> Iterator[Configuration]:
        columns, types = self.layer.channels, self.layer.types
        found = [
            Product(whole=whole, rows=tile.columns, columns=tile.channels)
            for whole in sorted({padded_count(columns, lanes_for(self.board, types.accumulator)), *self._wholes})
            for tile in tiles.product_tiles(self._rows, whole, types, self.board)
        ]
        yield from dict.fromkeys([self.default(), *found])

    @override
    def estimate(self, configuration: Configuration) -> float:
        assert isinstance(configuration, Product)
        whole = configuration.whole
        tasks = self.layer.batch * -(-self._rows // configuration.rows) * (whole // configuration.columns)
        tile, types = configuration.register_tile, self.layer.types
        cycles = self.layer.batch * tiles.product_cycles(self._rows, whole, tile, types, self.board)
        return self.layer.terms * cycles * imbalance(tasks, self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not isinstance(configuration, Product):
            return False
        whole = configuration.whole
        fitting = tiles.product_tiles(self._rows, whole, self.layer.types, self.board)
        return self.layer.channels <= whole <= max(self._wholes) and configuration.register_tile in fitting

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        return multiply_add(self.layer.types, self.board)

    @property
    def _rows(self) -> int:
        return self.layer.size[1]

    @property
    def _wholes(self) -> list[int]:
        """The columns that are computed, for each number of vectors of a tile."""
        lanes = lanes_for(self.board, self.layer.types.accumulator)
        return [round_up(self.layer.channels, count * lanes) for count in tiles.PRODUCT_VECTORS]


class DenseStrategy(_ProductStrategy[Dense]):
    """A product with a matrix of constants, which is padded to whole tiles."""

    def cycles_from_memory(self) -> tuple[float, float]:
        """The cost if weights come from memory: on one core, and on all cores, which share the memory."""
        chosen, types = self.default(), self.layer.types
        tile = chosen.register_tile
        arithmetic = tiles.product_arithmetic(self._rows, chosen.whole, tile, types, self.board) * self.layer.terms
        weights = bytes_of(types.weights) * math.prod(self.layer.weights)
        return with_reading(arithmetic, weights, self.board), max(arithmetic / self.board.cores, weights / MEMORY_BYTES)

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        assert isinstance(configuration, Product)
        (terms, columns), types, whole = self.layer.weights, self.layer.types, configuration.whole
        compute = self.layer.in_tiles(configuration.register_tile, prefetch=tiles.vector_to_prefetch(types, self.board))
        pack = partial(np.pad, pad_width=((0, 0), (0, whole - columns)))
        return PackedForm(compute, (terms, whole), types.weights, pack)


class BatchMatmulStrategy(_ProductStrategy[BatchMatmul]):
    """Products of stacks of matrices; the second is packed if tiles do not divide it, and constants at build time."""

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        assert isinstance(configuration, Product)
        layer, tile, whole = self.layer, configuration.register_tile, configuration.whole
        if layer.constant and len(layer.weights) > 2:  # the template packs a single transposed matrix
            compute = layer.in_tiles(tile, whole_columns=whole, packed_columns=layer.channels)
            shape = (*layer.weights[:-2], whole // tile.channels, layer.terms, tile.channels)
            pack = partial(packed_stack, whole_columns=whole, tile_columns=tile.channels, transposed=layer.transposed)
            return PackedForm(compute, shape, layer.types.weights, pack)
        packed = layer.transposed or whole != layer.channels
        compute = layer.in_tiles(tile, whole_columns=whole if packed else 0)
        return self.unpacked(compute)

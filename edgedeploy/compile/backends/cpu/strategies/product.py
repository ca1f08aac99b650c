"""Dense layers: products with a matrix of constants."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from typing_extensions import override

from edgedeploy.compile.backends.cpu.configuration import Product
from edgedeploy.compile.backends.cpu.tiles import (
    PRODUCT_VECTORS,
    choose_product_tile,
    product_cycles,
    product_tiles,
    vector_to_prefetch,
    whole_columns,
)
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import Dense
from edgedeploy.compile.layers.layer import Form
from edgedeploy.compile.operators.product import product
from edgedeploy.compile.strategy import Strategy
from edgedeploy.compile.tiles import imbalance, padded_count, round_up
from edgedeploy.compile.types import lanes_for


class DenseStrategy(Strategy[Dense]):
    """Rows x terms times terms x columns; the weights are constants."""

    @override
    def default(self) -> Configuration:
        rows, columns, types = self.layer.data[0], self.layer.weights[1], self.layer.types
        padded = padded_count(columns, lanes_for(self.board, types.accumulator))
        whole = whole_columns(rows, columns, padded, types, self.board)
        tile_rows, tile_columns = choose_product_tile(rows, whole, types, self.board)
        return Product(whole=whole, rows=tile_rows, columns=tile_columns)

    @override
    def candidates(self) -> Iterator[Configuration]:
        columns, types = self.layer.weights[1], self.layer.types
        lanes = lanes_for(self.board, types.accumulator)
        wholes = {padded_count(columns, lanes), *(round_up(columns, count * lanes) for count in PRODUCT_VECTORS)}
        found = [
            Product(whole=whole, rows=rows, columns=tile)
            for whole in sorted(wholes)
            for rows, tile in product_tiles(self.layer.data[0], whole, types, self.board)
        ]
        yield from dict.fromkeys([self.default(), *found])

    @override
    def estimate(self, configuration: Configuration) -> float:
        assert isinstance(configuration, Product)
        rows, whole = self.layer.data[0], configuration.whole
        tasks = rows // configuration.rows * (whole // configuration.columns)
        cycles = product_cycles(rows, whole, configuration.rows, configuration.columns, self.layer.types, self.board)
        return self.layer.data[1] * cycles * imbalance(tasks, self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not isinstance(configuration, Product):
            return False
        columns, whole, types = self.layer.weights[1], configuration.whole, self.layer.types
        tile = configuration.rows, configuration.columns
        most = round_up(columns, 8 * lanes_for(self.board, types.accumulator))
        return columns <= whole <= most and tile in product_tiles(self.layer.data[0], whole, types, self.board)

    @override
    def lower(self, configuration: Configuration) -> Form:
        rows, types = configuration.register_tile.columns, self.layer.types
        prefetch = vector_to_prefetch(types, self.board)
        return partial(product, columns=self.layer.weights[1], types=types, tile_rows=rows, prefetch=prefetch)

    @override
    def packed(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        return np.pad(weights, ((0, 0), (0, self.packed_shape(configuration)[1] - weights.shape[1])))

    @override
    def packed_shape(self, configuration: Configuration) -> tuple[int, ...]:
        assert isinstance(configuration, Product)
        return self.layer.weights[0], configuration.whole

"""Dense layers: products with a matrix of constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal

import numpy as np
from typing_extensions import override

from edgedeploy.board import Board
from edgedeploy.compile.channels import padded_count
from edgedeploy.compile.configuration import Configuration, Product
from edgedeploy.compile.layers.layer import Form, Layer
from edgedeploy.compile.operators.prefetch import vector_to_prefetch
from edgedeploy.compile.operators.product import MATMUL, product
from edgedeploy.compile.tiles import (
    PRODUCT_VECTORS,
    choose_product_tile,
    imbalance,
    lanes_for,
    product_cycles,
    product_tiles,
    round_up,
    whole_columns,
)


class Dense(Layer):
    """Rows x terms times terms x columns; the weights are constants."""

    kind: Literal["dense"] = "dense"

    @property
    @override
    def name(self) -> str:
        return MATMUL

    @property
    @override
    def operations(self) -> int:
        return 2 * self.data[0] * math.prod(self.weights)

    @override
    def plain(self) -> Form:
        return partial(product, columns=self.weights[1], tile_rows=1)

    @override
    def default(self, board: Board) -> Configuration:
        rows, columns = self.data[0], self.weights[1]
        whole = whole_columns(rows, columns, padded_count(columns, lanes_for(board)), board)
        tile_rows, tile_columns = choose_product_tile(rows, whole, board)
        return Product(whole=whole, rows=tile_rows, columns=tile_columns)

    @override
    def configurations(self, board: Board) -> Iterator[Configuration]:
        columns, lanes = self.weights[1], lanes_for(board)
        wholes = {padded_count(columns, lanes), *(round_up(columns, count * lanes) for count in PRODUCT_VECTORS)}
        found = [
            Product(whole=whole, rows=rows, columns=tile)
            for whole in sorted(wholes)
            for rows, tile in product_tiles(self.data[0], whole, board)
        ]
        yield from dict.fromkeys([self.default(board), *found])

    @override
    def estimate(self, configuration: Configuration, board: Board) -> float:
        assert isinstance(configuration, Product)
        rows, whole = self.data[0], configuration.whole
        tasks = rows // configuration.rows * (whole // configuration.columns)
        cycles = product_cycles(rows, whole, configuration.rows, configuration.columns, board)
        return self.data[1] * cycles * imbalance(tasks, board.cores)

    @override
    def fits(self, configuration: Configuration, board: Board) -> bool:
        return (
            isinstance(configuration, Product)
            and self.weights[1] <= configuration.whole <= round_up(self.weights[1], 8 * lanes_for(board))
            and (configuration.rows, configuration.columns) in product_tiles(self.data[0], configuration.whole, board)
        )

    @override
    def written(self, configuration: Configuration, board: Board) -> Form:
        rows = configuration.register_tile.columns
        return partial(product, columns=self.weights[1], tile_rows=rows, prefetch=vector_to_prefetch(board))

    @override
    def relaid(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        return np.pad(weights, ((0, 0), (0, self.relaid_shape(configuration)[1] - weights.shape[1])))

    @override
    def relaid_shape(self, configuration: Configuration) -> tuple[int, ...]:
        whole = configuration.whole if isinstance(configuration, Product) else self.weights[1]
        return self.weights[0], whole

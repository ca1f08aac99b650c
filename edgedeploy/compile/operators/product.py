"""Products of activations with a matrix of constants, or of stacks of them, in whole tiles, which are cropped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.operators.direct import CROP, prefetched
from edgedeploy.compile.tiles import Tile, ravelled, round_up

MATMUL, PACK = "matmul", "pack"  # the blocks that templates look for: the one that accumulates, and the one that packs


def product(
    data: te.Tensor, weights: te.Tensor, columns: int, types: LayerTypes, tile_rows: int, prefetch: int = 0
) -> te.Tensor:
    """Rows times a matrix: rows x terms, the rows of any dimensions, times terms x columns, to rows x columns.

    Weights may have more than `columns`, which are computed and cropped. Vectors of `prefetch` weights are prefetched,
    none if it is 0; `tile_rows` are of the template's tile.
    """
    *shape, terms = (int(size) for size in data.shape)
    rows, whole_columns = math.prod(shape), int(weights.shape[1])
    term = te.reduce_axis((0, terms), "k")

    def sum_of_products(row: Any, column: Any) -> Any:
        first = tirx.floormod(row, tile_rows) == 0
        weight = prefetched(weights, (term, column), 0, first, prefetch)
        place = (*unravelled(_within(row, rows, tile_rows), shape), term)
        return te.sum(types.product(data[place], weight), [term])

    whole = te.compute((round_up(rows, tile_rows), whole_columns), sum_of_products, name=MATMUL)
    return _cropped(whole, (*shape, columns), types.result, lambda place: (ravelled(place[:-1], shape), place[-1]))


def stacked_product(
    data: te.Tensor,
    weights: te.Tensor,  # ... x terms x columns, or ... x columns x terms if they are `transposed`
    types: LayerTypes,
    tile: Tile,  # of the template; its rows are columns of pixels, and its columns are channels
    *,
    transposed: bool,
    # The columns that are computed, a multiple of the tile's, on weights that are packed first; 0 to compute the
    # result's columns on the original weights.
    whole_columns: int = 0,
    packed_columns: int = 0,  # the result's columns if `packed_stack` packed the weights at build time, else 0
) -> te.Tensor:
    """Products of a stack of matrices, ... x rows x terms, with another, whose dimensions are broadcast."""
    *data_stack, rows, terms = (int(size) for size in data.shape)
    *weights_stack, others, columns = (int(size) for size in weights.shape)
    if packed_columns:
        weights_stack, columns = weights_stack[:-1], packed_columns
    elif transposed:
        columns = others

    def weight(stack: Sequence[Any], term: Any, column: Any) -> Any:
        return weights[(*stack, column, term) if transposed else (*stack, term, column)]

    def packed(*indices: Any) -> Any:
        *stack, block, term, column = indices
        column = block * tile.channels + column
        return weight(stack, term, column if padded == columns else tirx.min(column, columns - 1))

    padded = whole_columns or columns
    blocks = weights
    if whole_columns and not packed_columns:
        shape = (*weights_stack, whole_columns // tile.channels, terms, tile.channels)
        blocks = te.compute(shape, packed, name=PACK)

    def sum_of_products(*indices: Any) -> Any:
        *stack, row, column = indices
        place = (*_broadcast(stack, data_stack), _within(row, rows, tile.columns), term)
        stack = _broadcast(stack, weights_stack)
        if not whole_columns:
            return te.sum(types.product(data[place], weight(stack, term, column)), [term])
        packed_place = (*stack, tirx.floordiv(column, tile.channels), term, tirx.floormod(column, tile.channels))
        return te.sum(types.product(data[place], blocks[packed_place]), [term])

    term = te.reduce_axis((0, terms), "k")
    stack = np.broadcast_shapes(tuple(data_stack), tuple(weights_stack))
    whole = te.compute((*stack, round_up(rows, tile.columns), padded), sum_of_products, name=MATMUL)
    return _cropped(whole, (*stack, rows, columns), types.result, lambda place: place)


def packed_stack(weights: np.ndarray, whole_columns: int, tile_columns: int, *, transposed: bool) -> np.ndarray:
    """A stack of matrices by tiles of columns, with zeros added: ... x tiles x terms x columns of a tile."""
    matrices = weights.swapaxes(-1, -2) if transposed else weights
    *stack, terms, columns = matrices.shape
    whole = np.pad(matrices, [(0, 0)] * (len(stack) + 1) + [(0, whole_columns - columns)])
    tiles = whole.reshape(*stack, terms, whole_columns // tile_columns, tile_columns)
    return np.ascontiguousarray(tiles.swapaxes(-2, -3))


def _cropped(whole: te.Tensor, shape: tuple[int, ...], dtype: str, place_in: Callable[[Any], Any]) -> te.Tensor:
    """The elements of a tensor at the places for those of a result, as a type."""
    if tuple(map(int, whole.shape)) == shape and whole.dtype == dtype:
        return whole
    return te.compute(shape, lambda *place: whole[place_in(place)].astype(dtype), name=CROP)


def _broadcast(indices: Sequence[Any], stack: Sequence[int]) -> list[Any]:
    """The indices in a stack that is broadcast to a larger one."""
    last = indices[len(indices) - len(stack) :]
    return [0 if size == 1 else index for index, size in zip(last, stack, strict=True)]


def _within(row: Any, rows: int, tile_rows: int) -> Any:
    """A row, or the last one instead of rows beyond it, which are cropped."""
    return row if rows % tile_rows == 0 else tirx.min(row, rows - 1)


def unravelled(index: Any, shape: Sequence[int]) -> list[Any]:
    """The indices of the element of an array at a place in memory."""
    if len(shape) == 1:
        return [index]
    found: list[Any] = []
    for size in reversed(shape):
        found.insert(0, 0 if size == 1 else tirx.floormod(index, size) if math.prod(shape) != size else index)
        index = tirx.floordiv(index, size)
    return found

"""Winograd's convolutions with 3x3 kernels: fewer multiplications, for transforms before and after.

A tile of m x m outputs is computed from (m+2) x (m+2) inputs d and the kernel's elements g as
`A^T [(G g G^T) * (B^T d B)] A`: (m+2)^2 multiplications for each pair of channels instead of 9 m^2. Summed over
the input channels, they are (m+2)^2 products of matrices. G g G^T is computed when the network is built, or loaded.

Source: A. Lavin and S. Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, sections 4.1 and 4.3.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from edgedeploy.compile.backends.cpu.configuration import Winograd
from edgedeploy.compile.backends.cpu.steps import has_half
from edgedeploy.compile.backends.cpu.tiles import ConvolutionShape, best_of, direct_cycles, step_cycles, tile_registers
from edgedeploy.compile.backends.cpu.traffic import LINE, beyond, is_cached, reread, with_reading
from edgedeploy.compile.ir.types import LayerTypes, bytes_of, is_floating, lanes_for
from edgedeploy.compile.operators.direct import Window, crop, pad, prefetched
from edgedeploy.compile.strategy import ROUNDING, summed
from edgedeploy.compile.tiles import Tile, round_up, row_tiles, vector_length
from edgedeploy.target.board import Board

# The blocks that templates look for: the one that accumulates, and the one that begins to transform weights.
PRODUCT, WEIGHT_ROWS = "winograd", "transform_rows_of_weights"

KERNEL = 3  # height and width of the kernels


@dataclass(frozen=True)
class Transform:
    """The matrices for tiles of m x m outputs: G is (m+2) x 3, B^T is (m+2) x (m+2), A^T is m x (m+2).

    Rows of G are those of `elements`, of few bits, times `scales`: products with elements are exact in float64, so that
    sums of them are rounded alike with fused multiply-adds and without.
    """

    elements: np.ndarray
    scales: np.ndarray
    inputs: np.ndarray
    outputs: np.ndarray


def _of_points(a: float, b: float) -> Transform:
    """The matrices for tiles of 4 x 4 outputs that evaluate polynomials at 0, a, -a, b, -b and infinity."""
    aa, bb = a * a, b * b
    return Transform(
        elements=np.array([[1, 0, 0], [1, a, aa], [1, -a, aa], [1, b, bb], [1, -b, bb], [0, 0, 1]]),
        scales=np.array([1 / (aa * bb), *[1 / (2 * aa * (aa - bb))] * 2, *[1 / (2 * bb * (bb - aa))] * 2, 1]),
        inputs=np.array(
            [
                [aa * bb, 0, -aa - bb, 0, 1, 0],
                [0, -a * bb, -bb, a, 1, 0],
                [0, a * bb, -bb, -a, 1, 0],
                [0, -aa * b, -aa, b, 1, 0],
                [0, aa * b, -aa, -b, 1, 0],
                [0, aa * bb, 0, -aa - bb, 0, 1],
            ]
        ),
        outputs=np.array(
            [[1, 1, 1, 1, 1, 0], [0, a, -a, b, -b, 0], [0, aa, aa, bb, bb, 0], [0, a * aa, -a * aa, b * bb, -b * bb, 1]]
        ),
    )


# Of the points for tiles of 4 x 4 that half precision represents with all their products, those with small errors: a
# fifth of the variance of 1 and 2.
TRANSFORMS = {
    2: Transform(
        elements=np.array([[1, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 1]]),
        scales=np.array([1, 1 / 2, 1 / 2, 1]),
        inputs=np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
        outputs=np.array([[1, 1, 1, 0], [0, 1, -1, -1]]),
    ),
    4: _of_points(5 / 8, 3 / 2),
}

# The order in which kernel elements are summed up: rows of G come in pairs that differ in the sign of the middle one.
_SUMMED = (0, 2, 1)

# The part of a direct convolution's cycles below which the form is chosen, and below which a board might choose it.
_WORTH, _NEARLY_WORTH = 0.9, 2.0
# Cycles of both transforms together for a value of a tile, per vector of channels and multiply-add unit.
_TRANSFORM_CYCLES = 30
_CACHE_BYTES = 16  # bytes of weights that arrive per cycle from the L2 cache, for every band but the first
# Roundings of each product in the transforms of data, weights and results together; fitted to measurements.
_TRANSFORM_ROUNDINGS = 8


def choose_plan(shape: ConvolutionShape, board: Board) -> Winograd | None:
    """The division that costs the least, or None if a direct convolution costs as little.

    Emulated half precision is only tried out for a board, which may choose otherwise: there the largest tiles, which
    round most, are taken if they are not far from being worth it.
    """
    emulated = shape.types.accumulator == "float16" and not has_half(board)
    plan = best_plan([max(TRANSFORMS)] if emulated else TRANSFORMS, shape, board)
    worth = _NEARLY_WORTH if emulated else _WORTH
    return plan if cycles(plan, shape, board) < worth * direct_cycles(shape, board) else None


def best_plan(sizes: Iterable[int], shape: ConvolutionShape, board: Board) -> Winograd:
    """The division with one of these sizes of tiles that costs the least; of equal ones, the one with fewer misses."""
    likely = (plan for size in sizes for plan in _likely(size, shape, board))
    return min(likely, key=lambda plan: (cycles(plan, shape, board), _waiting(plan, shape, board)))


def roundings(size: int, inputs: float) -> float:
    """The variance of the rounding errors of tiles of `size` x `size` outputs, in squares of the sums' unit roundoff.

    For data and weights of variance 1, product (i, j) has the variance `w[i] w[j]`, w being the squared norms of the
    rows of B^T times those of G; A^T sums up its errors with the squares of its elements. The result has variance 9
    for each input channel. It is the mean over a tile: later layers mix its pixels.
    """
    matrices = TRANSFORMS[size]
    weights = matrices.elements * matrices.scales[:, None]
    products = (matrices.inputs**2).sum(axis=1) * (weights**2).sum(axis=1)
    growth = float((matrices.outputs**2 @ products).mean()) / KERNEL
    return growth**2 * (summed(inputs) + ROUNDING * _TRANSFORM_ROUNDINGS)


def plans(shape: ConvolutionShape, board: Board) -> Iterator[Winograd]:
    """All divisions with register tiles that fit."""
    for size, shared, by_element in itertools.product(TRANSFORMS, (False, True), _orders(board)):
        for band in _bands(size, shape, shared=shared):
            for product in _product_tiles(shape, board):
                plan = Winograd(size=size, band=band, product=product, shared=shared, by_element=by_element)
                if _stays_near(plan, shape, board) and _fills(plan, shape):
                    yield plan


def fits(plan: Winograd, shape: ConvolutionShape, board: Board) -> bool:
    """Whether a convolution can be divided by a plan."""
    divides = plan.size in TRANSFORMS and plan.band in _bands(plan.size, shape, shared=plan.shared)
    return divides and _fills(plan, shape) and plan.product in _product_tiles(shape, board)


def _bands(size: int, shape: ConvolutionShape, *, shared: bool) -> range:
    rows = -(-shape.height // size)
    return range(rows if shared else 1, rows + 1)


def _count_bands(plan: Winograd, shape: ConvolutionShape) -> int:
    return -(-shape.height // (plan.size * plan.band))


def _stays_near(plan: Winograd, shape: ConvolutionShape, board: Board) -> bool:
    """Whether the data between the transforms stay in a cache: those of a band in L2."""
    if plan.shared:
        return not plan.by_element or is_cached(_bytes_between(plan, shape), board)
    return plan.band == 1 or _bytes_between(plan, shape) <= board.cache.l2_kib * 1024


def _fills(plan: Winograd, shape: ConvolutionShape) -> bool:
    """Whether a band has the tiles of a register tile, except one at most."""
    return plan.product.columns <= round_up(plan.band * -(-shape.width // plan.size), 2)


def _orders(board: Board) -> Sequence[bool]:
    """The possible values of `by_element`: it saves cache misses, and helps if their cost is known."""
    return (False, True) if board.core_model else (False,)


def _likely(size: int, shape: ConvolutionShape, board: Board) -> Iterator[Winograd]:
    """The divisions worth an estimate, with the best register tiles; without a model of caches, those that fit."""
    cache = board.cache.l2_kib * 1024
    large = _weight_bytes(size, shape) > cache
    shareds = ((False, True) if large else (False,)) if board.core_model else (large,)
    for shared, by_element in itertools.product(shareds, _orders(board)):
        for band in _bands(size, shape, shared=shared):
            product = _product_tile(band * -(-shape.width // size), shape, board)
            plan = Winograd(size=size, band=band, product=product, shared=shared, by_element=by_element)
            if not board.core_model and not shared and band > 1 and _bytes_between(plan, shape) > cache / 3:
                break
            if not board.core_model or _stays_near(plan, shape, board):
                yield plan


def _weight_bytes(size: int, shape: ConvolutionShape) -> int:
    return bytes_of(shape.types.weights) * (size + KERNEL - 1) ** 2 * shape.inputs * shape.channels


def _bytes_between(plan: Winograd, shape: ConvolutionShape) -> int:
    """Bytes of a band's transformed data and of the products until the first are read, in the type of the sums."""
    channels = shape.channels if plan.by_element else plan.product.channels
    values = plan.values**2 * plan.tiles(shape.width) * (shape.inputs + channels)
    return bytes_of(shape.types.accumulator) * values


def _product_tile(tiles: int, shape: ConvolutionShape, board: Board) -> Tile:
    """The register tile of the products: `tiles` pixels in one row."""
    length = vector_length(shape.channels, lanes_for(board, shape.types.accumulator))

    def rate(tile: Tile) -> float:
        vectors = tile.channels // length
        return tile.columns * vectors * tile.useful(1, tiles) / step_cycles(tile.columns, vectors, board)

    return best_of(_product_tiles(shape, board), rate, Tile(1, 1, length))


def _product_tiles(shape: ConvolutionShape, board: Board) -> list[Tile]:
    length = vector_length(shape.channels, lanes_for(board, shape.types.accumulator))
    registers = tile_registers(board)
    return row_tiles(shape.channels, length, (2, 1, 3, 4), lambda vectors: (registers - vectors - 1) // vectors)


def cycles(plan: Winograd, shape: ConvolutionShape, board: Board) -> float:
    """The estimated cost of a division for all cores together."""
    inputs, outputs, lanes = shape.inputs, shape.channels, lanes_for(board, shape.types.accumulator)
    bands = _count_bands(plan, shape)
    tiles, values = plan.tiles(shape.width), plan.values**2
    length = vector_length(plan.product.channels, lanes)
    vectors = plan.product.channels // length
    steps = tiles / plan.product.columns * outputs / plan.product.channels * values * inputs
    product = steps * step_cycles(plan.product.columns, vectors, board)
    transformed = inputs / vector_length(inputs, lanes) + outputs / length
    transforms = _TRANSFORM_CYCLES * values * tiles * transformed / 2 / max(1.0, board.fma.per_cycle)
    weights = _weight_bytes(plan.size, shape)
    balance = 1.0 if plan.shared else -(-bands // board.cores) * board.cores / bands
    return with_reading(bands * balance * (product + transforms) + _waiting(plan, shape, board), weights, board)


def _waiting(plan: Winograd, shape: ConvolutionShape, board: Board) -> float:
    """Cycles for weights that the bands after the first read again, and for the data between the transforms."""
    bands, weights = _count_bands(plan, shape), _weight_bytes(plan.size, shape)
    if not board.core_model:
        return 0 if plan.shared else (bands - 1) * weights / _CACHE_BYTES
    between = _bytes_between(plan, shape)
    value = bytes_of(shape.types.accumulator) * plan.values**2 * plan.tiles(shape.width) / LINE
    data, products = value * shape.inputs, value * shape.channels
    passes = 1 if plan.by_element else shape.channels // plan.product.channels
    # All weights pass before the products of all tiles' values are read again.
    behind = between + weights if plan.shared and plan.by_element else between
    read = passes * data * reread(between, board) + products * reread(behind, board)
    written = data * beyond(between, board).store + products * beyond(behind, board).store
    again = (bands - 1) * weights / LINE * reread(weights + between, board)
    return bands * (read + written) + again


def transform_weights(weights: np.ndarray, size: int) -> np.ndarray:
    """G g G^T of 3 x 3 x inputs x outputs weights: (m+2) x (m+2) x inputs x outputs, in the weights' dtype.

    It is computed in float64, and rounded once. Results too small for a normal number are zero, as on boards.
    """
    matrix, wide = TRANSFORMS[size], weights.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # weights may be infinite, as in a trial of half precision
        half = np.stack([_sum(row, wide) for row in matrix.elements])
        whole = np.stack([_sum(row, half.swapaxes(0, 1)) for row in matrix.elements], axis=1)
        whole *= np.multiply.outer(matrix.scales, matrix.scales)[:, :, None, None]
        transformed = whole.astype(weights.dtype)
    transformed[np.abs(transformed) < np.finfo(weights.dtype).tiny] *= 0  # with its sign
    return transformed


def _sum(row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sum of kernel elements weighted by one row of G, in the order of `_SUMMED`."""
    return functools.reduce(np.add, (row[place] * values[place] for place in _SUMMED if row[place]))


def transformed_weights(weights: te.Tensor, size: int, dtype: str = "float32") -> te.Tensor:
    """As `transform_weights`, to the last bit, for code that runs when a network is loaded."""
    matrix = TRANSFORMS[size]
    ordered = matrix.elements[:, _SUMMED]
    values, (_, _, inputs, outputs) = size + KERNEL - 1, (int(extent) for extent in weights.shape)
    half = te.compute(
        (values, KERNEL, inputs, outputs),
        lambda i, b, c, f: _combine(ordered, i, lambda a: weights[_SUMMED[a], b, c, f].astype("float64"), "float64"),
        name=WEIGHT_ROWS,
    )

    def value(i: Any, j: Any, c: Any, f: Any) -> Any:
        total = _combine(ordered, j, lambda b: half[i, _SUMMED[b], c, f], "float64")
        scale = _element(matrix.scales, i, "float64") * _element(matrix.scales, j, "float64")
        return (total * scale).astype(dtype)

    return te.compute((values, values, inputs, outputs), value, name="transform_weights")


def convolution(
    data: te.Tensor, weights: te.Tensor, window: Window, types: LayerTypes, plan: Winograd, prefetch: int = 0
) -> te.Tensor:
    """A convolution with stride 1 of 1 x height x width x inputs by transformed weights: 1 x rows x columns x outputs.

    Weights are (m+2) x (m+2) x inputs x outputs; vectors of `prefetch` of them are prefetched, none if it is 0.
    Transforms have the type of sums; integers are rounded to the result's.
    """
    _, height, width, inputs = (int(size) for size in data.shape)
    outputs = int(weights.shape[3])
    rows, columns = window.output_size(height, width)
    size, values, band = plan.size, plan.values, plan.band
    across = -(-columns // size)
    bands, tiles = -(-rows // (size * band)), plan.tiles(columns)
    matrices, sums = TRANSFORMS[size], types.accumulator

    padded_height = (bands - 1) * band * size + (tiles - 1) // across * size + values
    padded = pad(data, window, padded_height, (across - 1) * size + values, data.dtype)

    def value_of_tile(b: Any, t: Any, y: Any, x: Any, c: Any) -> Any:
        return padded[0, (b * band + t // across) * size + y, t % across * size + x, c].astype(sums)

    half = te.compute(
        (bands, tiles, values, values, inputs),
        lambda b, t, i, x, c: _combine(matrices.inputs, i, lambda y: value_of_tile(b, t, y, x, c), sums),
        name="transform_rows",
    )
    transformed = te.compute(
        (bands, values, values, tiles, inputs),
        lambda b, i, j, t, c: _combine(matrices.inputs, j, lambda x: half[b, t, i, x, c], sums),
        name="transform_columns",
    )
    ic = te.reduce_axis((0, inputs), "rc")

    def sum_of_products(b: Any, i: Any, j: Any, t: Any, f: Any) -> Any:
        first = tirx.floormod(t, plan.product.columns) == 0
        weight = prefetched(weights, (i, j, ic, f), 2, first, prefetch)
        return te.sum(types.product(transformed[b, i, j, t, ic], weight), axis=[ic])

    product = te.compute((bands, values, values, tiles, outputs), sum_of_products, name=PRODUCT)
    half_back = te.compute(
        (bands, tiles, size, values, outputs),
        lambda b, t, y, j, f: _combine(matrices.outputs, y, lambda i: product[b, i, j, t, f], sums),
        name="restore_rows",
    )

    def output(n: Any, y: Any, x: Any, f: Any) -> Any:
        b, row = y // (band * size), y % (band * size)
        tile = row // size * across + x // size
        value = _combine(matrices.outputs, x % size, lambda j: half_back[b, tile, row % size, j, f], sums)
        return value if is_floating(types.result) else tirx.call_llvm_pure_intrin(types.result, "llvm.lrint", value)

    whole = te.compute((1, bands * band * size, across * size, outputs), output, name="restore_columns")
    return crop(whole, (rows, columns), types.result)


def _combine(matrix: np.ndarray, row: Any, value: Callable[[int], Any], dtype: str) -> Any:
    """The sum of values weighted by one row of a matrix; zeros vanish when the row is known, once unrolled."""
    columns = range(matrix.shape[1])
    return functools.reduce(operator.add, (_element(matrix[:, each], row, dtype) * value(each) for each in columns))


def _element(values: np.ndarray, index: Any, dtype: str) -> Any:
    """An element of a constant vector at an index that is a variable until it is unrolled."""
    *others, chosen = (tirx.const(float(value), dtype) for value in values)
    for position, value in reversed(list(enumerate(others))):
        chosen = tirx.Select(index == position, value, chosen)
    return chosen

"""Sizes of register tiles, from a model of the cost of a step of a convolution's reduction on a board.

All costs are in cycles of one core. Constants without a source were fitted to timings on x86-64 with 512-bit vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from edgedeploy.compile.backends.cpu.traffic import MEMORY_BYTES, with_reading
from edgedeploy.compile.ir.types import LayerTypes, bytes_of, lanes_for
from edgedeploy.compile.tiles import ONE_BY_ONE, Tile, WeightOrder, divisors, round_up, row_tiles, vector_length
from edgedeploy.target.board import Board

STRETCH_CYCLES = 4  # what it costs to begin reading elsewhere, besides the bytes

# Configurations that take so many times as long as the best by a model's estimate are not worth a trial.
WORTH_TRYING = 1.6

# Cycles to widen a vector of weights from half precision, on cores that compute in order and on others: what sums of
# one row take more by llvm-mca's models of Cortex-A53, A72 and Neoverse N1.
_WIDENED_IN_ORDER, _WIDENED = 3.0, 1.5

RESULT_CYCLES = 4  # cycles to turn a vector of sums into bytes: bias, conversion, scale, rounding, limits, narrowing
SMALL_FEATURE_MAP = 16  # images up to this height are split over channels rather than over rows
MAX_ROWS = 4  # most rows of a tile: each is one more pointer in the innermost loop
UNROLLED_STEPS = 9  # the longest loops that LLVM was seen to unroll around a tile

# Steps of a longer sum that are written out one after the other, since the loop takes time too. Eight of 4 x 16 sums
# take 128.5 cycles on Cortex-A72, four 64.5, one 16.5 (`benchmarks/arm_loops.py`).
WRITTEN_OUT = (8, 4, 2, 1)
# The most of them that all tiles have registers for.
_FEW_STEPS = 4
_LONG_SUM = 32

PRODUCT_VECTORS = (8, 7, 6, 5, 4, 3, 2, 1)  # vectors of columns that a product's tile may have


def tile_registers(board: Board) -> int:
    """How many vector registers a tile may fill with sums, weights and one input.

    On x86 all of them: multiply-adds read an operand from memory. Elsewhere inputs are loaded first, and LLVM moves
    loads ahead of their use: without three in sixteen registers to spare it spills (`benchmarks/arm_loops.py`).
    """
    registers = board.vector.registers
    return registers if board.is_x86 else registers * 13 // 16


def step_cycles(pixels: int, vectors: int, board: Board) -> float:
    """The cost of a step of the reduction: pixels x vectors multiply-adds, not before those of the last step are done.

    Loads of as many inputs and weights hide behind them, though not fully, until there are more loads than cycles.
    """
    loads = pixels + vectors
    arithmetic = max(pixels * vectors / board.fma.per_cycle, board.fma.latency)
    return max(arithmetic + 0.1 * loads + 0.1 * vectors, 0.8 * loads)


@dataclass(frozen=True)
class ConvolutionShape:
    """A convolution for the models: pixels of its output, output and input channels of one group, and its kernel."""

    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    inputs: int
    types: LayerTypes

    @property
    def terms(self) -> int:
        """The products in each sum."""
        return math.prod(self.kernel) * self.inputs


def choose_tile(shape: ConvolutionShape, board: Board) -> Tile:
    """The tile that does the most useful arithmetic in a cycle; pixels beyond the feature map are useless."""
    return best_of(fitting_tiles(shape, board), lambda tile: tile_rate(tile, shape, board), ONE_BY_ONE)


def best_of(tiles: Iterable[Tile], rate: Callable[[Tile], float], best: Tile) -> Tile:
    """The tile of the highest rate; of equally good ones, the first. `best` without tiles."""
    best_rate = 0.0
    for tile in tiles:
        if (found := rate(tile)) > best_rate * 1.001:
            best, best_rate = tile, found
    return best


def fitting_tiles(shape: ConvolutionShape, board: Board) -> Iterator[Tile]:
    """The tiles that fit the registers."""
    lanes = lanes_for(board, shape.types.accumulator)
    for vectors in (each for each in (2, 1, 3, 4, 8) if shape.channels % each == 0):
        channels = vectors * vector_length(shape.channels // vectors, lanes)
        for rows in range(1, min(MAX_ROWS, shape.height) + 1):
            tiles = (Tile(rows, columns, channels) for columns in range(1, shape.width + 1))
            yield from takewhile(lambda tile: tile_fits(tile, shape, board), tiles)


def tile_fits(tile: Tile, shape: ConvolutionShape, board: Board) -> bool:
    """Whether a tile's sums fit the registers with its weights and one input."""
    vectors = vectors_of(tile.channels, shape.types, board)
    steps = _steps_at_once(shape.kernel[1], shape.inputs, board)
    return (
        1 <= tile.rows <= min(MAX_ROWS, shape.height)
        and 1 <= tile.columns <= shape.width
        and tile.rows * tile.columns * vectors + vectors * steps + 1 <= tile_registers(board)
    )


def tile_cycles(tile: Tile, shape: ConvolutionShape, board: Board) -> float:
    """The cost of a tile: the steps, then the results, each pixel under a condition if tiles reach beyond the map."""
    pixels, vectors = tile.rows * tile.columns, vectors_of(tile.channels, shape.types, board)
    conditions = 8 * pixels if tile.useful(shape.height, shape.width) < 1 else 0
    return shape.terms * step_cycles(pixels, vectors, board) + pixels * vectors + conditions


def tile_rate(tile: Tile, shape: ConvolutionShape, board: Board) -> float:
    """Useful sums of a tile per cycle."""
    sums = tile.rows * tile.columns * tile.channels
    return sums * tile.useful(shape.height, shape.width) / tile_cycles(tile, shape, board)


def choose_product_tile(rows: int, columns: int, types: LayerTypes, board: Board, *, tasks: int = 1) -> Tile:
    """The tile with the most multiply-adds for each value it loads; fewer than `tasks` count less.

    A single row waits for its weights: it takes several vectors, to read whole lines.
    """
    length = vector_length(columns, lanes_for(board, types.accumulator))

    def preference(tile: Tile) -> tuple[float, int]:
        count, vectors = tile.columns, tile.channels // length
        busy = min(1.0, -(-rows // count) * (columns // tile.channels) / tasks)
        return busy * rows / round_up(rows, count) * count * vectors / (count + vectors), vectors

    return max(product_tiles(rows, columns, types, board), key=preference)


def product_tiles(rows: int, columns: int, types: LayerTypes, board: Board) -> list[Tile]:
    """The tiles that fit the registers and divide the columns; rows beyond the last are cropped.

    As in `Product`, rows are the tile's columns of pixels, and columns its channels.
    """
    length, registers = vector_length(columns, lanes_for(board, types.accumulator)), board.vector.registers
    return row_tiles(columns, length, PRODUCT_VECTORS, lambda count: min(rows, (registers - count - 1) // count))


def whole_columns(rows: int, columns: int, padded: int, types: LayerTypes, board: Board) -> int:
    """How many columns a product computes: those `padded` to whole vectors, or more if larger tiles make up for them.

    A few rows wait for their weights, which come from memory at their own pace.
    """

    def cycles(whole: int) -> float:
        return product_cycles(rows, whole, choose_product_tile(rows, whole, types, board), types, board)

    lanes = lanes_for(board, types.accumulator)
    wider = (round_up(columns, count * lanes) for count in PRODUCT_VECTORS)
    return min([padded, *wider], key=lambda whole: (cycles(whole), whole))


def product_cycles(rows: int, columns: int, tile: Tile, types: LayerTypes, board: Board) -> float:
    """The estimated cost of one term of all sums of a product."""
    reading = bytes_of(types.weights) * tile.channels / MEMORY_BYTES + STRETCH_CYCLES
    return max(product_arithmetic(rows, columns, tile, types, board), columns // tile.channels * reading)


def product_arithmetic(rows: int, columns: int, tile: Tile, types: LayerTypes, board: Board) -> float:
    """The part of `product_cycles` that does not depend on the memory; weights in half precision are widened."""
    vectors = tile.channels // vector_length(columns, lanes_for(board, types.accumulator))
    cycles = step_cycles(tile.columns, vectors, board)
    if types.weights == "float16" != types.accumulator:
        cycles += vectors * (_WIDENED_IN_ORDER if board.in_order else _WIDENED)
    return columns // tile.channels * -(-rows // tile.columns) * cycles


def tasks_for(cores: int) -> int:
    """The least number of tasks of a function with which the last ones end at about the same time."""
    return 3 * cores


def rows_per_task(rows: int, other_tasks: int, cores: int) -> int:
    """The rows of a task: the largest divisor that leaves `tasks_for(cores)` tasks, with `other_tasks` per row."""
    wanted = max(1, other_tasks * rows // tasks_for(cores))
    return max(count for count in divisors(rows) if count <= wanted)


def _steps_at_once(kernel_width: int, inputs: int, board: Board) -> int:
    """The steps of a sum whose weights are in registers at the same time: of short loops, which LLVM unrolls.

    If multiply-adds do not read memory, it loads all weights first (limits found with `benchmarks/arm_loops.py`).
    """
    if board.is_x86:
        return 1
    return next((steps for steps in (kernel_width * inputs, inputs) if steps <= UNROLLED_STEPS), 1)


def written_out(steps: int, tile: Tile, types: LayerTypes, board: Board) -> int:
    """How many steps of a sum's innermost loop are written out, on cores for which that was measured to be faster.

    Inputs of a pixel are then loaded several at a time; with eight steps LLVM keeps those of all pixels in registers.
    """
    if board.core_model is None or steps < _LONG_SUM:
        return 1
    pixels, vectors = tile.rows * tile.columns, vectors_of(tile.channels, types, board)
    most = WRITTEN_OUT[0] if pixels * vectors + pixels + vectors < board.vector.registers else _FEW_STEPS
    return next(count for count in WRITTEN_OUT if count <= most and steps % count == 0)


def vectors_of(channels: int, types: LayerTypes, board: Board) -> int:
    """Vectors of sums of so many channels."""
    return channels // vector_length(channels, lanes_for(board, types.accumulator))


def may_be_sliced(types: LayerTypes) -> bool:
    """Whether sums may be stored and continued: in half precision they consist of short ones already."""
    return types.accumulator != "float16"


def choose_order(shape: ConvolutionShape, tile: Tile, board: Board) -> WeightOrder:
    """The order in which weights come from memory once, and from the L2 cache after that.

    Small feature maps are split over channels, so that each weight is read once, and by one thread; and so are others
    whose weights do not fit the L2 cache, if reading the feature map for each slice costs less than reading the weights
    for each tile of pixels. A slice and the next one, which is prefetched on x86, must fit the L2 cache.
    """
    whole_height, whole_width = tile.whole(shape.height, shape.width)
    tiles_down, tiles_deep = whole_height // tile.rows, shape.channels // tile.channels
    passes = tiles_down * (whole_width // tile.columns)
    second_cache = board.cache.l2_kib * 1024
    weights = bytes_of(shape.types.weights) * shape.terms * tile.channels
    slices = shape.kernel[0] if weights > second_cache // 4 and may_be_sliced(shape.types) else 1
    data = bytes_of(shape.types.data) * shape.height * shape.width * shape.inputs
    small = shape.height < SMALL_FEATURE_MAP
    heavy = weights * tiles_deep > second_cache and data * slices < weights * passes
    if not (small or heavy) or tiles_deep < min(tiles_down, 2 * board.cores):
        return WeightOrder()
    worthwhile = board.is_x86 and passes > 1 and 2 * weights // slices <= second_cache
    # Each pass fetches its part of the next slice, except for a remainder.
    interval = max(count for count in divisors(shape.inputs) if count < 2 * passes) if worthwhile else 0
    return WeightOrder(True, slices, interval)


def direct_cycles(shape: ConvolutionShape, board: Board, tile: Tile | None = None) -> float:
    """The estimated cost of a direct convolution, with the best tile by default; memory is read once for weights."""
    tile = tile or choose_tile(shape, board)
    pixels = shape.height * shape.width / tile.useful(shape.height, shape.width)
    tiles = pixels / (tile.rows * tile.columns) * shape.channels / tile.channels
    weights = bytes_of(shape.types.weights) * shape.terms * shape.channels
    return with_reading(tiles * tile_cycles(tile, shape, board), weights, board)


def vector_to_prefetch(types: LayerTypes, board: Board) -> int:
    """The weights of a prefetch, as many as a vector of sums has; 0 for boards without prefetching.

    On x86 layers whose weights come from far are a tenth to a quarter faster; next to a device, all are small.
    """
    return lanes_for(board, types.accumulator) if board.is_x86 and board.device is None else 0

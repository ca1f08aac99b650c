"""How CPUs compute convolutions that filter each channel by itself, with sums of any type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from edgedeploy.compile.backends.cpu.configuration import Depthwise
from edgedeploy.compile.backends.cpu.strategy import multiply_add
from edgedeploy.compile.backends.cpu.tiles import RESULT_CYCLES, rows_per_task, tasks_for, tile_registers
from edgedeploy.compile.backends.cpu.traffic import LINE, beginnings, beyond, first_cache, near, waiting
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import bytes_of, is_floating, lanes_for
from edgedeploy.compile.layers import DepthwiseConvolution
from edgedeploy.compile.strategy import PackedForm, Strategy
from edgedeploy.compile.tiles import Tile, divisors, imbalance, is_worth_threads, row_tiles, vector_length
from edgedeploy.target.board import Board

_MOST_VECTORS = 4  # most vectors of channels of a depthwise convolution's tile

# What depthwise convolutions of bytes cost on x86, in multiply-adds of floats that read memory, with vectors of up to
# 256 bits and of 512, for which there is one port less: a vector of products, with bytes loaded, widened, multiplied
# and added; and a vector of floats that is copied from bytes and stored beyond the first cache. Alone, functions with
# 512 bits copy in 7; in networks, what copies evict from the caches costs as much as they save.
_BYTE_PRODUCT = (2.0, 2.5)
_WIDENED_COPY = (4.5, 12.0)


class DepthwiseStrategy(Strategy[DepthwiseConvolution]):
    """A convolution in NHWC, HWIO, of as many groups as channels."""

    @override
    def default(self) -> Configuration:
        (height, width), channels, board, tile = self.layer.size, self.layer.channels, self.board, self._choose_tile()
        if not board.is_x86 and not self._widens:
            return choose_block(self.layer, tile, board)
        deep = channels // tile.channels
        if not self._widens:
            deep = next(count for count in divisors(deep) if count * height >= tasks_for(board.cores) or count == deep)
        rows = rows_per_task(height, deep, board.cores)
        if self._widens:
            # Half of the second cache holds a copy.
            pixels = board.cache.l2_kib * 1024 // 2 // (tile.channels * bytes_of("float32"))
            read = {each: math.prod(self.layer.window.input_size(each, width)) for each in divisors(rows)}
            rows = max(each for each, count in read.items() if count <= pixels or each == 1)
        return Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=self._widens, floats=self._widens)

    @override
    def candidates(self) -> Iterator[Configuration]:
        yield from dict.fromkeys([self.default(), *self._possible()])

    def _possible(self) -> Iterator[Depthwise]:
        (height, width), channels, board = self.layer.size, self.layer.channels, self.board
        length = vector_length(channels, lanes_for(board, self.layer.types.accumulator))
        most = tile_registers(board)
        tiles = row_tiles(channels, length, range(1, _MOST_VECTORS + 1), lambda vectors: min(width, most // vectors))
        for tile in (each for each in tiles if self._worth(each) >= 0.6):
            for deep, rows in itertools.product(divisors(channels // tile.channels), divisors(height)):
                tasks = deep * (height // rows)
                if tasks < board.cores and tasks < height * channels // tile.channels:
                    continue
                for copied in (True,) if self._widens else (False, True):
                    yield Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=copied, floats=self._widens)

    @override
    def estimate(self, configuration: Configuration) -> float:
        assert isinstance(configuration, Depthwise)
        (height, width), rows, tile = self.layer.size, configuration.rows_per_task, configuration.tile
        window, types = self.layer.window, self.layer.types
        length = vector_length(tile.channels, lanes_for(self.board, types.accumulator))
        tasks = configuration.tasks_deep * configuration.tasks_across * (height // rows)
        slots = math.prod(window.kernel) * self._product(configuration) * (1 + 0.5 / tile.columns)
        slots /= tile.useful(height, width)
        if self._widens:
            copy = _WIDENED_COPY[self._is_wide(configuration)]
            slots += copy * math.prod(window.input_size(rows, width)) / (rows * width)
        cycles = slots / self.board.fma.per_cycle + (1 if is_floating(types.result) else RESULT_CYCLES)
        return height * width * self.layer.channels / length * cycles * imbalance(tasks, self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return (
            isinstance(configuration, Depthwise)
            and configuration.floats == self._widens
            and configuration.tile.rows == 1
            and configuration.tile.columns <= min(self.layer.size[1], tile_registers(self.board))
            and self.layer.channels % (configuration.tile.channels * configuration.tasks_deep) == 0
            and configuration.tile.channels <= _MOST_VECTORS * lanes_for(self.board, self.layer.types.accumulator)
            and self.layer.size[0] % configuration.rows_per_task == 0
            and -(-self.layer.size[1] // configuration.tile.columns) % configuration.tasks_across == 0
        )

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        lanes = lanes_for(self.board, self.layer.types.accumulator)
        filled = vector_length(configuration.register_tile.channels, lanes) / lanes
        return multiply_add(self.layer.types, self.board, filled / self._product(configuration))

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        return self._in_tiles(configuration, self.layer.types.accumulator if self._widens else None)

    def _in_tiles(self, configuration: Configuration, copied_as: str | None) -> PackedForm:
        return self.unpacked(self.layer.in_tiles(configuration.register_tile, copied_as=copied_as))

    def _product(self, configuration: Configuration) -> float:
        """The cost of a vector of products, in multiply-adds of floats."""
        integers = self.board.is_x86 and not is_floating(self.layer.types.accumulator)
        return _BYTE_PRODUCT[self._is_wide(configuration)] if integers else 1.0

    def _is_wide(self, configuration: Configuration) -> bool:
        return vector_length(configuration.register_tile.channels, lanes_for(self.board, "float32")) * 32 > 256

    def _choose_tile(self) -> Tile:
        """One row, up to two vectors of channels.

        On x86 every multiply-add has a load of its own, so registers only hide latency: half of them are enough.
        Elsewhere LLVM keeps weights in registers with the sums: those of up to nine kernel elements, which it unrolls,
        and a row of inputs; or those of a row of the kernel, and a few inputs (limits found with
        `benchmarks/arm_loops.py`).
        """
        kernel, stride, channels = self.layer.window.kernel, self.layer.window.strides[1], self.layer.channels
        board, registers = self.board, self.board.vector.registers
        length = vector_length(channels, lanes_for(board, self.layer.types.accumulator))
        vectors = 2 if channels % (2 * length) == 0 else 1
        if board.is_x86:
            # Bytes that are copied as floats are read without conditions, which would take registers.
            copied = bytes_of(self.layer.types.data) < bytes_of(self.layer.types.weights)
            most = max(1, (registers - (0 if copied else 2)) // 2 // vectors)
        elif math.prod(kernel) <= 9:
            vectors = 1
            most = max(2, (registers - math.prod(kernel) - kernel[1] + stride) // (1 + stride))
        else:
            most = max(2, (tile_registers(board) - 3 * stride) // vectors - kernel[1])
        tiles = [Tile(1, columns, vectors * length) for columns in range(1, min(most, self.layer.size[1]) + 1)]
        return max(tiles, key=self._worth)

    def _worth(self, tile: Tile) -> float:
        return tile.useful(*self.layer.size) * tile.columns / (tile.columns + 0.5)

    @property
    def _widens(self) -> bool:
        """Whether integers are summed up as floats."""
        return is_floating(self.layer.types.accumulator) and not is_floating(self.layer.types.data)


def choose_block(layer: DepthwiseConvolution, tile: Tile, board: Board) -> Depthwise:
    """The fastest blocks whose copies stay in the first cache; if none do, the ones with the smallest copies."""
    room, (height, width) = first_cache(board), layer.size
    blocks = [
        Block(layer, Depthwise(tile=tile, rows_per_task=rows, tasks_across=across, tasks_deep=deep, copied=True))
        for rows in divisors(height)
        for across in divisors(-(-width // tile.columns))
        for deep in divisors(layer.channels // tile.channels)
    ]
    return min(blocks, key=lambda block: (max(room, block.copied_bytes), block.cycles(board), block.tasks)).form


@dataclass(frozen=True)
class Block:
    """The rows, columns and channels that a task copies, and computes from the copy.

    A core fetches lines of memory, which hold channels of a pixel: tasks that read some of them fetch all. Rows and
    columns at the edges of blocks are read by two; and prefetchers do not foresee what begins elsewhere.
    """

    layer: DepthwiseConvolution
    form: Depthwise

    @property
    def columns(self) -> int:
        """Columns of the result, in whole tiles."""
        return -(-self.layer.size[1] // self.form.tile.columns) // self.form.tasks_across * self.form.tile.columns

    @property
    def channels(self) -> int:
        """Channels of the data and of the result."""
        return self.layer.channels // self.form.tasks_deep

    @property
    def read(self) -> tuple[int, int]:
        """Padded rows and columns of the data."""
        return self.layer.window.input_size(self.form.rows_per_task, self.columns)

    @property
    def copied_bytes(self) -> int:
        """Bytes of the copy, which has the type of the data."""
        return math.prod(self.read) * self.channels * bytes_of(self.layer.types.data)

    @property
    def tasks(self) -> int:
        """The number of blocks."""
        bands = self.layer.batch * self.layer.size[0] // self.form.rows_per_task
        return bands * self.form.tasks_across * self.form.tasks_deep

    def cycles(self, board: Board) -> float:
        """An estimate, for all tasks, of the cost of copies and of waiting for lines."""
        layer, types = self.layer, self.layer.types
        (rows, columns), pixel = self.read, layer.channels * bytes_of(types.data)
        data = math.prod(layer.data) * bytes_of(types.data)
        result = layer.batch * math.prod(layer.size) * layer.channels * bytes_of(types.result)
        far = beyond(data + result, board)
        reading = self.tasks * rows * columns * self._lines(types.data)
        writing = self.tasks * self.form.rows_per_task * self.columns * self._lines(types.result)
        # Prefetchers expect the first lines of pixels the same distance apart.
        steady = self.form.tasks_deep == 1 or pixel % LINE == 0
        unforeseen = self.tasks * rows * (beginnings(columns, pixel) if steady else columns)
        cycles = (
            # a vector is loaded and stored in a cycle
            self.tasks * rows * columns * self.channels / lanes_for(board, types.data)
            + waiting(reading, min(reading, data / LINE), unforeseen, far, board)
            + result / LINE * far.store
            + (writing - result / LINE) * near(board).store
        )
        threads = is_worth_threads(layer.operations, board.fma.per_cycle * lanes_for(board, types.accumulator))
        return cycles * (imbalance(self.tasks, board.cores) if threads else 1)

    def _lines(self, dtype: str) -> float:
        """Lines that hold its channels of a pixel, on average over all places where they may begin."""
        run, pixel = self.channels * bytes_of(dtype), self.layer.channels * bytes_of(dtype)
        return run / LINE if run == pixel else 1 + (run - math.gcd(run, pixel, LINE)) / LINE

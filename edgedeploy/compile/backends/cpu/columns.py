"""Depthwise convolutions of integers on CPUs with dot products of four bytes, in TVM's tensor expressions.

The values of up to four rows of a column, one below the other, are put into a word of 32 bits once; each of the results
that read the column then takes one instruction for it: with kernels of 3x3, three for nine elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import te, tirx
from typing_extensions import override

from edgedeploy.compile.backends.cpu.configuration import Columns
from edgedeploy.compile.backends.cpu.depthwise import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.step_code import INTERLEAVED
from edgedeploy.compile.backends.cpu.steps import Step, in_bytes, part_of_word, word_of, word_steps
from edgedeploy.compile.backends.cpu.tiles import RESULT_CYCLES, rows_per_task, tasks_for
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp, DepthwiseConvolution
from edgedeploy.compile.operators.direct import crop, pad, padded_value
from edgedeploy.compile.strategy import PackedForm
from edgedeploy.compile.tiles import Tile, divisors, imbalance
from edgedeploy.target.board import Board

COPY, WORDS, SUMS = "copied_columns", "columns_as_words", "column_sums"  # the blocks that the template looks for
ROWS = 4  # bytes of a word: rows of a column


def _is_interleaved(step: Step) -> bool:
    """Whether instructions that interleave bytes build the words of a step; x86 shifts widened ones."""
    return step.instruction == "sdot"


def _word_channels(step: Step) -> int:
    return INTERLEAVED if _is_interleaved(step) else step.channels


@dataclass(frozen=True)
class ColumnForm:
    """A depthwise convolution without dilation as sums of columns, in tiles of a row, and of vectors of a step."""

    layer: DepthwiseConvolution
    tile: Tile
    step: Step

    @property
    def parts(self) -> int:
        """Words of a column."""
        return -(-self.layer.window.kernel[0] // ROWS)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """Kernel width x words of a column x bytes of a weight x channels x rows of a word."""
        return self.layer.window.kernel[1], self.parts, self.addends, self.layer.channels, ROWS

    @property
    def addends(self) -> int:
        """The number of bytes whose sum is a weight."""
        return self.step.addends(self.layer.types.weights)

    def packed(self, weights: np.ndarray) -> np.ndarray:
        """Weights, kernel height x kernel width x 1 x channels, in the order of their use; zero below the kernel."""
        height, width, _, channels = weights.shape
        whole = np.pad(weights[:, :, 0], ((0, self.parts * ROWS - height), (0, 0), (0, 0)))
        in_parts = in_bytes(whole, self.addends).reshape(self.addends, self.parts, ROWS, width, channels)
        return np.ascontiguousarray(in_parts.transpose(3, 1, 0, 4, 2).astype(self.step.weights))

    def compute(self, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
        """The layer's sums, of its data and its packed weights."""
        window, batch, channels = self.layer.window, self.layer.batch, self.layer.channels
        read, whole = self._reader(data), self._whole
        height, (down, across) = window.kernel[0], window.strides

        def word(n: Any, y: Any, part: Any, x: Any, c: Any) -> Any:
            """The rows of a part of the kernel; weights are zero for those below it."""
            below, values = (self.parts - 1) * ROWS, []
            for row in range(ROWS):
                line, inside = part * ROWS + row, below + row < height
                if _is_interleaved(self.step) or inside:  # an intrinsic reads all rows from a copy
                    values.append(read(n, y * down + line, x, c))
                elif self.parts > 1:
                    value = read(n, y * down + tirx.min(line, height - 1), x, c)
                    values.append(tirx.if_then_else(line < height, value, tirx.const(0, self.step.data)))
            return word_of(values, self.step.data)

        words = te.compute((batch, whole[0], self.parts, window.input_size(*whole)[1], channels), word, name=WORDS)
        kx, part = te.reduce_axis((0, window.kernel[1]), "rx"), te.reduce_axis((0, self.parts), "rp")
        addend, row = te.reduce_axis((0, self.addends), "ra"), te.reduce_axis((0, ROWS), "rr")

        def sum_of_products(n: Any, y: Any, x: Any, c: Any) -> Any:
            value = part_of_word(words[n, y, part, x * across + kx, c], row, self.step.data).astype("int32")
            return te.sum(value * weights[kx, part, addend, c, row].astype("int32"), axis=[kx, part, addend, row])

        sums = te.compute((batch, *whole, channels), sum_of_products, name=SUMS)
        return crop(sums, self.layer.size, self.layer.types.result)

    @cached_property
    def _whole(self) -> tuple[int, int]:
        return self.tile.whole(*self.layer.size)

    def _reader(self, data: te.Tensor) -> Callable[..., Any]:
        """A function that reads the data as if they were padded, by conditions: few branches are left of them."""
        _, height, width, _ = self.layer.data
        top, left, _, _ = self.layer.window.padding
        rows, columns = self.layer.window.input_size(*self._whole)
        if _is_interleaved(self.step):
            rows += self.parts * ROWS - self.layer.window.kernel[0]
            size = max(rows, top + height), max(columns, left + width)
            copy = pad(data, self.layer.window, *size, self.step.data, name=COPY)
            return lambda *place: copy[place]
        if (top, left) == (0, 0) and rows <= height and columns <= width:
            return lambda *place: data[place]
        return padded_value(data, self.layer.window, self.step.data)


_VECTORS = (1, 2)  # vectors of channels that a tile may have
_OTHERS = 2  # registers of a tile for weights, besides those of words and sums


class ColumnStrategy(DepthwiseStrategy):
    """Depthwise convolutions whose products a CPU adds up by words of bytes."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> ColumnStrategy | None:
        """The strategy, if it applies to the layer."""
        if not isinstance(layer, DepthwiseConvolution) or not layer.constant or layer.window.dilation != (1, 1):
            return None
        strategy = cls(layer, board)
        step = strategy._step
        if step and _is_interleaved(step) and layer.channels == _word_channels(step):
            return None  # TVM finds no place for the intrinsic if it takes all channels
        return strategy if any(True for _ in strategy._by_columns()) else None

    @override
    def default(self) -> Configuration:
        return min(self._by_columns(), key=self.estimate)

    @override
    def candidates(self) -> Iterator[Configuration]:
        yield from dict.fromkeys([self.default(), *self._by_columns(), *super().candidates()])

    @override
    def estimate(self, configuration: Configuration) -> float:
        if not isinstance(configuration, Columns):
            return super().estimate(configuration)
        (height, width), window, tile = self.layer.size, self.layer.window, configuration.tile
        rows, form = window.kernel[0], self._form(configuration)
        # Each row is loaded, all but the first are shifted, and two are put to the others by one instruction.
        word = rows + (rows - form.parts) * 1.5
        if _is_interleaved(form.step):
            word = form.parts * ROWS / 2  # two of four instructions are for each half of the channels
        words = window.input_size(1, tile.columns)[1] * word
        products = tile.columns * window.kernel[1] * form.parts * form.addends
        tiles = height * -(-width // tile.columns) * self.layer.channels / configuration.vector
        tasks = configuration.tasks_deep * (height // configuration.rows_per_task)
        cycles = (words + products) / self.board.fma.per_cycle + tile.columns * RESULT_CYCLES
        return tiles * cycles * imbalance(tasks, self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not isinstance(configuration, Columns):
            return super().fits(configuration)
        tile = configuration.tile
        return (
            self._step is not None
            and configuration.vector == self._step.channels
            and tile.rows == 1
            and tile.channels % _word_channels(self._step) == 0
            and self._is_held(tile.columns, tile.channels // configuration.vector)
            and self.layer.channels % (tile.channels * configuration.tasks_deep) == 0
            and self.layer.size[0] % configuration.rows_per_task == 0
        )

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        if not isinstance(configuration, Columns):
            return super().form(configuration)
        form = self._form(configuration)
        return PackedForm(form.compute, form.packed_shape, form.step.weights, form.packed)

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        if not isinstance(configuration, Columns):
            return super().step(configuration)
        form = self._form(configuration)
        products = form.step.channels * self.layer.window.kernel[0] / form.parts / form.addends
        return form.step.instruction, products * self.board.fma.per_cycle

    @cached_property
    def _step(self) -> Step | None:
        """The widest step whose channels divide the layer's."""
        possible = word_steps(self.layer.types, self.board)
        return next((each for each in possible if self.layer.channels % _word_channels(each) == 0), None)

    def _form(self, configuration: Columns) -> ColumnForm:
        assert self._step is not None
        return ColumnForm(self.layer, configuration.tile, self._step)

    def _is_held(self, columns: int, vectors: int) -> bool:
        """Whether registers hold the words and sums of a tile of so many vectors of channels."""
        window = self.layer.window
        words = window.input_size(1, columns)[1] * -(-window.kernel[0] // ROWS)
        return columns <= self.layer.size[1] and (words + columns) * vectors + _OTHERS <= self.board.vector.registers

    def _by_columns(self) -> Iterator[Columns]:
        height, width = self.layer.size
        if self._step is None:
            return
        vector, together = self._step.channels, _word_channels(self._step)
        for channels in (count * together for count in _VECTORS if self.layer.channels % (count * together) == 0):
            parts = divisors(self.layer.channels // channels)
            deep = next(each for each in parts if each * height >= tasks_for(self.board.cores) or each == parts[-1])
            if _is_interleaved(self._step):  # a task's copy stays in the first cache
                deep = parts[-1]
            rows = rows_per_task(height, deep, self.board.cores)
            for columns in range(1, width + 1):
                if not self._is_held(columns, channels // vector):
                    break
                yield Columns(tile=Tile(1, columns, channels), vector=vector, rows_per_task=rows, tasks_deep=deep)

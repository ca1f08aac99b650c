"""How CPUs with dot products of bytes compute depthwise convolutions of integers: by columns, in which tiles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from typing_extensions import override

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.columns import ROWS, ColumnForm, is_interleaved, word_channels
from edgedeploy.compile.backends.cpu.configuration import Columns
from edgedeploy.compile.backends.cpu.depthwise_strategy import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.steps import Step, word_steps
from edgedeploy.compile.backends.cpu.tiles import RESULT_CYCLES, rows_per_task, tasks_for
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp, DepthwiseConvolution, Form
from edgedeploy.compile.tiles import Tile, divisors, imbalance

# Vectors of channels that a tile may have.
_VECTORS = (1, 2)

# Registers of a tile beside those of words and sums: weights.
_OTHERS = 2


class ColumnStrategy(DepthwiseStrategy):
    """Depthwise convolutions whose products a CPU adds up by words of bytes."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> ColumnStrategy | None:
        """The strategy, if it is one for such a layer."""
        if not isinstance(layer, DepthwiseConvolution) or not layer.constant or layer.window.dilation != (1, 1):
            return None
        strategy = cls(layer, board)
        step = strategy._step
        if step and is_interleaved(step) and layer.channels == word_channels(step):
            return None  # TVM finds no place for the intrinsic that interleaves where its channels are all there are
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
        if form.interleaved:
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
            configuration.vector == (self._step.channels if self._step else 0)
            and tile.rows == 1
            and tile.channels % self._channels == 0
            and self._is_held(tile.columns, tile.channels // configuration.vector)
            and self.layer.channels % (tile.channels * configuration.tasks_deep) == 0
            and self.layer.size[0] % configuration.rows_per_task == 0
        )

    @override
    def lower(self, configuration: Configuration) -> Form:
        return self._form(configuration).compute if isinstance(configuration, Columns) else super().lower(configuration)

    @override
    def packed(self, configuration: Configuration, weights: np.ndarray) -> np.ndarray:
        if not isinstance(configuration, Columns):
            return super().packed(configuration, weights)
        return self._form(configuration).packed(weights)

    @override
    def packed_shape(self, configuration: Configuration) -> tuple[int, ...]:
        if not isinstance(configuration, Columns):
            return super().packed_shape(configuration)
        return self._form(configuration).packed_shape

    @override
    def packed_type(self, configuration: Configuration) -> str:
        if not isinstance(configuration, Columns):
            return super().packed_type(configuration)
        return self._form(configuration).step.weights

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        if not isinstance(configuration, Columns):
            return super().step(configuration)
        form = self._form(configuration)
        products = form.step.channels * self.layer.window.kernel[0] / form.parts / form.addends
        return form.step.instruction, products * self.board.fma.per_cycle

    @cached_property
    def _step(self) -> Step | None:
        """The widest whose channels divide the layer's."""
        possible = word_steps(self.layer.types, self.board)
        return next((each for each in possible if self.layer.channels % word_channels(each) == 0), None)

    @property
    def _channels(self) -> int:
        """Of which tiles have multiples."""
        return word_channels(self._step) if self._step else 1

    def _form(self, configuration: Columns) -> ColumnForm:
        assert self._step is not None
        return ColumnForm(self.layer, configuration.tile, self._step)

    def _is_held(self, columns: int, vectors: int) -> bool:
        """Whether registers hold the words and sums of a tile of so many columns and vectors of channels."""
        window = self.layer.window
        words = window.input_size(1, columns)[1] * -(-window.kernel[0] // ROWS)
        return columns <= self.layer.size[1] and (words + columns) * vectors + _OTHERS <= self.board.vector.registers

    def _by_columns(self) -> Iterator[Columns]:
        """All tiles, each in the tasks that suit it."""
        height, width = self.layer.size
        if self._step is None:
            return
        for count in _VECTORS:
            channels = count * self._channels
            vectors = channels // self._step.channels
            if self.layer.channels % channels:
                continue
            parts = divisors(self.layer.channels // channels)
            deep = next(each for each in parts if each * height >= tasks_for(self.board.cores) or each == parts[-1])
            if is_interleaved(self._step):  # what a task copies stays in the first cache
                deep = parts[-1]
            rows = rows_per_task(height, deep, self.board.cores)
            for columns in range(1, width + 1):
                if not self._is_held(columns, vectors):
                    break
                tile = Tile(1, columns, channels)
                yield Columns(tile=tile, vector=self._step.channels, rows_per_task=rows, tasks_deep=deep)

"""How CPUs without dot products of bytes compute depthwise convolutions of integers: two products at a time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from typing_extensions import TypeIs, override

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Depthwise
from edgedeploy.compile.backends.cpu.depthwise_strategy import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.pairs import CHANNELS, PairForm
from edgedeploy.compile.backends.cpu.steps import Step, steps_for
from edgedeploy.compile.backends.cpu.tiles import rows_per_task
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp, DepthwiseConvolution, Form
from edgedeploy.compile.tiles import Tile

# Pixels of a tile: with more, LLVM has too few registers for their weights; a single one waits for its own sum. On
# Cortex-A72, 3.9 products in a cycle with two, 3.3 with one, 3.5 with six (`benchmarks/arm_loops.py --tiles`).
_PIXELS = 2

# Of the instructions that products take one by one, the part that pairs of them take.
_INSTRUCTIONS = 0.5


class PairStrategy(DepthwiseStrategy):
    """Depthwise convolutions of which a CPU adds up the products of two kernel elements in 16 bits."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> PairStrategy | None:
        """The strategy, if it is one for such a layer."""
        if not isinstance(layer, DepthwiseConvolution) or not layer.constant or layer.channels % CHANNELS:
            return None
        strategy = cls(layer, board)
        return strategy if strategy._step else None

    @override
    def default(self) -> Configuration:
        return self._in_pairs(min(_PIXELS, self.layer.size[1]))

    @override
    def candidates(self) -> Iterator[Configuration]:
        most = min(self.layer.size[1], 2 * CHANNELS)
        pairs = (self._in_pairs(columns) for columns in range(1, most + 1))
        yield from dict.fromkeys([self.default(), *pairs, *super().candidates()])

    @override
    def fits(self, configuration: Configuration) -> bool:
        whole = configuration.tile.channels % CHANNELS == 0 if self._are_pairs(configuration) else True
        return whole and super().fits(configuration)

    @override
    def lower(self, configuration: Configuration) -> Form:
        if not self._are_pairs(configuration) or self._step is None:
            return super().lower(configuration)
        return PairForm(self.layer, configuration.tile, self._step).compute

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        instruction, rate = super().step(configuration)
        return (self._step.instruction if self._are_pairs(configuration) and self._step else instruction), rate

    @override
    def _product(self, configuration: Configuration) -> float:
        return super()._product(configuration) * (_INSTRUCTIONS if self._are_pairs(configuration) else 1)

    @cached_property
    def _step(self) -> Step | None:
        """The one that adds two products of bytes in 16 bits."""
        return next((each for each in steps_for(self.layer.types, self.board) if each.lanes > 1), None)

    @staticmethod
    def _are_pairs(configuration: Configuration) -> TypeIs[Depthwise]:
        return isinstance(configuration, Depthwise) and configuration.vector == CHANNELS

    def _in_pairs(self, columns: int) -> Depthwise:
        """Tiles of so many pixels, whose task copies what it reads of their channels."""
        deep = self.layer.channels // CHANNELS
        rows = rows_per_task(self.layer.size[0], deep, self.board.cores)
        tile = Tile(1, columns, CHANNELS)
        return Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=True, vector=CHANNELS)

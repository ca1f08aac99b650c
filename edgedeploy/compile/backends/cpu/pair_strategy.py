"""How ARM CPUs without dot products compute depthwise convolutions of integers: by vectors of eight channels.

Of bytes, the products of two kernel elements are added in 16 bits first; weights of 16 bits multiply data that are
copied in 16 bits.
"""

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
# Cortex-A72, 3.9 products in a cycle with two, 3.3 with one, 3.5 with six (`benchmarks/arm_loops.py --tiles`). In rows
# of seven, where the last of two would be cropped, it is 3.2 with two and 3.8 with one; of 5x5 elements, 2.9 and 4.2.
_PIXELS = 2

# The least part of the pixels of whole tiles that a row has, else it has tiles of one.
_USEFUL = 0.95

# What multiplies bytes, or 16 bits: the part of the instructions that it takes which products take one by one.
_INSTRUCTIONS = {"smull": 0.5, "vmull.s8": 0.5, "smlal": 1.0, "vmlal.s16": 1.0}


class PairStrategy(DepthwiseStrategy):
    """Depthwise convolutions whose channels a CPU multiplies eight at a time."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> PairStrategy | None:
        """The strategy, if it is one for such a layer."""
        if not isinstance(layer, DepthwiseConvolution) or not layer.constant or layer.channels % CHANNELS:
            return None
        strategy = cls(layer, board)
        return strategy if strategy._step else None

    @override
    def default(self) -> Configuration:
        useful = Tile(1, _PIXELS, CHANNELS).useful(*self.layer.size)
        return self._by_eight(_PIXELS if useful >= _USEFUL else 1)

    @override
    def candidates(self) -> Iterator[Configuration]:
        most = min(self.layer.size[1], 2 * CHANNELS)
        tiles = (self._by_eight(columns) for columns in range(1, most + 1))
        yield from dict.fromkeys([self.default(), *tiles, *super().candidates()])

    @override
    def fits(self, configuration: Configuration) -> bool:
        whole = configuration.tile.channels % CHANNELS == 0 if self._are_eight(configuration) else True
        return whole and super().fits(configuration)

    @override
    def lower(self, configuration: Configuration) -> Form:
        if not self._are_eight(configuration) or self._step is None:
            return super().lower(configuration)
        if not self._step.adds_in_16_bits:
            return self.layer.in_tiles(configuration.register_tile, copied_as=self._step.data)
        return PairForm(self.layer, configuration.tile, self._step).compute

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        instruction, rate = super().step(configuration)
        return (self._step.instruction if self._are_eight(configuration) and self._step else instruction), rate

    @override
    def _product(self, configuration: Configuration) -> float:
        part = _INSTRUCTIONS[self._step.instruction] if self._step and self._are_eight(configuration) else 1
        return super()._product(configuration) * part

    @cached_property
    def _step(self) -> Step | None:
        """The one that adds two products of bytes in 16 bits, or that multiplies 16 bits."""
        possible = (each for each in steps_for(self.layer.types, self.board) if each.instruction in _INSTRUCTIONS)
        return next(possible, None)

    @staticmethod
    def _are_eight(configuration: Configuration) -> TypeIs[Depthwise]:
        return isinstance(configuration, Depthwise) and configuration.vector == CHANNELS

    def _by_eight(self, columns: int) -> Depthwise:
        """Tiles of so many pixels, whose task copies what it reads of their channels."""
        deep = self.layer.channels // CHANNELS
        rows = rows_per_task(self.layer.size[0], deep, self.board.cores)
        tile = Tile(1, columns, CHANNELS)
        return Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=True, vector=CHANNELS)

"""Depthwise convolutions of integers on ARM CPUs without dot products, by vectors of eight channels.

The products of bytes of two kernel elements are added in 16 bits, and then to sums of 32: on ARM four instructions for
sixteen products (`smull`, `smlal`, `saddw`, `saddw2`). That is exact unless all four bytes are -128, which weights
never are (`CpuBackend.weight_type`). Weights of 16 bits multiply data that are copied in 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

from tvm import te, tirx
from typing_extensions import override

from edgedeploy.compile.backends.cpu.configuration import Depthwise
from edgedeploy.compile.backends.cpu.depthwise import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.steps import Step, steps_for
from edgedeploy.compile.backends.cpu.tiles import rows_per_task
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.layers import AnyAnchorOp, DepthwiseConvolution
from edgedeploy.compile.operators.direct import DEPTHWISE, crop, whole_feature_map
from edgedeploy.compile.strategy import PackedForm
from edgedeploy.compile.tiles import Tile
from edgedeploy.target.board import Board

CHANNELS = 8  # channels of a vector of products: 16 bits each
_WRITTEN_OUT = 9  # kernels of up to so many elements are written out; of larger ones a row is

# LLVM's names of the instructions that multiply bytes. Of casts it would widen the weights before the loops, and have
# too few registers for them on 32-bit ARM.
_PRODUCTS = {"smull": "llvm.aarch64.neon.smull", "vmull.s8": "llvm.arm.neon.vmulls"}

# Pixels of a tile: with more, LLVM has too few registers for their weights; a single one waits for its own sum. On
# Cortex-A72, 3.9 products in a cycle with two, 3.3 with one, 3.5 with six (`benchmarks/arm_loops.py --tiles`). In rows
# of seven, where the last of two would be cropped, it is 3.2 with two and 3.8 with one; of 5x5 elements, 2.9 and 4.2.
_PIXELS = 2

_USEFUL = 0.95  # tiles have one pixel if less than this part of the pixels of larger ones would be used

# The instructions that multiply bytes, or 16 bits, and their time in instructions that multiply one by one.
_INSTRUCTIONS = {"smull": 0.5, "vmull.s8": 0.5, "smlal": 1.0, "vmlal.s16": 1.0}


class PairStrategy(DepthwiseStrategy):
    """Depthwise convolutions whose channels a CPU multiplies eight at a time."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> PairStrategy | None:
        """The strategy, if it applies to the layer."""
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
        tiles = map(self._by_eight, range(1, min(self.layer.size[1], 2 * CHANNELS) + 1))
        yield from dict.fromkeys([self.default(), *tiles, *super().candidates()])

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not super().fits(configuration):
            return False
        return self._step_in(configuration) is None or configuration.register_tile.channels % CHANNELS == 0

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        form, step = super().form(configuration), self._step_in(configuration)
        if step is None:
            return form
        if not step.adds_in_16_bits:
            return self._in_tiles(configuration, step.data)
        sums = partial(_sums_of_pairs, self.layer, configuration.register_tile, _PRODUCTS[step.instruction])
        return form._replace(compute=sums)

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        (instruction, rate), step = super().step(configuration), self._step_in(configuration)
        return step.instruction if step else instruction, rate

    @override
    def _product(self, configuration: Configuration) -> float:
        step = self._step_in(configuration)
        return super()._product(configuration) * (_INSTRUCTIONS[step.instruction] if step else 1)

    @cached_property
    def _step(self) -> Step | None:
        """The step that adds two products of bytes in 16 bits, or that multiplies 16 bits."""
        possible = (each for each in steps_for(self.layer.types, self.board) if each.instruction in _INSTRUCTIONS)
        return next(possible, None)

    def _step_in(self, configuration: Configuration) -> Step | None:
        """The step of a configuration by vectors of `CHANNELS`; None for other configurations."""
        return self._step if isinstance(configuration, Depthwise) and configuration.vector == CHANNELS else None

    def _by_eight(self, columns: int) -> Depthwise:
        """Tiles of so many pixels, whose task copies its input of their channels."""
        deep = self.layer.channels // CHANNELS
        rows = rows_per_task(self.layer.size[0], deep, self.board.cores)
        tile = Tile(1, columns, CHANNELS)
        return Depthwise(tile=tile, rows_per_task=rows, tasks_deep=deep, copied=True, vector=CHANNELS)


def _sums_of_pairs(
    layer: DepthwiseConvolution, tile: Tile, instruction: str, data: te.Tensor, weights: te.Tensor
) -> te.Tensor:
    """The layer's sums over pairs of kernel elements; the tile's channels are vectors of `CHANNELS`."""
    window, (height, width) = layer.window, layer.window.kernel
    whole = tile.whole(*layer.size)
    read = whole_feature_map(data, window, whole, data.dtype)
    # All elements one after the other, or those of a row.
    rows, elements = (1, height * width) if math.prod(window.kernel) <= _WRITTEN_OUT else (height, width)
    row, pair = te.reduce_axis((0, rows), "ry"), te.reduce_axis((0, -(-elements // 2)), "rx")

    def sum_of_products(n: Any, y: Any, x: Any, c: Any) -> Any:
        def product(element: Any) -> Any:
            ky, kx = row + tirx.floordiv(element, width), tirx.floormod(element, width)
            value = read(n, *window.place(y, x, ky, kx), c)
            return tirx.call_llvm_pure_intrin("int16", instruction, value, weights[ky, kx, 0, c])

        second = product(2 * pair + 1)
        if elements % 2:
            second = tirx.if_then_else(2 * pair + 1 < elements, second, tirx.const(0, "int16"))
        return te.sum((product(2 * pair) + second).astype("int32"), axis=[row, pair])

    sums = te.compute((layer.batch, *whole, layer.channels), sum_of_products, name=DEPTHWISE)
    return crop(sums, layer.size, layer.types.result)

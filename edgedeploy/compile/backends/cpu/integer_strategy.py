"""Strategies for convolutions and products of integers: inner steps and tiles; or sums in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from typing_extensions import override

from edgedeploy.compile.backends.cpu import tiles
from edgedeploy.compile.backends.cpu.configuration import Depthwise, Steps, Winograd
from edgedeploy.compile.backends.cpu.depthwise import DepthwiseStrategy
from edgedeploy.compile.backends.cpu.integers import IntegerLayer, StepForm, pixels
from edgedeploy.compile.backends.cpu.steps import Step, steps_for
from edgedeploy.compile.backends.cpu.strategy import ConvolutionStrategy
from edgedeploy.compile.backends.cpu.traffic import with_reading
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import LayerTypes, bytes_of, lanes_for
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.strategy import PackedForm, Strategy
from edgedeploy.compile.tiles import Tile, divisors, imbalance, is_worth_threads
from edgedeploy.target.board import Board

_VECTORS = (2, 1, 4, 3, 5, 7)  # vectors of output channels that a tile may have, in the order of preference

# Cycles more for each pixel, or each result, that is stored under a condition: if tiles reach beyond the feature map or
# the output channels.
_CROPPED_CYCLES = 8

# Cycles more for each vector of results if those of a pixel do not fill registers of bytes. Two pixels by 16 channels
# do 24 products in a cycle on Cortex-A76 with 64 inputs, eight pixels by 8 channels 20.
_PART_CYCLES = 1

_OF_AARCH64 = ("sdot", "smull")

# Cycles of a loop over the steps of a tile before the first and after the last one, out of order and in order.
_LOOP_CYCLES = (10, 50)

# Cycles to turn a vector of sums into bytes while the next tile's products are computed: no loop is in between.
_HIDDEN_CYCLES = tiles.RESULT_CYCLES / 2

_PRODUCTS = 7  # registers of a tile whose sums have parts for products and weights, besides those of parts and data

# Most vectors of channels of a tile of one pixel in order: LLVM loads weights early there, and spills more of them.
_ALONE = 3
_ODD = 3  # of several pixels it spills as many, too
_ALONE_IN_32_BITS = 4  # most of one pixel in 32-bit code, where repeated input channels are in registers, too

# Cycles of a load, besides the arithmetic, on cores that execute in order: tiles of one pixel, which load a vector of
# weights for each sum, do 1.9 to 2.7 products of bytes in a cycle there, those of four pixels 3.8
# (`benchmarks/arm_loops.py`).
_LOAD_CYCLES = 1.5

# The relative time of up to so many steps there if they are written out: loads are far from their use.
_WRITTEN_OUT, _FEW_STEPS = 0.75, 32

# And of steps whose input channels are not repeated for output channels: 3.8 to 4.1 products in a cycle.
_NOT_REPEATED = 0.92


class IntegerStrategy(Strategy[IntegerLayer]):
    """Convolutions and products with constant weights of integers, on a CPU that has steps for them."""

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> IntegerStrategy | None:
        """The strategy, if it applies to the layer."""
        if not layer.constant or not isinstance(layer, Convolution | FirstConvolution | Dense):
            return None
        strategy = cls(layer, board)
        return strategy if any(True for _ in strategy._possible()) else None

    @override
    def default(self) -> Configuration:
        return min(self._possible(), key=self.estimate)

    @override
    def candidates(self) -> Iterator[Configuration]:
        costs = {each: self.estimate(each) for each in self._possible()}
        default = min(costs, key=costs.__getitem__)
        near = [each for each, cost in costs.items() if cost <= tiles.WORTH_TRYING * costs[default]]
        others = (
            each.model_copy(update={"by_channels": by_channels, "rows_per_task": rows})
            for each in near
            for by_channels in (False, True)
            for rows in divisors(self._tiles_down(each.tile))
        )
        yield from dict.fromkeys([default, *others])

    @override
    def estimate(self, configuration: Configuration) -> float:
        assert isinstance(configuration, Steps)
        form, tile = self._form(configuration), configuration.tile
        step, vectors, count = form.step, form.vectors, tile.rows * tile.columns
        rows, columns = pixels(self.layer, self.board)
        whole_rows, whole_columns = tile.whole(rows, columns)
        whole_tiles = whole_rows * whole_columns // count * self.layer.groups * form.whole_outputs // tile.channels
        steps, written_out = form.steps, form.is_written_out
        cycles = steps * form.addends * _step_cycles(step, count, vectors, self.board)
        if self.board.in_order and step.parts == 1 and written_out and steps * count * vectors <= _FEW_STEPS:
            cycles *= _WRITTEN_OUT
        if step.parts > 1:
            cycles += count * vectors * step.parts
        elif step.adds_in_16_bits and not written_out:
            # What repeats input channels hides behind four vectors of products.
            cycles += steps * count * step.registers * max(0.0, 1 - vectors / 4) / self.board.fma.per_cycle
        cycles += count * vectors * (_HIDDEN_CYCLES if written_out and not self.board.in_order else tiles.RESULT_CYCLES)
        if step.adds_in_16_bits and not written_out:
            cycles += _LOOP_CYCLES[self.board.in_order]
        if step.instruction in _OF_AARCH64 and not written_out and tile.channels % lanes_for(self.board, step.data):
            cycles += count * vectors * _PART_CYCLES
        if tile.useful(rows, columns) < 1:
            cycles += _CROPPED_CYCLES * count
        if form.outputs < form.whole_outputs:
            cycles += _CROPPED_CYCLES * count * tile.channels
        weights = math.prod(form.packed_shape) * bytes_of(step.weights)
        total = with_reading(self.layer.batch * whole_tiles * cycles, weights, self.board)
        tasks = self.layer.batch * self._tiles_down(tile) // configuration.rows_per_task
        tasks *= form.packed_shape[0] if configuration.by_channels else 1
        if tasks < self.board.cores:
            tasks *= whole_columns // tile.columns
        if not is_worth_threads(self.layer.operations, step.products * self.board.fma.per_cycle / step.slots):
            return total
        return total * imbalance(tasks, self.board.cores)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not isinstance(configuration, Steps):
            return False
        step = self._steps.get((configuration.vector, configuration.depth))
        return (
            step is not None
            and configuration.tile.channels % step.channels == 0
            and self._divides_groups(configuration.tile.channels)
            and _fits(step, configuration.tile, self.board)
            and self._tiles_down(configuration.tile) % configuration.rows_per_task == 0
        )

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        form = self._form(configuration)
        return PackedForm(form.compute, form.packed_shape, form.step.weights, form.packed)

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        form = self._form(configuration)
        slots = form.step.slots * form.addends
        return form.step.instruction, form.step.products * self.board.fma.per_cycle / slots

    @cached_property
    def _steps(self) -> dict[tuple[int, int], Step]:
        """The best step of each width and depth, which configurations name them by."""
        found: dict[tuple[int, int], Step] = {}
        for step in steps_for(self.layer.types, self.board):
            found.setdefault((step.channels, step.depth), step)
        return found

    def _form(self, configuration: Configuration) -> StepForm:
        assert isinstance(configuration, Steps)
        step = self._steps[configuration.vector, configuration.depth]
        return StepForm(self.layer, configuration.tile, step, self.board)

    def _tiles_down(self, tile: Tile) -> int:
        return -(-pixels(self.layer, self.board)[0] // tile.rows)

    def _possible(self) -> Iterator[Steps]:
        for step in self._steps.values():
            for tile in self._tiles(step):
                order, down = self._by_channels(step, tile), self._tiles_down(tile)
                rows = down if order else tiles.rows_per_task(down, 1, self.board.cores)
                yield Steps(tile=tile, depth=step.depth, vector=step.channels, by_channels=order, rows_per_task=rows)

    def _tiles(self, step: Step) -> Iterator[Tile]:
        rows, columns = pixels(self.layer, self.board)
        for channels in filter(self._divides_groups, (vectors * step.channels for vectors in _VECTORS)):
            for down in range(1, min(tiles.MAX_ROWS, rows) + 1):
                wider = (Tile(down, across, channels) for across in range(1, columns + 1))
                yield from takewhile(lambda tile: _fits(step, tile, self.board), wider)

    def _divides_groups(self, channels: int) -> bool:
        """Whether a tile of so many channels is within one group."""
        groups = self.layer.groups
        return groups == 1 or self.layer.channels // groups % channels == 0

    def _by_channels(self, step: Step, tile: Tile) -> bool:
        layer = self.layer
        if isinstance(layer, Dense):
            return True
        # If steps are written out, LLVM repeats input channels once, before the loop over output channels. Inside of
        # it, 1x1 of 64 input channels does 5.6 products in a cycle on Cortex-A72 instead of 7.6.
        written_out = StepForm(layer, tile, step, self.board).is_written_out
        if isinstance(layer, FirstConvolution) or (step.adds_in_16_bits and step.parts == 1 and written_out):
            return False
        shape = tiles.ConvolutionShape(*layer.size, layer.channels, layer.window.kernel, layer.inputs, layer.types)
        return tiles.choose_order(shape, tile, self.board).by_channels


def _fits(step: Step, tile: Tile, board: Board) -> bool:
    """Whether a tile's sums fit the registers, with its weights and everything else that a step keeps there."""
    pixels, vectors = tile.rows * tile.columns, tile.channels // step.channels
    # x86 multiplies one pixel's data, in a register, by weights in registers; ARM reads weights as they are used.
    others = vectors + 1 if board.is_x86 else pixels + 2
    sums = pixels * vectors * step.parts
    if step.parts > 1:
        # Of one pixel LLVM loads the weights of several steps, and has no registers for them.
        return (pixels > 1 or vectors == 1) and sums + pixels + _PRODUCTS <= board.vector.registers
    if board.in_order and (vectors > _ALONE if pixels == 1 else vectors == _ODD):
        return False
    if step.adds_in_16_bits:
        if board.family == "arm" and pixels == 1 and vectors > _ALONE_IN_32_BITS:
            return False
        # Of several pixels all weights of a step are held, and each one's repeated data; of one they are used as read.
        held = vectors * step.registers + (pixels if step.registers > 1 else 0)
        others += held if pixels > 1 else 2
    elif step.groups > 1 and pixels > 1:  # LLVM loads all weights of a step once, for all pixels
        others = max(others, vectors * step.groups - 2)
    return sums + others + (board.is_x86 and step.slots == 2) <= tiles.tile_registers(board)


def _step_cycles(step: Step, pixels: int, vectors: int, board: Board) -> float:
    """The cost of one step of all of a tile's sums, as `tiles.step_cycles` for floats."""
    loads = pixels + vectors * step.registers
    chain = board.fma.latency * step.registers
    arithmetic = max(pixels * vectors * step.slots / board.fma.per_cycle, chain)
    hidden = max(arithmetic + 0.1 * loads + 0.1 * vectors, 0.8 * loads)
    if not board.in_order:
        return hidden
    return (hidden + _LOAD_CYCLES * loads) * (_NOT_REPEATED if step.parts > 1 else 1)


_Filter = Convolution | DepthwiseConvolution

_CONVERSION_CYCLES = 1  # cycles to convert a vector of sums to integers

# The architectures that have instructions to round vectors of floats to integers, and for which estimates of forms of
# floats and of integers were compared: with measurements on x86, with llvm-mca's predictions on ARM.
_ROUNDING = ("x86_64", "aarch64")

_EXACT = 2**24  # the largest whole number below which float32 holds all others


class FloatStrategy(Strategy[_Filter]):
    """Convolutions of bytes with sums of products in float32, if that takes fewer instructions; results are integers.

    Weights are constant. Depthwise sums are exact: float32 holds each of them. Winograd's are rounded to whole numbers.
    """

    @classmethod
    def of(cls, layer: AnyAnchorOp, board: Board) -> FloatStrategy | None:
        """The strategy, if it applies to the layer."""
        of_bytes = bytes_of(layer.types.data) == bytes_of(layer.types.weights) == 1
        applies = board.family in _ROUNDING and of_bytes and layer.constant
        if not applies or not isinstance(layer, Convolution | DepthwiseConvolution):
            return None
        strategy = cls(layer, board)
        return strategy if strategy.alternatives() else None

    @override
    def default(self) -> Configuration:
        return min(self.alternatives(), key=self.estimate)

    @override
    def alternatives(self) -> list[Configuration]:
        return list(filter(self._is_form, self._floats.alternatives()))

    @override
    def candidates(self) -> Iterator[Configuration]:
        return filter(self._is_form, self._floats.candidates())

    @override
    def estimate(self, configuration: Configuration) -> float:
        vectors = math.prod(self.layer.size) * self.layer.channels / lanes_for(self.board, "float32")
        more = tiles.RESULT_CYCLES if isinstance(configuration, Winograd) else 0  # not in the estimate of floats
        return self._floats.estimate(configuration) + vectors * (more + _CONVERSION_CYCLES)

    @override
    def fits(self, configuration: Configuration) -> bool:
        return self._is_form(configuration) and self._floats.fits(configuration)

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        form = self._floats.form(configuration)  # whose `at_load` takes bytes too
        return form._replace(pack=lambda weights: form.pack(weights.astype(np.float32)))

    @override
    def rounding(self, configuration: Configuration) -> float:
        return self._floats.rounding(configuration) if isinstance(configuration, Winograd) else 0.0

    @override
    def step(self, configuration: Configuration) -> tuple[str, float]:
        return self._floats.step(configuration)

    @cached_property
    def _floats(self) -> Strategy[Any]:
        """The strategy of the layer if its weights and sums are floats."""
        types = LayerTypes(self.layer.types.data, "float32", "float32", self.layer.types.result)
        layer = self.layer.model_copy(update={"types": types})
        if isinstance(layer, DepthwiseConvolution):
            return DepthwiseStrategy(layer, self.board)
        return ConvolutionStrategy(layer, self.board)

    def _is_form(self, configuration: Configuration) -> bool:
        """Whether floats may be faster in this form, and sums are right."""
        largest = self.layer.terms * 2**8 * 2**7
        return isinstance(configuration, Winograd) or (isinstance(configuration, Depthwise) and largest <= _EXACT)

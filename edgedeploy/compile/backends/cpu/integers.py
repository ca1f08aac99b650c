"""Convolutions and products of integers as sums of steps in TVM's tensor expressions, with weights in the steps' order.

Steps read tensors that are padded: the feature map and output channels to whole tiles, and input channels to the step's
depth, by weights of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import te, tirx

from edgedeploy.compile.backends.cpu.step_code import added_parts
from edgedeploy.compile.backends.cpu.steps import Step, in_bytes, part_of_word, word_of
from edgedeploy.compile.backends.cpu.tiles import SMALL_FEATURE_MAP
from edgedeploy.compile.layers import Convolution, Dense, FirstConvolution
from edgedeploy.compile.operators.direct import CROP, VectorRows
from edgedeploy.compile.operators.product import unravelled
from edgedeploy.compile.tiles import Tile, ravelled, round_up
from edgedeploy.target.board import Board

# The blocks that the template looks for: copies of the data, sums of products, and sums of the parts of sums.
COPY, SUMS, JOINED = "copied_data", "integer_sums", "joined_sums"

IntegerLayer = Convolution | FirstConvolution | Dense


def pixels(layer: IntegerLayer, board: Board) -> tuple[int, int]:
    """Rows and columns of the result's pixels, as tiles see them: of a small feature map they may be one row.

    Whole tiles of four then cover 94 % of 7x7, not 88 %.
    """
    rows, columns = layer.size
    return (1, rows * columns) if is_in_one_row(layer, board) else (rows, columns)


def is_in_one_row(layer: IntegerLayer, board: Board) -> bool:
    """Whether tiles take a convolution's pixels as one row; 32-bit ARM code would keep addresses on the stack then."""
    if not isinstance(layer, Convolution) or layer.batch > 1 or board.family == "arm":
        return False
    one_by_one = layer.window.kernel == layer.window.strides == (1, 1) and not any(layer.window.padding)
    return one_by_one and layer.size[0] < SMALL_FEATURE_MAP


# From a feature map's index, row, column, group, step over the group's input channels, and channel of the step, to the
# value there.
_Reader = Callable[[Any, Any, Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class StepForm:
    """A layer as sums of steps; the tile's channels are vectors of the step's."""

    layer: IntegerLayer
    tile: Tile
    step: Step
    board: Board

    @property
    def inputs(self) -> int:
        """Input channels of a group."""
        return self.layer.weights[-2]

    @property
    def deep(self) -> int:
        """Steps over the input channels."""
        return -(-self.inputs // self.step.depth)

    @property
    def steps(self) -> int:
        """Steps of each sum."""
        return math.prod(self.layer.window.kernel) * self.deep

    @property
    def is_written_out(self) -> bool:
        """Whether the steps of a tile's sums are written out, without a loop."""
        return self.step.is_written_out(self.steps, self.tile.rows * self.tile.columns * self.vectors)

    @property
    def vectors(self) -> int:
        """Vectors of the tile's channels."""
        return self.tile.channels // self.step.channels

    @property
    def outputs(self) -> int:
        """Output channels of a group."""
        return self.layer.channels // self.layer.groups

    @property
    def whole_outputs(self) -> int:
        """Output channels of a group that are computed, in whole tiles; several groups have no others."""
        return round_up(self.outputs, self.tile.channels)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """Tiles of outputs x kernel height x kernel width x steps x bytes of a weight if several x vectors x block."""
        tiles = self.layer.groups * self.whole_outputs // self.tile.channels
        addends = (self.addends,) if self.addends > 1 else ()
        return tiles, *self.layer.window.kernel, self.deep, *addends, self.vectors, *self.step.block

    @property
    def addends(self) -> int:
        """The number of the step's weights whose sum is a weight of the layer."""
        return self.step.addends(self.layer.types.weights)

    def packed(self, weights: np.ndarray) -> np.ndarray:
        """Weights, kernel height x kernel width x inputs x outputs or inputs x outputs, in the order of their use."""
        step = self.step
        grouped = weights.reshape(*self.layer.window.kernel, self.inputs, self.layer.groups, self.outputs)
        added = self.deep * step.depth - self.inputs, self.whole_outputs - self.outputs
        whole = np.pad(grouped, ((0, 0), (0, 0), (0, added[0]), (0, 0), (0, added[1])))
        parts = step.groups, step.depth // step.groups, -1, self.vectors, step.channels
        # a ky kx ko g k tile vector channel -> tile ky kx ko a vector g channel k
        in_parts = in_bytes(whole, self.addends).reshape(self.addends, *self.layer.window.kernel, self.deep, *parts)
        ordered = in_parts.transpose(6, 1, 2, 3, 0, 7, 4, 8, 5)
        return np.ascontiguousarray(ordered.reshape(self.packed_shape).astype(step.weights))

    def compute(self, data: te.Tensor, weights: te.Tensor) -> te.Tensor:
        """The layer's sums, of its data and its packed weights."""
        of_words = isinstance(self.layer, FirstConvolution) and self.step.reads_words
        read, step, window = (self._words if of_words else self._reader)(data), self.step, self.layer.window
        vectors, per_group = self.vectors, self.whole_outputs // step.channels
        ky, kx = te.reduce_axis((0, window.kernel[0]), "ry"), te.reduce_axis((0, window.kernel[1]), "rx")
        ko = te.reduce_axis((0, self.deep), "rs")
        addend = [te.reduce_axis((0, self.addends), "ra")] if self.addends > 1 else []

        def product(n: Any, y: Any, x: Any, vector: Any, channel: Any, *inner: Any) -> Any:
            group = tirx.floordiv(vector, per_group) if self.layer.groups > 1 else 0
            place = (tirx.floordiv(vector, vectors), ky, kx, ko, *addend, tirx.floormod(vector, vectors), *inner)
            value = read(n, *window.place(y, x, ky, kx), group, ko, channel)
            return value.astype("int32") * weights[place].astype("int32")

        shape = (self.layer.batch, *self._whole, self.layer.groups * per_group, step.channels)
        terms = [te.reduce_axis((0, extent), f"rt{index}") for index, extent in enumerate(step.terms)]

        def sum_of_products(n: Any, y: Any, x: Any, vector: Any, channel: Any, *part: Any) -> Any:
            of_pixel, weight = step.operands(channel, terms, *part)
            return te.sum(product(n, y, x, vector, of_pixel, *weight), axis=[ky, kx, ko, *addend, *terms])

        if step.parts == 1:
            return self._cropped(te.compute(shape, sum_of_products, name=SUMS))
        sums = te.compute((*shape, step.parts), sum_of_products, name=SUMS)
        joined = te.compute(shape, lambda *place: added_parts(step, lambda part: sums(*place, part)), name=JOINED)
        return self._cropped(joined)

    @property
    def _in_one_row(self) -> bool:
        return isinstance(self.layer, Dense) or is_in_one_row(self.layer, self.board)

    @cached_property
    def _whole(self) -> tuple[int, int]:
        return self.tile.whole(*pixels(self.layer, self.board))

    @property
    def _read_size(self) -> tuple[int, int]:
        """Rows and columns of the data, without padding."""
        if self._in_one_row:
            return pixels(self.layer, self.board)
        _, rows, columns, last = self.layer.data
        return (columns, last) if isinstance(self.layer, FirstConvolution) else (rows, columns)

    def _reader(self, data: te.Tensor) -> _Reader:
        """A function that reads the data as if they were padded, with a copy only if needed."""
        (height, width), inputs = self._read_size, self.inputs
        top, left, _, _ = self.layer.window.padding
        rows, columns = self.layer.window.input_size(*self._whole)
        shape = self.layer.data[:-1]

        def at(n: Any, y: Any, x: Any, channel: Any) -> Any:
            if self._in_one_row:
                return data(*unravelled(x, shape), channel)
            return data[n, channel, y, x] if isinstance(self.layer, FirstConvolution) else data[n, y, x, channel]

        depth = self.step.depth
        if not self._copies:
            # Rows and columns beyond the feature map are cropped: any values do.
            def clamped(place: Any, whole: int, size: int) -> Any:
                return place if whole <= size else tirx.min(place, size - 1)

            return lambda n, y, x, group, ko, channel: at(
                n, clamped(y, rows, height), clamped(x, columns, width), group * inputs + ko * depth + channel
            )
        outside = tirx.const(int(self.layer.window.padding_value), self.step.data)

        # TVM reads within a buffer only: it holds at least the whole feature map.
        shape_copied = (max(rows, top + height), max(columns, left + width))

        def value(n: Any, y: Any, x: Any, group: Any, channel: Any) -> Any:
            inside = [y >= top, y < top + height] if shape_copied[0] > height else []
            inside += [x >= left, x < left + width] if shape_copied[1] > width else []
            inside += [channel < inputs] if inputs % depth else []
            stored = at(n, y - top, x - left, group * inputs + channel).astype(self.step.data)
            return tirx.if_then_else(tirx.all(*inside), stored, outside) if inside else stored

        copy = te.compute((self.layer.batch, *shape_copied, self.layer.groups, self.deep * depth), value, name=COPY)
        return lambda n, y, x, group, ko, channel: copy[n, y, x, group, ko * depth + channel]

    def _words(self, data: te.Tensor) -> _Reader:
        """A function that reads a copy of NCHW data in vectors of pixels; the channels of a step are words."""
        step = self.step
        rows = VectorRows(self.layer.window, self._read_size, self._whole, step.channels)
        outside = tirx.const(int(self.layer.window.padding_value), step.data)

        def channels_of(k: int, value: Callable[[int], Any]) -> Any:
            channels = range(k * step.depth, min((k + 1) * step.depth, self.inputs))
            return word_of([value(channel) for channel in channels], step.data)

        def word(n: Any, k: Any, *place: Any) -> Any:
            source, found = rows.source(*place), None
            for each in reversed(range(self.deep)):
                stored = channels_of(each, lambda channel: data(n, channel, *source).astype(step.data))
                value = tirx.if_then_else(rows.inside(*place), stored, channels_of(each, lambda _: outside))
                found = value if found is None else tirx.if_then_else(k == each, value, found)
            return found

        words = te.compute((self.layer.batch, self.deep, *rows.shape), word, name=COPY)

        def read(n: Any, y: Any, x: Any, group: Any, ko: Any, channel: Any) -> Any:
            return part_of_word(words(n, ko, *rows.place(y, x)), channel, step.data)

        return read

    @property
    def _copies(self) -> bool:
        """Whether the data are copied: padded, widened, or with other channels."""
        top, left, _, _ = self.layer.window.padding
        rows, columns = self.layer.window.input_size(*pixels(self.layer, self.board))
        (height, width), layer = self._read_size, self.layer
        plain = (top, left) == (0, 0) and rows <= height and columns <= width and layer.types.data == self.step.data
        return not plain or isinstance(layer, FirstConvolution) or self.inputs % self.step.depth > 0

    def _cropped(self, sums: te.Tensor) -> te.Tensor:
        step = self.step

        def of(n: Any, y: Any, x: Any, channel: Any) -> Any:
            return sums[n, y, x, tirx.floordiv(channel, step.channels), tirx.floormod(channel, step.channels)]

        if self._in_one_row:
            shape = self.layer.data[:-1]
            whole_shape = *shape, self.layer.channels
            return te.compute(whole_shape, lambda *at: of(0, 0, ravelled(at[:-1], shape), at[-1]), name=CROP)
        return te.compute((self.layer.batch, *self.layer.size, self.layer.channels), of, name=CROP)

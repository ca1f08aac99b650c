"""A camera's frame as a network's input in one function: a few rows of the input at a time, on all threads.

Their rows of the frame are converted and resized to the input's width, in integers, and stay in the first cache while
the input's rows are computed from them. All levels are equal to those of `vision.frames`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from edgedeploy.compile.operators.builder import Parameter, function, in_vectors
from edgedeploy.vision.frames import Axis, Preparation

PREPARATION_ATTRIBUTE = "edgedeploy.preparation"  # the attribute of a function that prepares frames, as JSON
ROWS = 8  # rows of the input that a task computes: neighbouring ones share rows of the frame

# BT.601 in limited range, as in OpenCV's cvtColor, with a fraction of 20 bits: the factors of U and V for B, G and R,
# and the factor of Y. The factors of B, G and R in grey, with 15 bits.
_CHROMA = ((2116026, 0), (-409993, -852492), (0, 1673527))
_LUMA, _BITS = 1220542, 20
_GREY, _GREY_BITS = (3735, 19235, 9798), 15


def tables(preparation: Preparation) -> list[np.ndarray]:
    """The function's constants: pixels and weights of columns, terms x columns, and of rows; values of levels."""
    columns, rows, *_ = preparation.resampling
    # CPUs multiply weights of 16 bits at half the cost.
    across, down = (each.astype(np.uint16) if each.max() < 2**16 else each for each in (columns.weights, rows.weights))
    return [np.ascontiguousarray(each) for each in (columns.pixels.T, across.T, rows.pixels, down, preparation.values)]


def operations(preparation: Preparation) -> int:
    """Arithmetic operations: of a converted pixel, of each sum along an axis, and of the normalisation."""
    columns, rows, *_ = preparation.resampling
    (across, of_columns), (down, of_rows) = columns.pixels.shape, rows.pixels.shape
    planes = 1 if preparation.camera.pixels == "gray" else 3
    height, width = preparation.camera.size
    converted = 18 * height * width if preparation.camera.pixels in _SHARED else 0
    resampled = planes * across * (height * 2 * of_columns + down * 2 * of_rows)
    return converted + resampled + 2 * preparation.channels * preparation.size[0] * preparation.size[1]


def write(preparation: Preparation, lanes: int, *, parallel: bool) -> tirx.PrimFunc:
    """The function from a frame and `tables` to the network's input, by vectors of `lanes` columns, a power of two."""
    arrays = enumerate(tables(preparation))
    constants = [Parameter(f"table{place}", array.shape, str(array.dtype)) for place, array in arrays]
    read = [Parameter("frame", preparation.camera.shape, "uint8"), *constants]
    written = [Parameter("result", preparation.shape, preparation.dtype)]

    def write_task(tensors: dict[str, Any], task: Any) -> None:
        _Task(preparation, lanes, task * ROWS, *tensors.values()).write()

    described, tasks = (PREPARATION_ATTRIBUTE, preparation), -(-preparation.size[0] // ROWS)
    return function("prepare_frame", described, read, written, tasks, write_task, parallel=parallel)


@dataclass(frozen=True)
class _Task:
    """Some rows of the input, from `first` on; the other fields are the function's parameters."""

    preparation: Preparation
    lanes: int
    first: Any
    frame: Any
    column_pixels: Any
    column_weights: Any
    row_pixels: Any
    row_weights: Any
    values: Any
    result: Any

    @cached_property
    def planes(self) -> int:
        """Channels of the frame's pixels: grey, or B, G and R."""
        return 1 if self.preparation.camera.pixels == "gray" else 3

    @cached_property
    def columns(self) -> Axis:
        return self.preparation.resampling.columns

    @cached_property
    def rows(self) -> Axis:
        return self.preparation.resampling.rows

    @property
    def width(self) -> int:
        """Columns of the input that show the image."""
        return len(self.columns.pixels)

    def write(self) -> None:
        """Write rows of the frame at the input's width first, then rows of the input, then the borders."""
        height, top, seen = self.preparation.size[0], self.preparation.resampling.top, len(self.rows.pixels)
        begin, end = (tirx.max(tirx.min(row - top, seen), 0) for row in (self.first, self.first + ROWS))
        resized = T.alloc_buffer((self._most_rows(), self.planes, self.width), "uint16")
        with T.If(begin < end), T.Then():
            source = self.row_pixels[begin, 0]
            with T.serial(self.row_pixels[end - 1, self.rows.pixels.shape[1] - 1] - source + 1) as row:
                self._across(resized, row, source + row)
            with T.serial(end - begin) as row:
                for channel in range(self.preparation.channels):
                    self._down(resized, channel, begin + row, source)
        if (seen, self.width) != self.preparation.size:
            with T.serial(tirx.min(height - self.first, ROWS)) as row:
                self._beside(self.first + row)

    def _most_rows(self) -> int:
        top, pixels = self.preparation.resampling.top, self.rows.pixels
        firsts = range(-top, self.preparation.size[0] - top, ROWS)
        tasks = [pixels[max(first, 0) : max(first + ROWS, 0)] for first in firsts]
        return max(int(np.ptp(task)) + 1 for task in tasks if task.size)

    def _across(self, resized: Any, place: Any, row: Any) -> None:
        """A row of the frame, converted and resized to the input's width."""
        terms, weights = self.columns.pixels.shape[1], self.column_weights
        shared = self.preparation.camera.pixels in _SHARED
        words = self._converted(row) if shared else None
        # First the pixels of all columns; then their sums by whole vectors.
        taken = T.alloc_buffer((terms, 1 if shared else self.planes, self.width), "int32" if shared else "uint8")
        for term in range(terms):
            with T.serial(self.width) as column:
                pixel = self.column_pixels[term, column]
                if words is not None:
                    T.buffer_store(taken, words[pixel], [term, 0, column])
                for plane in range(0 if shared else self.planes):
                    byte = 2 - plane if self.preparation.camera.pixels == "rgb" else plane
                    at = (row, pixel, byte) if self.planes > 1 else (row, pixel)
                    T.buffer_store(taken, self.frame[at], [term, plane, column])

        def level(plane: int, term: int, column: Any) -> Any:
            if shared:
                return taken[term, 0, column] >> 8 * plane & 255
            return taken[term, plane, column].astype("int32")

        for plane in range(self.planes):
            for column in in_vectors(self.width, self.lanes):
                factors = (weights[term, column].astype("int32") for term in range(terms))
                weighted = [(level(plane, term, column), factor) for term, factor in enumerate(factors)]
                T.buffer_store(resized, _rounded(self.columns, weighted).astype("uint16"), [place, plane, column])

    def _converted(self, row: Any) -> Any:
        """The pixels of a row as words: B, G and R from the lowest byte on."""
        camera = self.preparation.camera
        words = T.alloc_buffer((camera.width,), "int32")
        with T.serial(camera.width // 2) as pair:
            lumas, chroma = _SHARED[camera.pixels](self.frame, camera.height, camera.width, row, pair)
            u, v = (each.astype("int32") - 128 for each in chroma)
            offsets = [u * by_u + v * by_v + (1 << _BITS - 1) for by_u, by_v in _CHROMA]
            for place, luma in enumerate(lumas):
                light = tirx.max(luma.astype("int32") - 16, 0) * _LUMA
                b, g, r = (tirx.max(tirx.min((light + offset) >> _BITS, 255), 0) for offset in offsets)
                T.buffer_store(words, b | (g << 8) | (r << 16), [pair * 2 + place])
        return words

    def _down(self, resized: Any, channel: int, row: Any, source: Any) -> None:
        """A channel of a row of the input, from rows of the frame that were resized to its width."""
        preparation, (_, _, left, top, _) = self.preparation, self.preparation.resampling

        def plane(which: int, column: Any) -> Any:
            def of(term: int) -> tuple[Any, Any]:
                level = resized[self.row_pixels[row, term] - source, which, column].astype("int32")
                return level, self.row_weights[row, term].astype("int32")

            return _rounded(self.rows, list(map(of, range(self.rows.pixels.shape[1]))))

        def level(column: Any) -> Any:
            if self.planes == 1:
                return plane(0, column)
            if preparation.colour == "GRAY":
                weighted = (plane(which, column) * factor for which, factor in enumerate(_GREY))
                return reduce(add, weighted) + (1 << _GREY_BITS - 1) >> _GREY_BITS
            return plane(channel if preparation.colour == "BGR" else 2 - channel, column)

        value = self._arithmetic(channel)
        if value and preparation.layout == "NCHW":
            for column in in_vectors(self.width, self.lanes):
                self._give(channel, top + row, left + column, value(level(column)))
            return
        levels = T.alloc_buffer((self.width,), "uint8")
        for column in in_vectors(self.width, self.lanes):
            T.buffer_store(levels, level(column).astype("uint8"), [column])
        with T.serial(self.width) as column:
            of_level = self.values[channel, levels[column].astype("int32")]
            self._give(channel, top + row, left + column, of_level)

    def _arithmetic(self, channel: int) -> Callable[[Any], Any] | None:
        """A formula for the input's value of a level; None if a table is needed."""
        dtype, values = self.preparation.dtype, self.preparation.values[channel]
        if not np.issubdtype(values.dtype, np.integer):
            mean, scale = (np.float32(each[channel]) for each in (self.preparation.mean, self.preparation.scale))

            def normalised(level: Any) -> Any:
                value = level.astype("float32")
                if mean:
                    value = value - tirx.const(float(mean), "float32")
                if scale != 1:
                    value = value * tirx.const(float(scale), "float32")
                return value.astype(dtype)

            return normalised
        offset = int(values[0])
        steady = np.array_equal(values.astype(np.int64), np.arange(256) + offset)
        return (lambda level: (level + offset).astype(dtype)) if steady else None

    def _give(self, channel: int, row: Any, column: Any, value: Any) -> None:
        at = [channel, row, column] if self.preparation.layout == "NCHW" else [row, column, channel]
        T.buffer_store(self.result, value, [0, *at])

    def _beside(self, row: Any) -> None:
        """The borders of a row of the input."""
        (_, width), (_, _, left, top, _) = self.preparation.size, self.preparation.resampling
        with T.If(tirx.all(row >= top, row < top + len(self.rows.pixels))):
            with T.Then():
                self._border(row, 0, left)
                self._border(row, left + self.width, width - left - self.width)
            with T.Else():
                self._border(row, 0, width)

    def _border(self, row: Any, first: int, count: int) -> None:
        for channel in range(self.preparation.channels):
            value = self.preparation.values[channel, self.preparation.border].item()
            for column in in_vectors(count, self.lanes):
                self._give(channel, row, first + column, tirx.const(value, self.preparation.dtype))


def _rounded(axis: Axis, terms: list[tuple[Any, Any]]) -> Any:
    """The sum of levels times weights, as `Axis` describes it."""
    if len(terms) == 1 and not axis.shift:
        return terms[0][0]
    total = reduce(add, (level * weight >> axis.each if axis.each else level * weight for level, weight in terms))
    if axis.even:
        total = total + ((total >> axis.shift) & 1)
    if axis.bias:
        total = total + axis.bias
    return total >> axis.shift if axis.shift else total


def _planar(frame: Any, height: int, width: int, row: Any, pair: Any) -> Any:
    places = row // 2, row // 2 + height // 2
    chroma = [frame[height + place // 2, place % 2 * (width // 2) + pair] for place in places]
    return [frame[row, pair * 2], frame[row, pair * 2 + 1]], chroma


def _semiplanar(frame: Any, height: int, width: int, row: Any, pair: Any) -> Any:
    at = height + row // 2
    return [frame[row, pair * 2], frame[row, pair * 2 + 1]], [frame[at, pair * 2], frame[at, pair * 2 + 1]]


def _packed(frame: Any, height: int, width: int, row: Any, pair: Any) -> Any:
    return tuple([frame[row, pair * 2 + each, channel] for each in (0, 1)] for channel in (0, 1))


# For formats with shared colours: the two Y of a pair of pixels, and U and V.
_SHARED = {"yuv420": _planar, "nv12": _semiplanar, "yuyv": _packed}

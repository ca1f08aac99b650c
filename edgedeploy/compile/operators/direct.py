"""Direct convolutions: sums over the kernel's elements and the input channels, on a feature map of whole tiles.

Tiles that fill the registers need not divide the feature map: the result is computed in whole tiles, and cropped. A row
of 113 pixels, a prime, could not be tiled otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import te, tirx
from tvm.ir import Expr

from edgedeploy.compile.ir.types import LayerTypes
from edgedeploy.compile.tiles import Tile, WeightOrder, round_up

# The blocks that templates look for: the accumulating ones, and the one that crops whole tiles.
DENSE, DEPTHWISE, CROP = "conv2d", "depthwise_conv2d", "crop"


@dataclass(frozen=True)
class Window:
    """The places of a convolution's kernel elements, in rows and columns."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]  # at top, left, bottom, right of the feature map
    padding_value: float = 0.0  # or the zero point of quantised data

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the output for a feature map of that size."""
        top, left, bottom, right = self.padding
        reach = self.input_size(1, 1)
        rows = (height + top + bottom - reach[0]) // self.strides[0] + 1
        return rows, (width + left + right - reach[1]) // self.strides[1] + 1

    def input_size(self, rows: int, columns: int) -> tuple[int, int]:
        """Padded rows and columns that so many outputs read."""
        last_row, last_column = self.place(rows - 1, columns - 1, self.kernel[0] - 1, self.kernel[1] - 1)
        return last_row + 1, last_column + 1

    def place(self, row: Any, column: Any, ky: Any, kx: Any) -> tuple[Any, Any]:
        """The padded row and column that an output reads for a kernel element; of numbers, or TVM's expressions."""
        (down, across), (below, beside) = self.strides, self.dilation
        return row * down + ky * below, column * across + kx * beside


@dataclass(frozen=True)
class VectorRows:
    """A padded feature map whose rows are divided into vectors, the first of which starts at the feature map's edge.

    If the feature map's width is a multiple of a vector, each is either all feature map or all padding. Rows and
    columns are given as `size` of the feature map, and as `whole` of the result that is computed.
    """

    window: Window
    size: tuple[int, int]
    whole: tuple[int, int]
    lanes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows x vectors x lanes."""
        (height, width), (top, left, _, _) = self.size, self.window.padding
        rows, columns = self.window.input_size(*self.whole)
        vectors = -(-max(columns + self._margin - left, width + self._margin) // self.lanes)
        return max(rows, top + height), vectors, self.lanes

    def inside(self, row: Any, vector: Any, lane: Any) -> Any:
        """Whether a value is in the feature map."""
        (height, width), top, margin = self.size, self.window.padding[0], self._margin
        before = row >= top, row < top + height, vector >= margin // self.lanes
        return tirx.all(*before, vector * self.lanes + lane < margin + width)

    def source(self, row: Any, vector: Any, lane: Any) -> tuple[Any, Any]:
        """Row and column of a value in the feature map."""
        return row - self.window.padding[0], vector * self.lanes + lane - self._margin

    def place(self, row: Any, column: Any) -> tuple[Any, Any, Any]:
        """The place of the value of a padded row and column."""
        column += self._margin - self.window.padding[1]
        return row, tirx.floordiv(column, self.lanes), tirx.floormod(column, self.lanes)

    @property
    def _margin(self) -> int:
        """Values of a row before the feature map."""
        return round_up(self.window.padding[1], self.lanes)


def convolution(
    data: te.Tensor,
    weights: te.Tensor,  # kernel height x kernel width x inputs of one group x outputs
    window: Window,
    groups: int,
    types: LayerTypes,
    tile: Tile,  # `tile` and `order` are those of the template
    order: WeightOrder = WeightOrder(),
    prefetch: int = 0,  # the values of the vectors of weights that are prefetched, or 0
    copied_as: str | None = None,  # the type of padded copies of the data; None for that of the data
    lanes: int = 0,  # of data in NCHW, the values of the vectors of padded rows (`VectorRows`); 0 for data in NHWC
) -> te.Tensor:
    """A convolution in NHWC, or from NCHW to NHWC: a network's first layer."""
    batch, *sizes = (int(size) for size in data.shape)
    inputs, outputs = int(weights.shape[2]), int(weights.shape[3])
    rows, columns = window.output_size(*(sizes[1:] if lanes else sizes[:2]))
    whole = tile.whole(rows, columns)
    if lanes:
        read = _in_vector_rows(data, window, whole, lanes)
    else:
        read = whole_feature_map(data, window, whole, copied_as or data.dtype)
    ky, kx = te.reduce_axis((0, window.kernel[0]), "ry"), te.reduce_axis((0, window.kernel[1]), "rx")
    per_group = outputs // groups
    if groups > 1 and inputs == per_group == 1:
        whole_result = te.compute(
            (batch, *whole, outputs),
            lambda n, y, x, f: te.sum(
                types.product(read(n, *window.place(y, x, ky, kx), f), weights[ky, kx, 0, f]), axis=[ky, kx]
            ),
            name=DEPTHWISE,
        )
    else:
        ic = te.reduce_axis((0, inputs), "rc")

        def sum_of_products(n: Any, y: Any, x: Any, f: Any) -> Any:
            value = read(n, *window.place(y, x, ky, kx), f // per_group * inputs + ic if groups > 1 else ic)
            first = tirx.all(y % tile.rows == 0, x % tile.columns == 0)

            weight = partial(prefetched, weights, (ky, kx, ic, f), 2, first, prefetch)
            if not order.interval or not prefetch:
                return te.sum(types.product(value, weight()), axis=[ky, kx, ic])
            # At intervals, a part of the next slice: its lines are numbered through all passes over this one.
            step = kx * inputs + ic
            if order.slices == 1:
                step += ky * (window.kernel[1] * inputs)
            steps = math.prod(window.kernel) // order.slices * inputs
            one_pass = y // tile.rows * (whole[1] // tile.columns) + x // tile.columns
            line = one_pass * (steps // order.interval) + step // order.interval
            ahead = (window.kernel[0] if order.slices == 1 else ky + 1, 0, line, f)
            once = tirx.all(first, ic % order.interval == 0)
            fetched = fetching(weights, ahead, once, prefetch, weight)
            return te.sum(types.product(value, fetched), axis=[ky, kx, ic])

        whole_result = te.compute((batch, *whole, outputs), sum_of_products, name=DENSE)
    return crop(whole_result, (rows, columns), types.result)


def pad(data: te.Tensor, window: Window, height: int, width: int, dtype: str, name: str = "pad_temp") -> te.Tensor:
    """An NHWC tensor in a larger one of a type, as far from its upper left corner as the window pads it."""
    batch, _, _, channels = (int(size) for size in data.shape)
    return te.compute((batch, height, width, channels), padded_value(data, window, dtype), name=name)


def padded_value(data: te.Tensor, window: Window, dtype: str) -> Callable[..., Expr]:
    """The function from a place in `pad` to the value there."""
    top, left, _, _ = window.padding
    _, rows, columns, _ = (int(size) for size in data.shape)
    outside = tirx.const(window.padding_value, dtype)

    def value(n: Any, y: Any, x: Any, c: Any) -> Expr:
        inside = tirx.all(y >= top, y < top + rows, x >= left, x < left + columns)
        return tirx.if_then_else(inside, data[n, y - top, x - left, c].astype(dtype), outside)

    return value


def crop(whole: te.Tensor, size: tuple[int, int], dtype: str) -> te.Tensor:
    """The first rows and columns of an NHWC tensor, as a type."""
    batch, height, width, channels = (int(extent) for extent in whole.shape)
    if (height, width) == size and whole.dtype == dtype:
        return whole
    return te.compute((batch, *size, channels), lambda n, y, x, f: whole[n, y, x, f].astype(dtype), name=CROP)


def whole_feature_map(data: te.Tensor, window: Window, whole: tuple[int, int], dtype: str) -> Any:
    """A function that reads the input as if it were padded to whole tiles; copies have the type `dtype`."""
    _, height, width, _ = (int(size) for size in data.shape)
    top, left, _, _ = window.padding
    padded_height, padded_width = window.input_size(*whole)
    read_height, _ = window.input_size(*window.output_size(height, width))
    if (top, left) == (0, 0) and read_height <= height and padded_width <= width:
        if padded_height <= height:
            return lambda *place: data[place]
        # Rows below the feature map are cropped, so their values do not matter; the last row needs no copy.
        return lambda n, y, x, c: data[n, tirx.min(y, height - 1), x, c]
    padded = pad(data, window, max(padded_height, top + height), max(padded_width, left + width), dtype)
    return lambda *place: padded[place]


def _in_vector_rows(data: te.Tensor, window: Window, whole: tuple[int, int], lanes: int) -> Any:
    """As `whole_feature_map`, for data in NCHW, which are copied to `VectorRows`."""
    batch, inputs, height, width = (int(size) for size in data.shape)
    rows = VectorRows(window, (height, width), whole, lanes)
    outside = tirx.const(window.padding_value, data.dtype)
    padded = te.compute(
        (batch, inputs, *rows.shape),
        lambda n, c, *place: tirx.if_then_else(rows.inside(*place), data(n, c, *rows.source(*place)), outside),
        name="pad_temp",
    )
    return lambda n, y, x, c: padded(n, c, *rows.place(y, x))


STEPS = 16  # steps of the sum ahead: about as many cycles as the latency of the third cache
_READ_KEEP_DATA = 0, 3, 1  # arguments of `llvm.prefetch`: to be read, into all caches, data


def prefetched(weights: te.Tensor, indices: Sequence[Expr], step: int, once: Expr, vector: int) -> Expr:
    """A weight, and a prefetch of the vector that is used `STEPS` steps later.

    A processor's own prefetching follows a tile's weights too late when they come from beyond the L2 cache, as all
    weights of a larger network do.

    The last of the indices is vectorised; `step` is the one that counts the steps of the sum, past the end of whose
    dimension are the weights used next. Of consecutive uses of a weight `once` chooses one. A vector of 0 values means
    no prefetch.
    """
    weight = weights[tuple(indices)].asobject()
    if not vector:
        return weight
    ahead = [index + STEPS if place == step else index for place, index in enumerate(indices)]
    return fetching(weights, ahead, once, vector, lambda: weight)


def fetching(weights: te.Tensor, ahead: Sequence[Expr], once: Expr, vector: int, value: Callable[[], Expr]) -> Expr:
    """A value, and a prefetch of a vector of weights before it.

    As in `prefetched`, but `ahead` are indices of the vector that is fetched; all but the last may be past the end of
    their dimensions. `value` writes the value. It is called twice: each place needs variables of its own.
    """
    ahead = [*ahead[:-1], tirx.floordiv(ahead[-1], vector) * vector]
    address = tirx.call_intrin("handle", "tirx.address_of", weights[tuple(ahead)].asobject())
    fetch = tirx.call_intrin("void", "tirx.prefetch", address, *_READ_KEEP_DATA)
    # LLVM allows no names for calls without a result.
    return tirx.if_then_else(once, tirx.Let(tirx.Var("", "void"), fetch, value()), value())

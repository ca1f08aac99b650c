"""Layers on an OpenCL device, and a model of their costs, whose unit is a vector of the width in its profile."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import product
from typing import Literal

from typing_extensions import override

from edgedeploy.compile import layers
from edgedeploy.compile.configuration import Configuration, Tiled
from edgedeploy.compile.ir.types import bits_of, lanes_for
from edgedeploy.compile.schedules import divides_into_vectors
from edgedeploy.compile.strategy import PackedForm, Strategy
from edgedeploy.compile.tiles import Tile, divisors, imbalance, row_tiles, vector_length
from edgedeploy.target.board import Board, Positive
from edgedeploy.target.opencl.profile import WIDTHS, OpenCL, opencl_of

MOST_VECTORS = 2  # most vectors of channels of a tile that the model chooses

# Vectors of channels, and most rows, of a convolution's tile of candidates. Their sums may exceed the
# registers in the profile by a factor, since it may be wrong, and then they only become slower.
VECTORS, MOST_ROWS = (1, 2), 2
MOST_OF_SUMS = 2

GROUPS = (1, 4, 16)  # work-groups are these parts of the largest one

# Candidates with a smaller part of useful pixels, or that take so many times as long as the best by the model's
# estimate, are not worth a trial.
LEAST_USEFUL, WORTH_TRYING = 0.75, 1.6


class DeviceStrategy(Strategy[layers.AnyAnchorOp]):
    """How an OpenCL device computes any layer; a dense layer's result is one row of pixels."""

    @override
    def default(self) -> WorkItem:
        layer, device, length = self.layer, self._device, vector_length(self._divided, self._vector)
        if isinstance(layer, layers.Product):
            most = max(count for count in divisors(layer.size[1]) if count <= device.sums)
            return self._grouped(Tile(1, most, length), length)
        most = 1 if isinstance(layer, layers.DepthwiseConvolution) else MOST_VECTORS
        width = layer.size[1]
        tiles = row_tiles(self._divided, length, range(1, most + 1), lambda count: min(device.sums // count, width))
        return self._grouped(max(tiles, key=lambda tile: self._rate(tile, length)), length)

    @override
    def candidates(self) -> Iterator[WorkItem]:
        default = self.default()
        found = dict.fromkeys([default, *(self._possible() if self._is_tiled else ())])
        cycles = {each: self.estimate(each) for each in found}
        most = WORTH_TRYING * min(cycles.values())
        yield from (each for each in found if each == default or cycles[each] <= most)

    @override
    def estimate(self, configuration: Configuration) -> float:
        """The estimated time of all units together, in vectors' times."""
        assert isinstance(configuration, WorkItem)
        layer, tile, group = self.layer, configuration.tile, configuration.group
        values = layer.batch * math.prod(layer.size) * layer.channels / self._vector
        groups = layer.batch * math.prod(map(operator.floordiv, self._count_tiles(tile), astuple(group)))
        return values * layer.terms / self._rate(tile, configuration.vector) * imbalance(groups, self._device.units)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not isinstance(configuration, WorkItem) or not self._is_tiled:
            return configuration == self.default()
        device, tile, group, (_, width) = self._device, configuration.tile, configuration.group, self.layer.size
        return (
            configuration.vector in WIDTHS
            and tile.rows <= self._most_rows
            and tile.columns <= width
            and (not isinstance(self.layer, layers.Product) or width % tile.columns == 0)
            and self._divided % tile.channels == 0
            and tile.channels % configuration.vector == 0
            and tile.rows * tile.columns * tile.channels // configuration.vector <= MOST_OF_SUMS * device.sums
            and not any(map(operator.mod, self._count_tiles(tile), astuple(group)))
            and group.items <= device.work_group
        )

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        layer, tile = self.layer, configuration.register_tile
        if isinstance(layer, layers.FirstConvolution):
            return self.unpacked(layer.in_tiles(tile, lanes=lanes_for(self.board, layer.types.data)))
        if isinstance(layer, layers.BatchMatmul) and layer.transposed:
            return self.unpacked(layer.in_tiles(tile, whole_columns=layer.channels))
        return self.unpacked(layer.in_tiles(tile))

    @property
    def _device(self) -> OpenCL:
        return device_of(self.board)

    @cached_property
    def _vector(self) -> int:
        """Values of the sums' type in a vector of the width in the device's profile."""
        return vector_width(self._device, self.layer.types.accumulator)

    @cached_property
    def _divided(self) -> int:
        """The channels that a tile's divide: those of one group, unless each channel is a group of its own."""
        layer = self.layer
        return layer.outputs if isinstance(layer, layers.Convolution | layers.FirstConvolution) else layer.channels

    @property
    def _most_rows(self) -> int:
        is_dense = isinstance(self.layer, layers.Convolution | layers.FirstConvolution)
        return min(self.layer.size[0], MOST_ROWS) if is_dense else 1

    @property
    def _is_tiled(self) -> bool:
        return not isinstance(self.layer, layers.Product) or divides_into_vectors(self.layer.channels)

    def _count_tiles(self, tile: Tile) -> list[int]:
        """Tiles of the result, down, across and deep."""
        height, width = self.layer.size
        return [-(-height // tile.rows), -(-width // tile.columns), self.layer.channels // tile.channels]

    def _grouped(self, tile: Tile, vector: int) -> WorkItem:
        tiles, most = self._count_tiles(tile), min(self._device.tile_group, self._device.work_group)
        size = group_size(self.layer.batch * math.prod(tiles), most, self._device.units)
        return WorkItem(tile=tile, vector=vector, group=WorkGroup(*group_parts(tiles, size)))

    def _rate(self, tile: Tile, vector: int) -> float:
        """Useful values of a step in one vector's time; less with fewer work-items than the device can run."""
        device = self._device
        pixels, vectors, width = tile.rows * tile.columns, tile.channels // vector, max(1.0, vector / self._vector)
        values = pixels * tile.channels / self._vector * tile.useful(*self.layer.size)
        values /= max(1.0, pixels * vectors * width / device.sums)  # n times the registers take n times as long
        if isinstance(self.layer, layers.DepthwiseConvolution):  # each channel of a pixel reads its own input
            return values / (vectors * width * (pixels + 0.5))
        step = pixels * vectors * width + 0.5 * (pixels + vectors * width) + 1
        items = self.layer.batch * math.prod(self._count_tiles(tile))
        return values / step * min(1.0, items / (device.units * device.items))

    def _possible(self) -> Iterator[WorkItem]:
        """Tiles of each width, in groups of each size: neighbours in channels first, or in columns first."""
        largest = self._device.work_group
        sizes = sorted({min(self._device.tile_group, largest), *(max(1, largest // part) for part in GROUPS)})
        for tile, vector in self._tiles():
            rows, columns, channels = tiles = self._count_tiles(tile)
            for most in sizes:
                yield WorkItem(tile=tile, vector=vector, group=WorkGroup(*group_parts(tiles, most)))
                deep, down, across = group_parts([channels, rows, columns], most)
                yield WorkItem(tile=tile, vector=vector, group=WorkGroup(down, across, deep))

    def _tiles(self) -> Iterator[tuple[Tile, int]]:
        """Tiles and the width of their vectors; of tiles that divide a row into as many parts, the smallest."""
        (_, width), divided, usual = self.layer.size, self._divided, self._vector
        widths = divisors(width)
        if not isinstance(self.layer, layers.Product):  # tiles may reach beyond the result
            widths = sorted({-(-width // count) for count in range(1, width + 1)})
        near = [each for each in WIDTHS if usual <= 2 * each <= 8 * usual and divided % each == 0]
        shapes = product(near or [vector_length(divided, usual)], VECTORS, range(1, self._most_rows + 1), widths)
        for vector, count, rows, columns in shapes:
            tile = Tile(rows, columns, count * vector)
            fits = divided % tile.channels == 0 and rows * columns * count <= MOST_OF_SUMS * self._device.sums
            if fits and tile.useful(*self.layer.size) >= LEAST_USEFUL:
                yield tile, vector


@dataclass(frozen=True)
class WorkGroup:
    """Work-items of an OpenCL device that run together, by the tiles of the result that they compute."""

    rows: Positive
    columns: Positive
    channels: Positive

    @property
    def items(self) -> int:
        """The number of work-items."""
        return math.prod(astuple(self))

    def __str__(self) -> str:
        return f"{self.rows} x {self.columns} x {self.channels}"


class WorkItem(Tiled):
    """A layer on an OpenCL device; a work-item reads, multiplies and adds the values of a vector at a time.

    The tile is a work-item's; the rows of a dense layer's result are its columns.
    """

    form: Literal["work-item"] = "work-item"
    vector: Positive
    group: WorkGroup

    def __str__(self) -> str:
        return f"{self.tile} by {self.vector}, groups of {self.group}"


def device_of(board: Board) -> OpenCL:
    """The OpenCL device of a board that has one."""
    device = opencl_of(board)
    assert device is not None
    return device


def vector_width(device: OpenCL, dtype: str) -> int:
    """How many values of a type a work-item computes with at a time; the profile states it for float32."""
    return max(1, min(WIDTHS[-1], device.vector * bits_of("float32") // bits_of(dtype)))


def group_size(items: int, most: int, units: int) -> int:
    """The most work-items of a group: if there are few, groups are small, so that each unit gets one."""
    return max(1, min(most, items // units))


def group_parts(extents: Sequence[int], most: int) -> list[int]:
    """How much of each loop a work-group of at most `most` items takes: the last ones whole, a part of one before."""
    parts = [1] * len(extents)
    for index in reversed(range(len(extents))):
        parts[index] = max(count for count in divisors(extents[index]) if count <= most)
        if parts[index] < extents[index]:
            break
        most //= parts[index]
    return parts

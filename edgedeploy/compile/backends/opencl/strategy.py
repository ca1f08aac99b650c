"""Configurations of layers on an OpenCL device, and a model of the cost of a step of a sum.

The unit of all costs is a vector of the width in the device's profile.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Literal

from typing_extensions import override

from edgedeploy.compile.configuration import Configuration, Tiled
from edgedeploy.compile.ir.types import bits_of, lanes_for
from edgedeploy.compile.layers import AnyAnchorOp, BatchMatmul, DepthwiseConvolution, FirstConvolution, Product
from edgedeploy.compile.schedules import divides_into_vectors
from edgedeploy.compile.strategy import PackedForm, Strategy
from edgedeploy.compile.tiles import Tile, divisors, imbalance, vector_length
from edgedeploy.target.board import Board, Positive
from edgedeploy.target.opencl.profile import WIDTHS, OpenCL, opencl_of

# Most vectors of channels of a tile that the model chooses.
MOST_VECTORS = 2

# Vectors of channels and rows of a convolution's tile of candidates. Their sums may exceed the
# registers in the profile by a factor, since it may be wrong, and then they only become slower.
VECTORS, ROWS = (1, 2), (1, 2)
MOST_OF_SUMS = 2

# Work-groups are these parts of the largest one.
GROUPS = (1, 4, 16)

# Candidates with a smaller part of useful pixels, or that take so many times as long as the best by the model's
# estimate, are not worth a trial.
LEAST_USEFUL, WORTH_TRYING = 0.75, 1.6


@dataclass(frozen=True)
class _Result:
    """A layer's result, as work-items divide it among themselves.

    Attributes:
        batch, height, width, channels: of the result; a dense layer's is one row of pixels.
        divided: the channels of one group, which a tile's divide.
        steps: terms of each sum.
        vector: values of the sums' type in a vector of the width in the device's profile.
        rows: whether a tile may have several rows.
        cropped: whether tiles may reach beyond the result.
        shared: whether the channels of a pixel read the same input.
        tiled: whether its template has tiles.
    """

    batch: int
    height: int
    width: int
    channels: int
    divided: int
    steps: int
    vector: int
    rows: bool = False
    cropped: bool = True
    shared: bool = True
    tiled: bool = True

    def tiles(self, tile: Tile) -> list[int]:
        return [-(-self.height // tile.rows), -(-self.width // tile.columns), self.channels // tile.channels]

    def grouped(self, tile: Tile, vector: int, device: OpenCL) -> WorkItem:
        tiles = self.tiles(tile)
        parts = group_parts(tiles, group_size(self.batch * math.prod(tiles), _tile_group(device), device.units))
        return WorkItem(tile=tile, vector=vector, group=WorkGroup(*parts))

    def rate(self, tile: Tile, vector: int, device: OpenCL) -> float:
        """Useful values of a step in one vector's time; less with fewer work-items than the device can run.

        A tile of n times as many sums as registers takes n times as long.
        """
        pixels, vectors, width = tile.rows * tile.columns, tile.channels // vector, max(1.0, vector / self.vector)
        values = pixels * tile.channels / self.vector * tile.useful(self.height, self.width)
        values /= max(1.0, pixels * vectors * width / device.sums)
        if not self.shared:
            return values / (vectors * width * (pixels + 0.5))
        step = pixels * vectors * width + 0.5 * (pixels + vectors * width) + 1
        items = self.batch * math.prod(self.tiles(tile))
        return values / step * min(1.0, items / (device.units * device.items))


class DeviceStrategy(Strategy[AnyAnchorOp]):
    """How an OpenCL device computes any layer."""

    @override
    def default(self) -> WorkItem:
        result, device = self._result, self._device
        if isinstance(self.layer, Product):
            length = vector_length(result.channels, result.vector)
            most = max(count for count in divisors(result.width) if count <= device.sums)
            return result.grouped(Tile(1, most, length), length, device)
        length = vector_length(result.divided, result.vector)
        most = MOST_VECTORS if result.shared else 1
        tiles = [
            Tile(1, columns, count * length)
            for count in range(1, most + 1)
            if result.divided % (count * length) == 0
            for columns in range(1, min(device.sums // count, result.width) + 1)
        ]
        return result.grouped(max(tiles, key=lambda tile: result.rate(tile, length, device)), length, device)

    @override
    def candidates(self) -> Iterator[WorkItem]:
        default, result = self.default(), self._result
        found = dict.fromkeys([default, *(_possible(result, self._device) if result.tiled else ())])
        cycles = {each: self.estimate(each) for each in found}
        most = WORTH_TRYING * min(cycles.values())
        yield from (each for each in found if each == default or cycles[each] <= most)

    @override
    def estimate(self, configuration: Configuration) -> float:
        """The estimated time of all units together, in vectors' times."""
        assert isinstance(configuration, WorkItem)
        result, device, tile, group = self._result, self._device, configuration.tile, configuration.group
        values = result.batch * result.height * result.width * result.channels / result.vector
        groups = result.batch * math.prod(map(operator.floordiv, result.tiles(tile), astuple(group)))
        rate = result.rate(tile, configuration.vector, device)
        return values * result.steps / rate * imbalance(groups, device.units)

    @override
    def fits(self, configuration: Configuration) -> bool:
        if not isinstance(configuration, WorkItem):
            return False
        result, device, tile, group = self._result, self._device, configuration.tile, configuration.group
        if not result.tiled:
            return configuration == self.default()
        return (
            configuration.vector in WIDTHS
            and tile.rows <= (min(result.height, max(ROWS)) if result.rows else 1)
            and tile.columns <= result.width
            and (result.cropped or result.width % tile.columns == 0)
            and result.divided % tile.channels == 0
            and tile.channels % configuration.vector == 0
            and configuration.sums <= MOST_OF_SUMS * device.sums
            and not any(map(operator.mod, result.tiles(tile), astuple(group)))
            and group.items <= device.work_group
        )

    @override
    def form(self, configuration: Configuration) -> PackedForm:
        layer, tile = self.layer, configuration.register_tile
        if isinstance(layer, FirstConvolution):
            return self.unpacked(layer.in_tiles(tile, lanes=lanes_for(self.board, layer.types.data)))
        if isinstance(layer, BatchMatmul) and layer.transposed:
            return self.unpacked(layer.in_tiles(tile, whole_columns=layer.channels))
        return self.unpacked(layer.in_tiles(tile))

    @cached_property
    def _result(self) -> _Result:
        return _result(self.layer, vector_width(self._device, self.layer.types.accumulator))

    @property
    def _device(self) -> OpenCL:
        return device_of(self.board)


def _possible(result: _Result, device: OpenCL) -> Iterator[WorkItem]:
    """Tiles of each width, in groups of each size: neighbours in channels first, or in columns first."""
    for tile, vector in _tiles(result, device):
        rows, columns, channels = tiles = result.tiles(tile)
        for most in sorted({_tile_group(device), *(max(1, device.work_group // part) for part in GROUPS)}):
            yield WorkItem(tile=tile, vector=vector, group=WorkGroup(*group_parts(tiles, most)))
            deep, down, across = group_parts([channels, rows, columns], most)
            yield WorkItem(tile=tile, vector=vector, group=WorkGroup(down, across, deep))


def _tiles(result: _Result, device: OpenCL) -> Iterator[tuple[Tile, int]]:
    """Tiles and the width of their vectors; of tiles that divide a row into as many parts, the smallest."""
    if result.cropped:
        widths = sorted({-(-result.width // count) for count in range(1, result.width + 1)})
    else:
        widths = divisors(result.width)
    near = [each for each in WIDTHS if result.vector <= 2 * each <= 8 * result.vector and result.divided % each == 0]
    for vector in near or [vector_length(result.divided, result.vector)]:
        for count in VECTORS:
            if result.divided % (count * vector):
                continue
            for rows in ROWS if result.rows else (1,):
                for columns in widths:
                    tile = Tile(rows, columns, count * vector)
                    fitting = rows <= result.height and rows * columns * count <= MOST_OF_SUMS * device.sums
                    if fitting and tile.useful(result.height, result.width) >= LEAST_USEFUL:
                        yield tile, vector


def _tile_group(device: OpenCL) -> int:
    """The most work-items of a group that compute tiles."""
    return min(device.tile_group, device.work_group)


def _result(layer: AnyAnchorOp, vector: int) -> _Result:
    shape = (layer.batch, *layer.size, layer.channels)
    if isinstance(layer, Product):
        tiled = divides_into_vectors(layer.channels)
        return _Result(*shape, layer.channels, layer.terms, vector, cropped=False, tiled=tiled)
    if isinstance(layer, DepthwiseConvolution):
        return _Result(*shape, layer.channels, layer.terms, vector, shared=False)
    return _Result(*shape, layer.outputs, layer.terms, vector, rows=True)


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
    """A layer on an OpenCL device.

    Attributes:
        tile: of a work-item; the rows of a dense layer's result are columns of the tile.
        vector: values that a work-item reads, multiplies and adds at a time.
    """

    form: Literal["work-item"] = "work-item"
    vector: Positive
    group: WorkGroup

    @property
    def sums(self) -> int:
        """Vectors of sums of a tile."""
        return self.tile.rows * self.tile.columns * self.tile.channels // self.vector

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
    """How much of each loop a work-group of at most `most` items takes, outermost first.

    These are the last ones whole, and a part of the one before: its work-items are neighbours.
    """
    parts = [1] * len(extents)
    for index in reversed(range(len(extents))):
        parts[index] = max(count for count in divisors(extents[index]) if count <= most)
        if parts[index] < extents[index]:
            break
        most //= parts[index]
    return parts

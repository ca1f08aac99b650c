"""Configurations of layers on an OpenCL device, from a model of what a step of a sum costs a work-item."""

from __future__ import annotations

from collections.abc import Iterator

from edgedeploy.board import Board, OpenCL
from edgedeploy.compile.configuration import Configuration, Depthwise, Direct, Product
from edgedeploy.compile.layers import AnyLayer, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.schedules.gpu.threads import device_of
from edgedeploy.compile.tiles import Tile, divisors, vector_length

# Most vectors of channels of a tile.
MOST_VECTORS = 2


def default_for_device(layer: AnyLayer, board: Board) -> Configuration:
    """The configuration that the model says is the fastest on a board's OpenCL device."""
    device = device_of(board)
    if isinstance(layer, Dense):
        columns = layer.weights[1]
        rows = product_rows(layer.data[0], device)
        return Product(whole=columns, rows=rows, columns=vector_length(columns, device.vector))
    height, width = layer.size
    if isinstance(layer, DepthwiseConvolution):
        tile = max(_tiles(width, layer.weights[3], 1, device), key=lambda tile: _depthwise_rate(tile, width))
        return Depthwise(tile=tile, rows_per_task=1, tasks_deep=layer.weights[3] // tile.channels, copied=False)
    assert isinstance(layer, (Convolution, FirstConvolution))
    tiles = _tiles(width, layer.outputs, MOST_VECTORS, device)
    tile = max(tiles, key=lambda tile: _rate(tile, height, width, layer.weights[3], device))
    return Direct(tile=tile, rows_per_task=1)


def product_rows(rows: int, device: OpenCL) -> int:
    """Rows that a work-item computes: the most that divide them and whose sums its registers hold."""
    return max(count for count in divisors(rows) if count <= device.sums)


def _tiles(width: int, channels: int, vectors: int, device: OpenCL) -> Iterator[Tile]:
    """One row of pixels by one or more vectors of channels, as many sums as a work-item's registers hold."""
    length = vector_length(channels, device.vector)
    for count in range(1, vectors + 1):
        if channels % (count * length) == 0:
            yield from (Tile(1, columns, count * length) for columns in range(1, min(device.sums // count, width) + 1))


def _rate(tile: Tile, height: int, width: int, channels: int, device: OpenCL) -> float:
    """Multiply-adds beside the loads and the loop of a step; less with fewer work-items than the device can run."""
    vectors = tile.channels / device.vector
    items = height * -(-width // tile.columns) * channels / tile.channels
    step = tile.columns * vectors / (tile.columns * vectors + 0.5 * (tile.columns + vectors) + 1)
    return step * tile.useful(height, width) * min(1.0, items / (device.units * device.items))


def _depthwise_rate(tile: Tile, width: int) -> float:
    return tile.useful(1, width) * tile.columns / (tile.columns + 0.5)

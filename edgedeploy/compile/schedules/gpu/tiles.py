"""Configurations of layers on an OpenCL device, from a model of what a step of a sum costs a work-item."""

from __future__ import annotations

from collections.abc import Iterator

from edgedeploy.board import Board, OpenCL
from edgedeploy.compile.configuration import Configuration, Depthwise, Direct, Product
from edgedeploy.compile.layers import AnyLayer, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.schedules.gpu.threads import device_of
from edgedeploy.compile.tiles import Tile, divisors, vector_length

# Most pixels of a tile, and most rows of a product's: each is a vector of sums.
MOST_PIXELS = 8


def default_for_device(layer: AnyLayer, board: Board) -> Configuration:
    """The configuration that the model says is the fastest on a board's OpenCL device."""
    device = device_of(board)
    if isinstance(layer, Dense):
        columns = layer.weights[1]
        return Product(whole=columns, rows=product_rows(layer.data[0]), columns=vector_length(columns, device.vector))
    height, width = layer.size
    if isinstance(layer, DepthwiseConvolution):
        tile = max(_tiles(width, layer.weights[3], 1, device), key=lambda tile: _depthwise_rate(tile, width))
        return Depthwise(tile=tile, rows_per_task=1, tasks_deep=layer.weights[3] // tile.channels, copied=False)
    assert isinstance(layer, (Convolution, FirstConvolution))
    tiles = _tiles(width, layer.outputs, device.vectors, device)
    tile = max(tiles, key=lambda tile: _rate(tile, height, width, layer.weights[3], device))
    return Direct(tile=tile, rows_per_task=1)


def product_rows(rows: int) -> int:
    """Rows that a work-item computes: the most up to `MOST_PIXELS` that divide them."""
    return max(count for count in divisors(rows) if count <= MOST_PIXELS)


def _tiles(width: int, channels: int, vectors: int, device: OpenCL) -> Iterator[Tile]:
    """One row of pixels by one or more vectors of channels, as many sums as a work-item's registers hold."""
    length = vector_length(channels, device.vector)
    for count in range(1, vectors + 1):
        if channels % (count * length) == 0:
            yield from (
                Tile(1, columns, count * length) for columns in range(1, min(MOST_PIXELS // count, width) + 1)
            )


def _rate(tile: Tile, height: int, width: int, channels: int, device: OpenCL) -> float:
    """Multiply-adds beside the loads of a step; less where there are fewer work-items than the device runs at once."""
    vectors = tile.channels / device.vector
    items = height * -(-width // tile.columns) * channels / tile.channels
    step = tile.columns * vectors / (tile.columns * vectors + 0.5 * (tile.columns + vectors))
    return step * tile.useful(height, width) * min(1.0, items / (device.units * device.items))


def _depthwise_rate(tile: Tile, width: int) -> float:
    return tile.useful(1, width) * tile.columns / (tile.columns + 0.5)

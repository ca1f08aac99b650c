"""Dense convolutions in NHWC: a register tile of output pixels x output channels, with packed weights.

The tile's accumulators stay in vector registers over the whole reduction. Weights are re-laid as
[channels / tile][kernel height][kernel width][input channels][tile], so that the innermost loop reads
them in order.
"""

from __future__ import annotations

import numpy as np
import tvm

from edgedeploy.board import Board
from edgedeploy.compile.schedules.kernel import (
    Kernel,
    Packing,
    divisors,
    lanes_for,
    rows_per_task,
    vector_length,
)

# Pictures up to this height are split over channels first: each weight is then read once, and by one thread.
SMALL_PICTURE = 16


def matches(kernel: Kernel) -> bool:
    """A convolution in which each output channel sums over more than one input channel."""
    anchor = kernel.anchor()
    if anchor is None or not anchor.startswith(("conv2d_nhwc", "group_conv2d_nhwc")):
        return False
    extents = kernel.extents(kernel.block(anchor))
    return len(extents) == 7 and (anchor.startswith("conv2d_nhwc") or extents[6] > 1)


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it."""
    schedule, lanes = kernel.schedule, lanes_for(board)
    anchor = kernel.anchor()
    assert anchor is not None
    convolution = kernel.block(anchor)
    _, height, width, channels, kernel_height, kernel_width, inputs = kernel.extents(convolution)
    per_group = _channels_per_group(kernel, convolution, channels, inputs)
    tile_width, tile_channels = choose_tile(width, per_group, board)
    kernel.tile = f"{tile_width} pixels x {tile_channels} channels"
    packing = _pack(kernel, convolution, tile_channels)

    padding = kernel.needed_padding(anchor)
    output = kernel.output_of(anchor)
    batch, row, column, channel = schedule.get_loops(output)[:4]
    column, column_in = schedule.split(column, [None, tile_width])
    channel, channel_in = schedule.split(channel, [None, tile_channels])
    tiles = channels // tile_channels
    if height < SMALL_PICTURE and tiles >= min(height, 2 * board.cores):
        tasks, order, innermost = [batch, channel], [row, column], column
    else:
        block, row = schedule.split(row, [None, rows_per_task(height, 1, board.cores)])
        tasks, order, innermost = [batch, block], [row, column, channel], channel
    schedule.reorder(*tasks, *order, column_in, channel_in)
    operations = 2 * height * width * channels * kernel_height * kernel_width * inputs
    task = kernel.parallelize(tasks, operations)
    kernel.vectorize(channel_in, lanes, unroll=True)
    schedule.unroll(column_in)
    kernel.accumulate_inside(convolution, innermost, 3, lanes)
    kernel.pad_inside(padding, task, lanes)
    return packing


def choose_tile(width: int, channels: int, board: Board) -> tuple[int, int]:
    """The tile, pixels x channels, that does the most arithmetic for each value it loads.

    A step of the reduction loads `pixels` inputs and `channels / lanes` weight vectors for
    `pixels * channels / lanes` multiply-adds, whose accumulators must fit the registers beside the
    weight vectors and one input. Inputs are found in the first cache; weights stream from the second, and a
    vector of 512 bits, a whole line of it, costs as much as two inputs.
    """
    lanes = lanes_for(board)
    weight_cost = max(1, board.vector.bits // 256)
    registers = board.vector.registers
    best: tuple[float, int, int] | None = None
    for vectors in (4, 3, 2, 1):
        for length in (lanes, lanes // 2):
            if length < 4 or channels % (vectors * length):
                continue
            for pixels in divisors(width):
                accumulators = pixels * vectors
                if accumulators + vectors + 1 > registers:
                    continue
                gain = accumulators / (pixels + weight_cost * vectors) * length
                if best is None or gain > best[0]:
                    best = gain, pixels, vectors * length
    if best is not None:
        return best[1], best[2]
    length = vector_length(channels, 8)
    return max(pixels for pixels in divisors(width) if pixels <= 8), length


def _channels_per_group(kernel: Kernel, convolution: object, channels: int, inputs: int) -> int:
    """Output channels that read the same input channels: a tile must not straddle two groups."""
    anchor = kernel.anchor()
    if anchor is None or not anchor.startswith("group"):
        return channels
    groups = kernel.read_shape(convolution, 0)[3] // inputs
    return channels // groups


def _pack(kernel: Kernel, convolution: object, tile: int) -> Packing | None:
    """Re-lay the weights in tiles of output channels, where they are constants."""
    parameter = kernel.parameter_of_read(convolution, 1)
    if parameter not in kernel.packable or tile == 1:
        return None

    def index(ky: tvm.tirx.Var, kx: tvm.tirx.Var, ic: tvm.tirx.Var, oc: tvm.tirx.Var) -> list[tvm.tirx.PrimExpr]:
        return [tvm.tirx.floordiv(oc, tile), ky, kx, ic, tvm.tirx.floormod(oc, tile)]

    kernel.schedule.transform_layout(convolution, ("read", 1), index)

    def relay(weights: np.ndarray) -> np.ndarray:
        shape = weights.shape
        tiled = weights.reshape(*shape[:3], shape[3] // tile, tile)
        return np.ascontiguousarray(tiled.transpose(3, 0, 1, 2, 4))

    return Packing(parameter, relay)

"""Depthwise convolutions in NHWC: every channel is filtered by itself, so vectors run over channels."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.schedules.kernel import (
    Kernel,
    Packing,
    divisors,
    lanes_for,
    rows_per_task,
    vector_length,
)

# Kernels up to this wide are unrolled over their width. Unrolling their height too makes no difference to the
# speed and doubles the time to generate the code.
UNROLLED_WIDTH = 7


def matches(kernel: Kernel) -> bool:
    """A convolution in which output channel c reads input channel c only."""
    anchor = kernel.anchor()
    if anchor is None or not anchor.startswith("group_conv2d_nhwc"):
        return False
    block = kernel.block(anchor)
    extents = kernel.extents(block)
    return len(extents) == 7 and extents[6] == 1 and kernel.read_shape(block, 0)[3] == extents[3]


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; nothing is re-laid.

    A task is a block of rows of a few channels: its padded input is small enough to stay in the first cache,
    and is copied only once for all taps.
    """
    schedule, lanes = kernel.schedule, lanes_for(board)
    anchor = kernel.anchor()
    assert anchor is not None
    convolution = kernel.block(anchor)
    extents = kernel.extents(convolution)
    _, height, width, channels, _, kernel_width, _ = extents
    length = vector_length(channels, lanes)
    vectors = 2 if channels % (2 * length) == 0 else 1
    accumulators = (board.vector.registers - 2) // 2
    tile_width = max(pixels for pixels in divisors(width) if pixels * vectors <= max(accumulators, vectors))
    tile_channels = vectors * length

    kernel.tile = f"{tile_width} pixels x {tile_channels} channels"

    padding = kernel.needed_padding(anchor)
    output = kernel.output_of(anchor)
    batch, row, column, channel = schedule.get_loops(output)[:4]
    block, row = schedule.split(row, [None, rows_per_task(height, channels // tile_channels, board.cores)])
    column, column_in = schedule.split(column, [None, tile_width])
    channel, channel_in = schedule.split(channel, [None, tile_channels])
    schedule.reorder(batch, block, channel, row, column, column_in, channel_in)
    task = kernel.parallelize([batch, block, channel], 2 * math.prod(extents))
    kernel.vectorize(channel_in, lanes, unroll=True)
    schedule.unroll(column_in)
    taps = kernel.accumulate_inside(convolution, column, 3, lanes)
    if kernel_width <= UNROLLED_WIDTH:
        schedule.unroll(taps[1])
    kernel.pad_inside(padding, task, lanes)
    return None

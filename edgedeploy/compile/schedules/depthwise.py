"""Depthwise convolutions in NHWC: every channel is filtered by itself, so vectors run over channels."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel, Packing, divisors, rows_per_task, whole_vectors
from edgedeploy.compile.tiles import MAX_VECTORS, lanes_for

# Kernels up to this wide are unrolled over their width. Unrolling their height too makes no difference to the
# speed and doubles the time to generate the code.
UNROLLED_WIDTH = 7


def matches(kernel: Kernel) -> bool:
    """A convolution in which output channel c reads input channel c only."""
    return kernel.anchor() == direct.DEPTHWISE


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; nothing is re-laid.

    A task is a block of rows of a few channels: its padded input is small enough to stay in the first cache,
    and is copied only once for all taps.
    """
    schedule, lanes = kernel.schedule, lanes_for(board)
    convolution = kernel.block(direct.DEPTHWISE)
    tile = kernel.noted_tile(direct.DEPTHWISE)
    kernel.tile = str(tile)
    _, _, whole_width, _, kernel_height, kernel_width = kernel.extents(convolution)

    padding = kernel.needed_padding(direct.DEPTHWISE)
    output = kernel.output_of(direct.DEPTHWISE)
    extents = kernel.extents(output)
    _, height, _, channels = extents
    batch, row, column, channel = schedule.get_loops(output)
    default_rows = rows_per_task(height, channels // tile.channels, board.cores)
    block, row = schedule.split(row, [None, kernel.choose(divisors(height), default_rows)])
    column, column_in = schedule.split(column, [None, kernel.choose(divisors(whole_width), tile.columns)])
    tile_channels = kernel.choose(whole_vectors(channels, MAX_VECTORS, tile.channels, lanes), tile.channels)
    channel, channel_in = schedule.split(channel, [None, tile_channels])
    schedule.reorder(batch, block, channel, row, column, column_in, channel_in)
    task = kernel.parallelize([batch, block, channel], 2 * math.prod(extents) * kernel_height * kernel_width)
    kernel.vectorize(channel_in, lanes, unroll=True)
    schedule.unroll(column_in)
    taps = kernel.accumulate_inside(convolution, column, 2, lanes, pixels=1)
    if kernel_width <= UNROLLED_WIDTH:
        schedule.unroll(taps[1])
    kernel.pad_inside(padding, task, lanes)
    return None

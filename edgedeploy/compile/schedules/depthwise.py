"""Depthwise convolutions in NHWC: every channel is filtered by itself, so vectors run over channels."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel, Packing, rows_per_task, tasks_for, whole_vectors
from edgedeploy.compile.tiles import MAX_VECTORS, divisors, lanes_for

# Kernels up to this wide are unrolled over their width. Unrolling their height too makes no difference to the
# speed and doubles the time to generate the code.
UNROLLED_WIDTH = 7


def matches(kernel: Kernel) -> bool:
    """A convolution in which output channel c reads input channel c only."""
    return kernel.anchor() == direct.DEPTHWISE


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; nothing is re-laid.

    On x86, padding is asked for at every tap: LLVM makes a few branches for a tile of that, which cost less than a
    copy; and channels are the innermost loop over tiles, so that memory is read in its order. On ARM the branches
    would be in the way of the multiply-adds (`benchmarks/arm_loops.py`): there a task is a tile of channels, and
    copies with its padding what it reads, which is small enough to stay in the first cache.
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
    tiles_deep = channels // tile.channels
    if board.is_x86:
        kernel.inline(padding)
        padding = []
        tasks_deep = next(
            count for count in divisors(tiles_deep) if count * height >= tasks_for(board.cores) or count == tiles_deep
        )
    else:
        tasks_deep = tiles_deep
    batch, row, column, channel = schedule.get_loops(output)
    default_rows = rows_per_task(height, tasks_deep, board.cores)
    block, row = schedule.split(row, [None, kernel.choose(divisors(height), default_rows)])
    column, column_in = schedule.split(column, [None, kernel.choose(divisors(whole_width), tile.columns)])
    tile_channels = kernel.choose(whole_vectors(channels, MAX_VECTORS, tile.channels, lanes), tile.channels)
    channel, channel_in = schedule.split(channel, [None, tile_channels])
    deep, channel = schedule.split(channel, [tasks_deep, None])
    schedule.reorder(batch, block, deep, row, column, channel, column_in, channel_in)
    task = kernel.parallelize([batch, block, deep], 2 * math.prod(extents) * kernel_height * kernel_width)
    kernel.vectorize(channel_in, lanes, unroll=True)
    schedule.unroll(column_in)
    taps = kernel.accumulate_inside(convolution, channel, 2, lanes, pixels=1)
    if kernel_width <= UNROLLED_WIDTH:
        schedule.unroll(taps[1])
    kernel.pad_inside(padding, task, lanes)
    return None

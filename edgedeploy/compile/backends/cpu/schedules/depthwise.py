"""Depthwise convolutions in NHWC: every channel is filtered by itself, so vectors run over channels."""

from __future__ import annotations

import math
from typing import Any

from tvm.s_tir import Schedule

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Columns, Depthwise
from edgedeploy.compile.backends.cpu.narrowing import WHOLE_SUMS
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel, Packing

# Kernels up to this wide are unrolled over their width. Unrolling their height too makes no difference to the
# speed and doubles the time to generate the code.
UNROLLED_WIDTH = 7

# Vectors of a pixel that are copied under one condition. With more, LLVM writes several pixels out, and prefetchers
# lose the distance between them.
_TOGETHER = 2


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; nothing is packed.

    Where nothing is copied, padding is asked for at every kernel element, and channels are the innermost loop over
    tiles, so that memory is read in its order. On x86 LLVM makes a few branches for a tile of that, which cost less
    than a copy. On ARM they would be in the way of the multiply-adds (`benchmarks/arm_loops.py`): there a task is a
    block of rows, columns and channels (`blocks.py`), and copies with its padding what it reads, which stays in the L1
    cache. Its innermost loop is over the tiles of a row, so that their weights stay in registers.
    """
    chosen = kernel.chosen(Depthwise)
    if chosen.floats:
        kernel.schedule = Schedule(kernel.schedule.mod["main"].with_attr(WHOLE_SUMS, True))
    schedule, convolution = kernel.schedule, kernel.block(direct.DEPTHWISE)
    lanes = max(kernel.lanes(convolution, board), chosen.vector)
    kernel_height, kernel_width = kernel.extents(convolution)[-2:]

    padding = kernel.needed_padding(direct.DEPTHWISE)
    output = kernel.output_of(direct.DEPTHWISE)
    extents = kernel.extents(output)
    if not chosen.copied:
        kernel.inline(padding)
        padding = []
    tasks, [_, column, channel], pixels = in_tiles(kernel, output, chosen, chosen.tasks_across)
    innermost = channel
    if chosen.copied:
        schedule.reorder(channel, column)
        innermost = column
    operations, rate = 2 * math.prod(extents) * kernel_height * kernel_width, kernel.rate(convolution, board) / 2
    task = kernel.parallelize(tasks, operations, rate)
    kernel.unroll_tile(pixels, lanes)
    elements = kernel.accumulate_inside(convolution, innermost, 2, lanes, pixels=1)
    if kernel_width <= UNROLLED_WIDTH:
        schedule.unroll(elements[1])
    kernel.pad_inside(padding, task, board, together=1 if chosen.floats else _TOGETHER)
    if chosen.floats:
        for name in padding:
            kernel.partition(schedule.get_loops(kernel.block(name))[-3])
    return None


def in_tiles(
    kernel: Kernel, output: Any, chosen: Depthwise | Columns, across: int = 1
) -> tuple[list[Any], list[Any], list[Any]]:
    """The loops over an output.

    Args:
        kernel: the function.
        output: the block that stores it.
        chosen: the layer's configuration.
        across: in how many parts columns are dealt out to tasks.

    Returns:
        Those over tasks; over a task's tiles, by rows, columns and channels; over a tile's pixels and channels.
    """
    schedule = kernel.schedule
    batch, row, column, channel = schedule.get_loops(output)
    block, row = schedule.split(row, [None, chosen.rows_per_task])
    column, column_in = schedule.split(column, [None, chosen.tile.columns])
    channel, channel_in = schedule.split(channel, [None, chosen.tile.channels])
    deep, channel = schedule.split(channel, [chosen.tasks_deep, None])
    tasks = [batch, block, deep]
    if across > 1:
        part, column = schedule.split(column, [across, None])
        tasks.insert(2, part)
    schedule.reorder(*tasks, row, column, channel, column_in, channel_in)
    return tasks, [row, column, channel], [column_in, channel_in]

"""Depthwise convolutions in NHWC: every channel is filtered by itself, so vectors run over channels."""

from __future__ import annotations

import math
from typing import Any

from tvm.s_tir import Schedule

from edgedeploy.compile.backends.cpu.columns import COPY, ROWS, SUMS, WORDS
from edgedeploy.compile.backends.cpu.configuration import Columns, Depthwise
from edgedeploy.compile.backends.cpu.narrowing import WHOLE_SUMS
from edgedeploy.compile.backends.cpu.schedules.integers import RESULTS, begin_with_bias
from edgedeploy.compile.backends.cpu.step_code import INTERLEAVED, interleaving_intrinsic, words_intrinsic
from edgedeploy.compile.backends.cpu.steps import WORD, step_of
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.target.board import Board

# Kernels up to this wide are unrolled over their width. Unrolling their height too makes no difference to the
# speed and doubles the time to generate the code.
UNROLLED_WIDTH = 7

# Vectors of a pixel that are copied under one condition. With more, LLVM writes several pixels out, and prefetchers
# lose the distance between them.
_TOGETHER = 2


def depthwise(kernel: Kernel, board: Board) -> None:
    """Schedule the convolution and everything fused with it.

    Without copies, every kernel element checks whether it is padding, and channels are the innermost loop over tiles,
    so that memory is read in order. On x86 LLVM makes a few branches for a tile of that, which cost less than a copy.
    On ARM they would be in the way of the multiply-adds (`benchmarks/arm_loops.py`): there a task is a `Block`, and
    copies its input with the padding to the L1 cache. Its innermost loop is over the tiles of a row, so that their
    weights stay in registers.
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
    tasks, [_, column, channel], pixels = _in_tiles(kernel, output, chosen, chosen.tasks_across)
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
    kernel.pad(padding, task, board, together=1 if chosen.floats else _TOGETHER)
    if chosen.floats:
        for name in padding:
            kernel.partition(schedule.get_loops(kernel.block(name))[-3])


def columns(kernel: Kernel, board: Board) -> None:
    """Schedule a convolution of integers by columns; the words of a tile's columns and its sums are in registers."""
    begin_with_bias(kernel, SUMS, lambda *place: place[-1])
    schedule, chosen, sums = kernel.schedule, kernel.chosen(Columns), kernel.block(SUMS)
    step = step_of(WORD, chosen.vector, ROWS, board)
    tasks, [*_, channel], pixels = _in_tiles(kernel, kernel.output_of(SUMS), chosen)
    task = kernel.parallelize(tasks, 2 * math.prod(kernel.extents(sums)), step.products)
    kernel.unroll_tile(pixels, RESULTS)

    words = kernel.block(WORDS)
    schedule.set_scope(words, 0, "local")
    if COPY in kernel.names:  # before compute_at: TVM finds no intrinsic in tiles that overlap
        _, inner = schedule.split(schedule.get_loops(words)[-1], [None, INTERLEAVED])
        words = schedule.blockize(inner)
        schedule.tensorize(words, interleaving_intrinsic(step.data))
    schedule.compute_at(sums, channel, preserve_unit_loops=True)
    schedule.compute_at(words, channel, preserve_unit_loops=True)
    *around, vector = schedule.get_loops(words)[-3:]
    kernel.unroll(around)
    if COPY in kernel.names:
        schedule.unroll(vector)
        kernel.pad([COPY], task, board)
    else:
        kernel.vectorize(vector, step.channels, unroll=True)

    *_, column, channel, across, part, addend, line = schedule.get_loops(sums)
    vectors, lanes = schedule.split(channel, [None, step.channels])
    schedule.reorder(across, part, addend, column, vectors, lanes, line)
    kernel.unroll([across, part, addend, column, vectors])
    zero = schedule.decompose_reduction(sums, across)
    schedule.set_scope(sums, 0, "local")
    schedule.tensorize(lanes, words_intrinsic(step))
    *around, last = schedule.get_loops(zero)[-3:]
    schedule.vectorize(last)
    kernel.unroll(around)


def _in_tiles(
    kernel: Kernel, output: Any, chosen: Depthwise | Columns, across: int = 1
) -> tuple[list[Any], list[Any], list[Any]]:
    """Split the loops over an output, with columns in `across` parts; returns those over tasks, tiles and pixels."""
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

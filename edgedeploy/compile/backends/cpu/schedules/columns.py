"""Depthwise convolutions of integers by columns: the words of a tile's columns and its sums are in registers."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.columns import ROWS, SUMS, WORDS
from edgedeploy.compile.backends.cpu.configuration import Columns
from edgedeploy.compile.backends.cpu.schedules.integers import RESULTS
from edgedeploy.compile.backends.cpu.step_code import words_intrinsic
from edgedeploy.compile.backends.cpu.steps import step_of
from edgedeploy.compile.schedules.kernel import Kernel, Packing


def matches(kernel: Kernel) -> bool:
    """A layer that is written as sums of columns."""
    return isinstance(kernel.configuration, Columns)


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; the weights were packed with the form."""
    schedule, chosen, sums = kernel.schedule, kernel.chosen(Columns), kernel.block(SUMS)
    step = step_of("uint8", chosen.vector, ROWS, board)
    output = kernel.output_of(SUMS)
    batch, row, column, channel = schedule.get_loops(output)
    block, row = schedule.split(row, [None, chosen.rows_per_task])
    column, column_in = schedule.split(column, [None, chosen.tile.columns])
    channel, channel_in = schedule.split(channel, [None, chosen.tile.channels])
    deep, channel = schedule.split(channel, [chosen.tasks_deep, None])
    schedule.reorder(batch, block, deep, row, column, channel, column_in, channel_in)
    kernel.parallelize([batch, block, deep], 2 * math.prod(kernel.extents(sums)), step.products)
    kernel.unroll_tile([column_in, channel_in], RESULTS)

    schedule.compute_at(sums, channel, preserve_unit_loops=True)
    words = kernel.block(WORDS)
    schedule.compute_at(words, channel, preserve_unit_loops=True)
    *around, vector = schedule.get_loops(words)[-3:]
    for loop in around:
        schedule.unroll(loop)
    kernel.vectorize(vector, step.channels, unroll=True)
    schedule.set_scope(words, 0, "local")

    *_, column, channel, across, part, line = schedule.get_loops(sums)
    vectors, lanes = schedule.split(channel, [None, step.channels])
    schedule.reorder(across, part, column, vectors, lanes, line)
    for loop in (across, part, column, vectors):
        schedule.unroll(loop)
    zero = schedule.decompose_reduction(sums, across)
    schedule.set_scope(sums, 0, "local")
    schedule.tensorize(lanes, words_intrinsic(step))
    *pixels, last = schedule.get_loops(zero)[-3:]
    schedule.vectorize(last)
    for loop in pixels:
        schedule.unroll(loop)
    return None

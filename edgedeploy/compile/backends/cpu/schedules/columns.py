"""Depthwise convolutions of integers by columns: the words of a tile's columns and its sums are in registers."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.columns import ROWS, SUMS, WORDS
from edgedeploy.compile.backends.cpu.configuration import Columns
from edgedeploy.compile.backends.cpu.schedules.depthwise import in_tiles
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
    tasks, channel, pixels = in_tiles(kernel, output, chosen)
    kernel.parallelize(tasks, 2 * math.prod(kernel.extents(sums)), step.products)
    kernel.unroll_tile(pixels, RESULTS)

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
    *around, last = schedule.get_loops(zero)[-3:]
    schedule.vectorize(last)
    for loop in around:
        schedule.unroll(loop)
    return None

"""Depthwise convolutions of integers by columns: the words of a tile's columns and its sums are in registers."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.columns import COPY, ROWS, SUMS, WORDS
from edgedeploy.compile.backends.cpu.configuration import Columns
from edgedeploy.compile.backends.cpu.schedules.biases import begin_with_bias
from edgedeploy.compile.backends.cpu.schedules.depthwise import in_tiles
from edgedeploy.compile.backends.cpu.schedules.integers import RESULTS
from edgedeploy.compile.backends.cpu.step_code import INTERLEAVED, interleaving_intrinsic, words_intrinsic
from edgedeploy.compile.backends.cpu.steps import activation_type, step_of
from edgedeploy.compile.schedules.kernel import Kernel, Packing


def matches(kernel: Kernel) -> bool:
    """A layer that is written as sums of columns."""
    return isinstance(kernel.configuration, Columns)


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; the weights were packed with the form."""
    begin_with_bias(kernel, SUMS, lambda *place: place[-1])
    schedule, chosen, sums = kernel.schedule, kernel.chosen(Columns), kernel.block(SUMS)
    step = step_of(activation_type(board), chosen.vector, ROWS, board)
    output = kernel.output_of(SUMS)
    tasks, [*_, channel], pixels = in_tiles(kernel, output, chosen)
    task = kernel.parallelize(tasks, 2 * math.prod(kernel.extents(sums)), step.products)
    kernel.unroll_tile(pixels, RESULTS)

    words = kernel.block(WORDS)
    schedule.set_scope(words, 0, "local")
    if COPY in kernel.names:  # where tiles overlap, as their words do, TVM finds no intrinsic
        _, inner = schedule.split(schedule.get_loops(words)[-1], [None, INTERLEAVED])
        words = schedule.blockize(inner)
        schedule.tensorize(words, interleaving_intrinsic(step.data))
    schedule.compute_at(sums, channel, preserve_unit_loops=True)
    schedule.compute_at(words, channel, preserve_unit_loops=True)
    *around, vector = schedule.get_loops(words)[-3:]
    for loop in around:
        schedule.unroll(loop)
    if COPY in kernel.names:
        schedule.unroll(vector)
        kernel.pad_inside([COPY], task, board)
    else:
        kernel.vectorize(vector, step.channels, unroll=True)

    *_, column, channel, across, part, addend, line = schedule.get_loops(sums)
    vectors, lanes = schedule.split(channel, [None, step.channels])
    schedule.reorder(across, part, addend, column, vectors, lanes, line)
    for loop in (across, part, addend, column, vectors):
        schedule.unroll(loop)
    zero = schedule.decompose_reduction(sums, across)
    schedule.set_scope(sums, 0, "local")
    schedule.tensorize(lanes, words_intrinsic(step))
    *around, last = schedule.get_loops(zero)[-3:]
    schedule.vectorize(last)
    for loop in around:
        schedule.unroll(loop)
    return None

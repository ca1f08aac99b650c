"""Convolutions and products of integers: a register tile whose innermost block is one of the CPU's inner steps.

The sums of a tile stay in vector registers over the whole reduction. Weights come in the order in which they are read.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Steps
from edgedeploy.compile.backends.cpu.integers import COPY, JOINED, SUMS, is_in_one_row, pixels
from edgedeploy.compile.backends.cpu.schedules.biases import begin_with_bias
from edgedeploy.compile.backends.cpu.step_code import intrinsic, joining_intrinsic
from edgedeploy.compile.backends.cpu.steps import Step, step_of
from edgedeploy.compile.backends.cpu.words import WORD
from edgedeploy.compile.layers import Convolution, Dense
from edgedeploy.compile.schedules.kernel import Kernel, Packing

# Results that are made of sums together: a whole register of bytes.
RESULTS = 16


def matches(kernel: Kernel) -> bool:
    """A layer that is written as sums of steps."""
    return isinstance(kernel.configuration, Steps)


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the sums and everything fused with them; the weights were packed with the form."""
    chosen, read = kernel.chosen(Steps), kernel.dtypes(kernel.block(SUMS))[0]
    tile, step, words = chosen.tile, step_of(read, chosen.vector, chosen.depth, board), read == WORD
    begin_with_bias(kernel, SUMS, lambda n, y, x, vector, channel: vector * step.channels + channel)
    schedule, sums = kernel.schedule, kernel.block(SUMS)
    operations = 2 * math.prod(kernel.extents(sums))

    last = SUMS if step.parts == 1 else JOINED
    *maps, column, channel = _result_loops(kernel, kernel.block(last), kernel.output_of(last))
    is_cropped = int(schedule.get(column).extent) % tile.columns > 0
    column, column_in = schedule.split(column, [None, tile.columns])
    channel, channel_in = schedule.split(channel, [None, tile.channels])
    tasks, rows, inside = maps[:1], [], [column_in]
    if maps:
        row, row_in = schedule.split(maps[1], [None, tile.rows])
        block, row = schedule.split(row, [None, chosen.rows_per_task])
        tasks, rows, inside = [maps[0], block], [row], [row_in, column_in]
    tiles = [*rows, column]
    (tasks if chosen.by_channels else tiles).append(channel)
    schedule.reorder(*tasks, *tiles, *inside, channel_in)
    kernel.spread(tasks, tiles, board.cores)
    task = kernel.parallelize(tasks, operations, step.products * board.fma.per_cycle / step.slots)
    innermost = tiles[-1] if tiles else task
    kernel.unroll_tile([*inside, channel_in], RESULTS)

    if step.parts > 1:
        schedule.compute_at(kernel.block(JOINED), innermost, preserve_unit_loops=True)
    schedule.compute_at(sums, innermost, preserve_unit_loops=True)
    if COPY in kernel.names:  # before steps hide who reads it
        flat = _is_flat(kernel, board)
        if chosen.by_channels:
            kernel.pad_first([COPY], board, flat=flat)
        else:
            kernel.pad_inside([COPY], task, board, flat=flat)
        if words:
            kernel.partition(schedule.get_loops(kernel.block(COPY))[-2])
    written_out = _accumulate(kernel, sums, step, intrinsic(step, words))
    if written_out and is_cropped and any(loop.same_as(column) for loop in tiles):
        kernel.partition(column)  # of whole tiles, too, conditions would keep results apart
    if step.parts > 1:
        _join(kernel, step)
    return None


def _result_loops(kernel: Kernel, sums: Any, output: Any) -> list[Any]:
    """The loops over feature maps, rows, columns and channels; of a product over columns, its rows, and channels."""
    schedule, extents = kernel.schedule, kernel.extents(output)
    batch, rows, *_ = kernel.extents(sums)
    if not (len(extents) == 4 and extents[0] == batch and extents[1] <= rows):
        kernel.ravel_rows(sums, output)
    return list(schedule.get_loops(output))


def _is_flat(kernel: Kernel, board: Board) -> bool:
    """Whether rows are copied as they lie there, without padding and groups, in NHWC."""
    layer, block = kernel.layer, kernel.schedule.get(kernel.block(COPY))
    if not isinstance(layer, Convolution | Dense) or not isinstance(block.body.value, tirx.Cast):
        return False
    _, _, columns, groups, _ = kernel.extents(kernel.block(COPY))
    in_rows = isinstance(layer, Convolution) and not is_in_one_row(layer, board)
    width = layer.data[2] if in_rows else pixels(layer, board)[1]
    return groups == 1 and columns == width


def _accumulate(kernel: Kernel, sums: Any, step: Step, name: str) -> bool:
    """Steps over the kernel's elements and the input channels around the tile's pixels and vectors.

    Returns:
        Whether all of them are written out.
    """
    schedule = kernel.schedule
    dimensions = len(schedule.get(sums).iter_vars)
    loops = schedule.get_loops(sums)[-dimensions:]
    (_, *of_tile, vectors, channels), parts, rest = loops[:5], loops[5 : 5 + (step.parts > 1)], loops[5:]
    rest = rest[len(parts) :]
    last = len(rest) - len(step.terms)
    reduced, inside = rest[:last], rest[last:]
    schedule.reorder(*reduced, *of_tile, vectors, channels, *parts, *inside)
    steps, tile = (
        math.prod(int(schedule.get(loop).extent) for loop in loops) for loops in (reduced, [*of_tile, vectors])
    )
    written_out = step.is_written_out(steps, tile)
    counted = 0 if written_out else 3  # bytes that are added for one weight are the fourth
    for loop in (*reduced[counted:], *of_tile, vectors):
        schedule.unroll(loop)
    zero = schedule.decompose_reduction(sums, reduced[0])
    schedule.set_scope(sums, 0, "local")
    schedule.tensorize(channels, name)
    *around, last = schedule.get_loops(zero)
    schedule.vectorize(last)
    for loop in around[-3 - len(parts) :]:
        schedule.unroll(loop)
    return written_out


def _join(kernel: Kernel, step: Step) -> None:
    """Add the parts of a tile's sums, in registers."""
    schedule, joined = kernel.schedule, kernel.block(JOINED)
    schedule.set_scope(joined, 0, "local")
    *around, channels = schedule.get_loops(joined)
    for loop in around[-3:]:
        schedule.unroll(loop)
    schedule.tensorize(channels, joining_intrinsic(step))

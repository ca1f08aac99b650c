"""Winograd's convolutions: bands of tiles are transformed, multiplied and transformed back in one task.

Both transforms run over vectors of channels, with everything else unrolled: the matrices' zeros and ones then vanish.
"""

from __future__ import annotations

import math
from typing import Any

from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.configuration import Winograd
from edgedeploy.compile.backends.cpu.tiles import written_out
from edgedeploy.compile.backends.cpu.traffic import LINE
from edgedeploy.compile.ir.types import bytes_of, lanes_for
from edgedeploy.compile.schedules.kernel import Kernel, pack
from edgedeploy.compile.tiles import divisors, vector_length
from edgedeploy.target.board import Board

_OPERATIONS = 4  # arithmetic operations of the weights' transform for each value of the result

# Bytes of each value of a tile of transformed weights that are stored one after the other, if there are as many.
_STORED = 8 * LINE


def apply(kernel: Kernel, board: Board) -> None:
    """Schedule the transforms, the products and everything fused with them."""
    schedule, product = kernel.schedule, kernel.block(winograd.PRODUCT)
    lanes = kernel.lanes(product, board)
    plan = kernel.chosen(Winograd)
    tile, size, shared = plan.product, plan.size, plan.shared
    pack(kernel, product, tile.channels)
    inputs = kernel.extents(product)[-1]

    *first, last = kernel.after(winograd.PRODUCT)
    kernel.inline(name for name in first if name != "restore_rows")
    output = kernel.block(last)
    extents = kernel.extents(output)
    batch, row, column, channel = schedule.get_loops(output)
    block, row, row_in = schedule.split(row, [None, plan.band, size])
    column, column_in = schedule.split(column, [None, size])
    channel, channel_in = schedule.split(channel, [None, tile.channels])
    vector, channel_in = schedule.split(channel_in, [None, vector_length(tile.channels, lanes)])
    order = [channel, block] if shared else [block, channel]
    schedule.reorder(batch, *order, row, column, vector, row_in, column_in, channel_in)
    tasks = [batch, channel, block] if shared else [batch, block]
    task = kernel.parallelize(tasks, 2 * math.prod(extents) * winograd.KERNEL**2 * inputs, kernel.rate(product, board))
    _unroll(kernel, [row_in, column_in], channel_in)

    restore = kernel.block("restore_rows")
    schedule.compute_at(restore, vector, preserve_unit_loops=True)
    loops = schedule.get_loops(restore)
    _unroll(kernel, loops[-3:-1], loops[-1])
    schedule.set_scope(restore, 0, "local")

    _multiply(kernel, plan, task, channel, lanes, written_out(inputs, tile, kernel.types(product), board))
    _transform(kernel, task, shared, lanes, board)


def _multiply(kernel: Kernel, plan: Winograd, task: Any, channel: Any, lanes: int, steps: int) -> None:
    """The products of each value of a tile, in register tiles; `task` and `channel` are loops of the output."""
    schedule, product, tile = kernel.schedule, kernel.block(winograd.PRODUCT), plan.product
    store = schedule.cache_write(product, 0, "local")
    if not plan.by_element:
        schedule.compute_at(store, task if plan.shared else channel, preserve_unit_loops=True)
    elif not plan.shared:
        schedule.compute_at(store, task, preserve_unit_loops=True)
    *around, i, j, pixel, channel = schedule.get_loops(store)
    pixel, pixel_in = schedule.split(pixel, [None, tile.columns])
    if plan.by_element:
        channel, channel_in = schedule.split(channel, [None, tile.channels])
        schedule.reorder(channel, pixel, pixel_in, channel_in)
        if plan.shared and kernel.parallel:
            schedule.parallel(schedule.fuse(*around, i, j, channel))
        channel = channel_in
    kernel.unroll_tile([pixel_in, channel], lanes)
    kernel.accumulate(product, pixel, lanes, pixels=1, steps=steps)


def _transform(kernel: Kernel, task: Any, shared: bool, lanes: int, board: Board) -> None:
    schedule = kernel.schedule
    columns, rows = kernel.block("transform_columns"), kernel.block("transform_rows")
    if not shared:
        schedule.compute_at(columns, task, preserve_unit_loops=True)
    band, i, j, pixel, channel = schedule.get_loops(columns)[-5:]
    channel, channel_in = schedule.split(channel, [None, vector_length(kernel.extent(channel), lanes)])
    schedule.reorder(pixel, channel, i, j, channel_in)
    _unroll(kernel, [i, j], channel_in)
    if shared:
        channel = schedule.fuse(band, pixel, channel)
        schedule.parallel(channel)
    schedule.compute_at(rows, channel, preserve_unit_loops=True)
    loops = schedule.get_loops(rows)
    _unroll(kernel, loops[-3:-1], loops[-1])
    schedule.set_scope(rows, 0, "local")
    kernel.pad(kernel.before("transform_rows"), None if shared else task, board)


def _unroll(kernel: Kernel, loops: list[Any], vector: Any) -> None:
    kernel.unroll(loops)
    if kernel.extent(vector) > 1:
        kernel.schedule.vectorize(vector)


def transform_weights(kernel: Kernel, board: Board) -> None:
    """Schedule the transform of weights that runs when a network is loaded: a vector of output channels at a time.

    Kernel elements are read in memory order, transformed on the stack, and stored in the tiles that the products read.
    The values of a tile are far apart there, often in few places of a cache: whole lines of each are stored at a time.
    """
    schedule, rows = kernel.schedule, kernel.block(winograd.WEIGHT_ROWS)
    *between, last = kernel.after(winograd.WEIGHT_ROWS)
    kernel.inline(between)
    values = kernel.block(last)
    *_, inputs, outputs = extents = kernel.extents(values)
    wanted = max(1, _STORED // (outputs * bytes_of(kernel.dtypes(values)[-1])))
    at_once, lanes = max(each for each in divisors(inputs) if each <= wanted), lanes_for(board, "float32")

    *tile, i, j, channel, lane = schedule.get_loops(schedule.cache_write(values, 0, "local"))
    channel, channel_in = schedule.split(channel, [None, at_once])
    schedule.reorder(channel, *tile, i, j, channel_in, lane)
    task = kernel.parallelize([channel], _OPERATIONS * math.prod(extents), kernel.rate(values, board))
    kernel.unroll_tile([channel_in, lane], lanes)

    schedule.compute_at(values, tile[-1] if tile else task, preserve_unit_loops=True)
    *_, i, j, channel, lane = schedule.get_loops(values)
    vector, lane = schedule.split(lane, [None, lanes if outputs % lanes == 0 else outputs])
    schedule.reorder(channel, vector, i, j, lane)
    kernel.unroll_tile([i, j, lane], lanes)
    schedule.compute_at(rows, vector, preserve_unit_loops=True)
    *_, i, j, _, lane = schedule.get_loops(rows)
    kernel.unroll_tile([i, j, lane], lanes)
    schedule.set_scope(rows, 0, "local")

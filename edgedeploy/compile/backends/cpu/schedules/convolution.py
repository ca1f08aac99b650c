"""Dense convolutions in NHWC: a register tile of output pixels x output channels, with packed weights.

The tile's accumulators stay in vector registers over the whole reduction. Weights are packed by tiles of
output channels, so that the innermost loop reads them in order.
"""

from __future__ import annotations

import math
from typing import Any

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Direct
from edgedeploy.compile.backends.cpu.schedules.clipping import pass_over_padding
from edgedeploy.compile.backends.cpu.tiles import written_out
from edgedeploy.compile.layers import Convolution
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel, Packing, pack
from edgedeploy.compile.tiles import Tile
from edgedeploy.compile.types import bytes_of

# Pixels that lie a multiple of CACHE_PAGE bytes apart compete for the same WAYS places of an L1 cache.
CACHE_PAGE = 4096
WAYS = 8
# Copies of such pixels lie one vector more than a multiple of so many bytes apart.
ALIGNED = CACHE_PAGE // 4


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it."""
    schedule, convolution = kernel.schedule, kernel.block(direct.DENSE)
    lanes, data_bytes = kernel.lanes(convolution, board), bytes_of(kernel.types(convolution).data)
    chosen = kernel.chosen(Direct)
    tile, order = chosen.tile, chosen.order
    reduced = kernel.extents(convolution)[4:]
    packing = pack(kernel, convolution, tile.channels)

    padding = kernel.needed_padding(direct.DENSE)
    inputs = kernel.read_shape(convolution, 0)[3]
    output = kernel.output_of(direct.DENSE)
    batch, row, column, channel = schedule.get_loops(output)
    _, height, width, channels = kernel.extents(output)
    row, row_in = schedule.split(row, [None, tile.rows])
    block, row = schedule.split(row, [None, chosen.rows_per_task])
    column, column_in = schedule.split(column, [None, tile.columns])
    channel, channel_in = schedule.split(channel, [None, tile.channels])
    if order.by_channels:
        if not padding and tile.columns > WAYS and inputs * data_bytes % CACHE_PAGE == 0:
            padding = [kernel.copied(convolution, 0)]
        tasks, tiles = [batch, channel, block], [row, column]
    else:
        tasks, tiles = [batch, block], [row, column, channel]
        if order.panel > 1:
            panel, column = schedule.split(column, [None, order.panel])
            tiles = [row, panel, channel, column]
    schedule.reorder(*tasks, *tiles, row_in, column_in, channel_in)
    if order.slices == 1:
        kernel.spread(tasks, tiles, board.cores)
    task = kernel.parallelize(
        tasks, 2 * height * width * channels * math.prod(reduced), kernel.rate(convolution, board)
    )
    kernel.unroll_tile([row_in, column_in, channel_in], lanes)
    types = kernel.types(convolution)
    steps = order.written_out if order.interval else written_out(reduced[-1] // order.slices, tile, types, board)
    if order.slices > 1:
        sums, channels = _accumulate_slices(kernel, convolution, task, tile, order.slices, lanes, steps)
    else:
        sums = convolution
        _, _, channels, *_ = kernel.accumulate_inside(
            convolution, tiles[-1] if tiles else task, 3, lanes, pixels=2, steps=steps
        )
    if order.by_channels:
        for name in padding:
            copy = kernel.block(name)
            schedule.storage_align(copy, 0, 2, ALIGNED // data_bytes, kernel.lanes(copy, board))
        kernel.pad_first(padding, board)
    else:
        kernel.pad_inside(padding, task, board)
    if padding and isinstance(kernel.layer, Convolution) and not kernel.layer.window.padding_value:
        pass_over_padding(kernel, kernel.layer, tile, sums, channels)
    return packing


def _accumulate_slices(
    kernel: Kernel, convolution: Any, task: Any, tile: Tile, slices: int, lanes: int, steps: int
) -> tuple[Any, Any]:
    """Accumulate one row of the kernel, or some of the input channels, after the other over all of a task's pixels.

    Returns:
        The block that sums up the products, and its loop over input channels.
    """
    schedule = kernel.schedule
    part, *reduced = list(schedule.get_loops(convolution)[4:])
    if int(schedule.get(part).extent) != slices:
        row, (part, channel) = part, schedule.split(reduced[-1], [slices, None])
        reduced = [row, *reduced[:-1], channel]
    sums_of_rows = schedule.rfactor(part, 0)
    schedule.compute_at(convolution, task, preserve_unit_loops=True)
    *_, elements, batch, row, column, channel = schedule.get_loops(convolution)
    row, row_in = schedule.split(row, [None, tile.rows])
    column, column_in = schedule.split(column, [None, tile.columns])
    schedule.reorder(elements, batch, row, column, row_in, column_in, channel)
    kernel.unroll_tile([row_in, column_in, channel], lanes)
    count = len(reduced)
    loops = kernel.accumulate_inside(sums_of_rows, column, count, lanes, pixels=2, steps=steps)
    schedule.decompose_reduction(convolution, elements)
    schedule.set_scope(convolution, 0, "local")
    return sums_of_rows, loops[count - 1]

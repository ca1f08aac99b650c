"""Direct convolutions and products of matrices: register tiles of pixels x channels, or rows x columns.

A tile's sums stay in vector registers over the whole reduction, which reads constant weights in their packed order. The
leading dimensions of a product are more rows if the second operand is a matrix, and more tiles if it is a stack.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import sym, tirx
from tvm.s_tir import Schedule

from edgedeploy.compile.backends.cpu.configuration import Direct, Product
from edgedeploy.compile.backends.cpu.schedules import general
from edgedeploy.compile.backends.cpu.statements import replaced
from edgedeploy.compile.backends.cpu.tiles import written_out
from edgedeploy.compile.ir.elementary import POLYNOMIALS
from edgedeploy.compile.ir.types import bytes_of
from edgedeploy.compile.layers import Convolution
from edgedeploy.compile.operators import direct
from edgedeploy.compile.operators.product import MATMUL, PACK
from edgedeploy.compile.schedules import access
from edgedeploy.compile.schedules.kernel import Kernel, pack
from edgedeploy.compile.tiles import Tile
from edgedeploy.target.board import Board

# Pixels a multiple of CACHE_PAGE bytes apart compete for the same WAYS places of an L1 cache.
CACHE_PAGE = 4096
WAYS = 8
ALIGNED = CACHE_PAGE // 4  # copies of such pixels are one vector more than a multiple of so many bytes apart
_FEWEST_SKIPPED = 0.1  # a test before each kernel element is not worth it if it skips less than this part of the steps


def convolution(kernel: Kernel, board: Board) -> None:
    """Schedule a convolution in NHWC and everything fused with it."""
    schedule, sums = kernel.schedule, kernel.block(direct.DENSE)
    types, rate = kernel.types(sums), kernel.rate(sums, board)
    lanes, data_bytes = kernel.lanes(sums, board), bytes_of(types.data)
    chosen = kernel.chosen(Direct)
    tile, order = chosen.tile, chosen.order
    reduced = kernel.extents(sums)[4:]
    pack(kernel, sums, tile.channels)

    padding = kernel.needed_padding(direct.DENSE)
    inputs = kernel.read_shape(sums, 0)[3]
    output = kernel.output_of(direct.DENSE)
    batch, row, column, channel = schedule.get_loops(output)
    _, *extents = kernel.extents(output)
    row, row_in = schedule.split(row, [None, tile.rows])
    block, row = schedule.split(row, [None, chosen.rows_per_task])
    column, column_in = schedule.split(column, [None, tile.columns])
    channel, channel_in = schedule.split(channel, [None, tile.channels])
    if order.by_channels:
        if not padding and tile.columns > WAYS and inputs * data_bytes % CACHE_PAGE == 0:
            padding = [str(schedule.get(schedule.cache_read(sums, 0, "global")).name_hint)]
        tasks, tiles = [batch, channel, block], [row, column]
    else:
        tasks, tiles = [batch, block], [row, column, channel]
        if order.panel > 1:
            panel, column = schedule.split(column, [None, order.panel])
            tiles = [row, panel, channel, column]
    schedule.reorder(*tasks, *tiles, row_in, column_in, channel_in)
    if order.slices == 1:
        kernel.spread(tasks, tiles, board.cores)
    task = kernel.parallelize(tasks, 2 * math.prod([*extents, *reduced]), rate)
    kernel.unroll_tile([row_in, column_in, channel_in], lanes)
    steps = order.written_out if order.interval else written_out(reduced[-1] // order.slices, tile, types, board)
    if order.slices > 1:
        sums, channels = _accumulate_slices(kernel, sums, task, tile, order.slices, lanes, steps)
    else:
        sums, loops = kernel.accumulate(sums, tiles[-1] if tiles else task, lanes, pixels=2, steps=steps)
        channels = loops[min(2, len(loops) - 1)]
    if order.by_channels:
        for name in padding:
            copy = kernel.block(name)
            schedule.storage_align(copy, 0, 2, ALIGNED // data_bytes, kernel.lanes(copy, board))
    kernel.pad(padding, None if order.by_channels else task, board)
    if padding and isinstance(kernel.layer, Convolution) and not kernel.layer.window.padding_value:
        _skip_padding(kernel, kernel.layer, tile, sums, channels)


def _accumulate_slices(
    kernel: Kernel, sums: Any, task: Any, tile: Tile, slices: int, lanes: int, steps: int
) -> tuple[Any, Any]:
    """Sum up slices one by one over all of a task's pixels; returns the block of products, and its loop over inputs."""
    schedule = kernel.schedule
    part, *reduced = list(schedule.get_loops(sums)[4:])
    if kernel.extent(part) != slices:
        row, (part, channel) = part, schedule.split(reduced[-1], [slices, None])
        reduced = [row, *reduced[:-1], channel]
    sums_of_parts = schedule.rfactor(part, 0)
    schedule.compute_at(sums, task, preserve_unit_loops=True)
    *_, elements, batch, row, column, channel = schedule.get_loops(sums)
    row, row_in = schedule.split(row, [None, tile.rows])
    column, column_in = schedule.split(column, [None, tile.columns])
    schedule.reorder(elements, batch, row, column, row_in, column_in, channel)
    kernel.unroll_tile([row_in, column_in, channel], lanes)
    loops = kernel.accumulate_inside(sums_of_parts, column, len(reduced), lanes, pixels=2, steps=steps)
    schedule.decompose_reduction(sums, elements)
    schedule.set_scope(sums, 0, "local")
    return sums_of_parts, loops[len(reduced) - 1]


def skipped(layer: Convolution, tile: Tile) -> float:
    """The part of a layer's steps that reads nothing but padding, tile by tile, as in atrous convolutions."""
    read = 1.0
    for axis, size in enumerate((tile.rows, tile.columns)):
        count, window = layer.size[axis], layer.window
        first = [
            begin * window.strides[axis] + element * window.dilation[axis] - window.padding[axis]
            for begin in range(0, count, size)
            for element in range(window.kernel[axis])
        ]
        reach = (size - 1) * window.strides[axis]
        read *= sum(place + reach >= 0 and place < layer.data[1 + axis] for place in first) / len(first)
    return 1 - read


def _skip_padding(kernel: Kernel, layer: Convolution, tile: Tile, sums: Any, channels: Any) -> None:
    """Skip kernel elements that meet only padding in a tile, by a condition around `channels`; the last step."""
    if skipped(layer, tile) < _FEWEST_SKIPPED:
        return
    schedule, window = kernel.schedule, layer.window
    block, wanted = schedule.get(sums), schedule.get(channels).loop_var
    names = [str(each.var.name).removeprefix("v").removeprefix("_") for each in block.iter_vars]

    def guarded(loop: Any) -> Any:
        if not isinstance(loop, tirx.For) or not loop.loop_var.same_as(wanted):
            return loop
        tile_loops, realise = [], loop.body
        while isinstance(realise, tirx.For):
            tile_loops.append(realise)
            realise = realise.body
        values = dict(zip(names, realise.iter_values, strict=True))
        if not values.keys() >= {"ry", "rx"}:
            return loop  # short sums of half precision are over several kernel elements
        met = []
        for axis, (pixel, element) in enumerate((("y", "ry"), ("x", "rx"))):
            *steps, first = sym.detect_linear_equation(values[pixel], [each.loop_var for each in tile_loops])
            reach = sum(int(step) * (int(each.extent) - 1) for step, each in zip(steps, tile_loops, strict=True))
            place = first * window.strides[axis] + values[element] * window.dilation[axis] - window.padding[axis]
            met += [place + reach * window.strides[axis] >= 0, place < layer.data[1 + axis]]
        return tirx.IfThenElse(tirx.all(*met), loop, None)

    function = schedule.mod["main"]
    kernel.schedule = Schedule(function.with_body(replaced(function.body, guarded)))


def matmul(kernel: Kernel, board: Board) -> None:
    """Schedule a product and everything fused with it; vectors run over the columns."""
    schedule, product = kernel.schedule, kernel.block(MATMUL)
    extents, lanes = kernel.extents(product), kernel.lanes(product, board)
    chosen = kernel.chosen(Product)
    if len(extents) == 3:
        pack(kernel, product, chosen.columns)
    if PACK in kernel.before(MATMUL):
        general.schedule_elementwise(kernel, PACK, board)

    output = kernel.output_of(MATMUL)
    *stack, row, column = kernel.result_loops(MATMUL, output)
    row, row_in = schedule.split(row, [None, chosen.rows])
    column, column_in = schedule.split(column, [None, chosen.columns])
    schedule.reorder(*stack, column, row, row_in, column_in)
    task = kernel.parallelize([*stack, column, row], 2 * math.prod(extents), kernel.rate(product, board))
    sums, _ = kernel.accumulate(product, task, lanes, pixels=1)
    # Short sums are added up in memory. Before elementary functions that are written out for each row, LLVM would keep
    # the sums of products in memory, too.
    looped = sums is not product and access.calls(schedule.get(output), POLYNOMIALS)
    kernel.unroll_tile([column_in] if looped else [row_in, column_in], lanes)

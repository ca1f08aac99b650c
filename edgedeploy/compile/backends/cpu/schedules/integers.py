"""Convolutions and products of integers: a tile of sums in registers, whose innermost block is an inner step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlockRealize, Schedule

from edgedeploy.compile.backends.cpu.configuration import Steps
from edgedeploy.compile.backends.cpu.integers import COPY, JOINED, SUMS, is_in_one_row, pixels
from edgedeploy.compile.backends.cpu.statements import replaced, with_block
from edgedeploy.compile.backends.cpu.step_code import intrinsic, joining_intrinsic
from edgedeploy.compile.backends.cpu.steps import WORD, Step, step_of
from edgedeploy.compile.layers import Convolution, Dense
from edgedeploy.compile.operators.direct import CROP
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.target.board import Board

RESULTS = 16  # results that are computed from sums together: a whole register of bytes


def apply(kernel: Kernel, board: Board) -> None:
    """Schedule the sums and everything fused with them; the weights were packed with the form."""
    chosen, read = kernel.chosen(Steps), kernel.dtypes(kernel.block(SUMS))[0]
    tile, step, words = chosen.tile, step_of(read, chosen.vector, chosen.depth, board), read == WORD
    begin_with_bias(kernel, SUMS, lambda n, y, x, vector, channel: vector * step.channels + channel)
    schedule, sums = kernel.schedule, kernel.block(SUMS)
    operations = 2 * math.prod(kernel.extents(sums))

    last = SUMS if step.parts == 1 else JOINED
    *maps, column, channel = _result_loops(kernel, kernel.block(last), kernel.output_of(last))
    is_cropped = kernel.extent(column) % tile.columns > 0
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
        kernel.pad([COPY], None if chosen.by_channels else task, board, flat=_is_flat(kernel, board))
        if words:
            kernel.partition(schedule.get_loops(kernel.block(COPY))[-2])
    written_out = _accumulate(kernel, sums, step, intrinsic(step, words))
    if written_out and is_cropped and any(loop.same_as(column) for loop in tiles):
        kernel.partition(column)  # conditions would keep the results of whole tiles apart, too
    if step.parts > 1:
        joined = kernel.block(JOINED)
        schedule.set_scope(joined, 0, "local")
        *around, channels = schedule.get_loops(joined)
        kernel.unroll(around[-3:])
        schedule.tensorize(channels, joining_intrinsic(step))


def _result_loops(kernel: Kernel, sums: Any, output: Any) -> list[Any]:
    """The loops over feature maps, rows, columns and channels; of a product over columns, its rows, and channels."""
    extents, (batch, rows, *_) = kernel.extents(output), kernel.extents(sums)
    if not (len(extents) == 4 and extents[0] == batch and extents[1] <= rows):
        kernel.ravel_rows(sums, output)
    return list(kernel.schedule.get_loops(output))


def _is_flat(kernel: Kernel, board: Board) -> bool:
    """Whether rows in NHWC are copied as they are, without padding and groups."""
    layer, block = kernel.layer, kernel.schedule.get(kernel.block(COPY))
    if not isinstance(layer, Convolution | Dense) or not isinstance(block.body.value, tirx.Cast):
        return False
    _, _, columns, groups, _ = kernel.extents(kernel.block(COPY))
    in_rows = isinstance(layer, Convolution) and not is_in_one_row(layer, board)
    width = layer.data[2] if in_rows else pixels(layer, board)[1]
    return groups == 1 and columns == width


def _accumulate(kernel: Kernel, sums: Any, step: Step, name: str) -> bool:
    """Put steps around the tile's pixels and vectors; returns whether all of them are written out."""
    schedule = kernel.schedule
    loops = schedule.get_loops(sums)[-len(schedule.get(sums).iter_vars) :]
    first = 5 + (step.parts > 1)
    (_, *of_tile, vectors, channels), parts, rest = loops[:5], loops[5:first], loops[first:]
    last = len(rest) - len(step.terms)
    reduced, inside = rest[:last], rest[last:]
    schedule.reorder(*reduced, *of_tile, vectors, channels, *parts, *inside)
    steps, tile = (math.prod(map(kernel.extent, loops)) for loops in (reduced, [*of_tile, vectors]))
    written_out = step.is_written_out(steps, tile)
    counted = 0 if written_out else 3  # bytes that are added for one weight are the fourth
    kernel.unroll([*reduced[counted:], *of_tile, vectors])
    zero = schedule.decompose_reduction(sums, reduced[0])
    schedule.set_scope(sums, 0, "local")
    schedule.tensorize(channels, name)
    *around, last = schedule.get_loops(zero)
    schedule.vectorize(last)
    kernel.unroll(around[-3 - len(parts) :])
    return written_out


def begin_with_bias(kernel: Kernel, anchor: str, channel: Callable[..., Any]) -> None:
    """Start sums with a parameter of one value per channel that is added later: one instruction less per vector.

    int32 sums wrap, so that the order of their terms changes nothing. Not for sums of pairs (`pairs`): LLVM adds their
    few terms to each other first, which one more would hinder. It comes before any scheduling. The anchor's dimensions
    from the fourth on are channels; `channel` takes the indices of a sum to its channel.
    """
    found = _addition(kernel, anchor)
    if found is None:
        return
    adding, sums, bias = found

    def changed(statement: Any) -> Any:
        if not isinstance(statement, SBlockRealize):
            return statement
        block, init = statement.block, statement.block.init
        if block.name_hint == anchor:
            place = [0] * (len(bias.ty.shape) - 1) + [channel(*init.indices)]
            begins = tirx.BufferStore(init.buffer, tirx.BufferLoad(bias, place), init.indices)
            return with_block(statement, block.body, begins)
        if block.name_hint == adding:
            return with_block(statement, tirx.BufferStore(block.body.buffer, sums, block.body.indices), init)
        return statement

    function = kernel.schedule.mod["main"]
    kernel.schedule = Schedule(function.with_body(replaced(function.body, changed)))


def _addition(kernel: Kernel, anchor: str) -> tuple[str, Any, Any] | None:
    """The name of the block that adds a bias to the sums, or to the cropped sums; how it reads them, and the bias.

    None if others read them too.
    """
    schedule, block = kernel.schedule, kernel.block(anchor)
    channels = math.prod(int(size) for size in schedule.get(block).writes[0].source.ty.shape[3:])
    readers = schedule.get_consumers(block)
    if len(readers) == 1 and schedule.get(readers[0]).name_hint == CROP:
        [block] = readers
        readers = schedule.get_consumers(block)
    if len(readers) != 1:
        return None
    [adding] = readers
    store, buffer = schedule.get(adding).body, schedule.get(block).writes[0].source
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        return None
    sums, bias = store.value.a, store.value.b
    if not all(isinstance(each, TensorLoad) for each in (sums, bias)) or not sums.source.same_as(buffer):
        return None
    *others, last = (int(size) for size in bias.source.ty.shape)
    if last != channels or math.prod(others) != 1 or not bias.indices[-1].same_as(store.indices[-1]):
        return None
    is_parameter = any(bias.source.same_as(each) for each in kernel.function.params)
    return (str(schedule.get(adding).name_hint), sums, bias.source) if is_parameter else None

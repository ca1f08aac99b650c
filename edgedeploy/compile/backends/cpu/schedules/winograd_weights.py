"""Winograd's transform of weights, when a network is loaded: a vector of output channels at a time.

Kernel elements are read as they lie, transformed on the stack, and stored in the tiles that the products read. The
values of a tile lie far apart there, often in few places of a cache: of each, whole lines are stored at a time.
"""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu import winograd
from edgedeploy.compile.backends.cpu.tiles import LINE_BYTES
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import divisors
from edgedeploy.compile.types import bytes_of, lanes_for

# Arithmetic operations for each value of the result.
_OPERATIONS = 4

# Bytes of each value of a tile that are stored one after the other, at least if there are as many.
_STORED = 8 * LINE_BYTES


def matches(kernel: Kernel) -> bool:
    """Weights that are transformed."""
    return winograd.WEIGHT_ROWS in kernel.names


def apply(kernel: Kernel, board: Board) -> None:
    """Schedule the transform and the packing that follows it."""
    schedule, rows = kernel.schedule, kernel.block(winograd.WEIGHT_ROWS)
    *between, last = kernel.after(winograd.WEIGHT_ROWS)
    kernel.inline(between)
    values = kernel.block(last)
    *_, inputs, outputs = extents = kernel.extents(values)
    wanted = max(1, _STORED // (outputs * bytes_of(kernel.dtypes(values)[-1])))
    at_once, lanes = max(each for each in divisors(inputs) if each <= wanted), lanes_for(board, "float32")

    store = schedule.cache_write(values, 0, "local")
    *tile, i, j, channel, lane = schedule.get_loops(store)
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

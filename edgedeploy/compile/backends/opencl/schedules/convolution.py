"""Dense convolutions in NHWC on an OpenCL device: a work-item computes a tile of pixels x channels."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.opencl.configuration import WorkItem
from edgedeploy.compile.backends.opencl.schedules.general import elementwise
from edgedeploy.compile.backends.opencl.threads import bind
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel, Packing, pack


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; padding is a kernel of its own.

    Weights are packed so that those which a work-group's work-items read in a step lie side by side.
    """
    schedule = kernel.schedule
    convolution = kernel.block(direct.DENSE)
    chosen = kernel.configuration
    assert isinstance(chosen, WorkItem)
    tile, group, reduced = chosen.tile, chosen.group, kernel.extents(convolution)[4:]
    packing = pack(kernel, convolution, group.channels * tile.channels)
    padding = kernel.needed_padding(direct.DENSE)
    output = kernel.output_of(direct.DENSE)
    extents = kernel.extents(output)
    batch, row, column, channel = schedule.get_loops(output)
    row, row_in = schedule.split(row, [None, tile.rows])
    column, column_in = schedule.split(column, [None, tile.columns])
    channel, channel_in = schedule.split(channel, [None, tile.channels])
    schedule.reorder(batch, row, column, channel, row_in, column_in, channel_in)
    kernel.operations += 2 * math.prod(extents) * math.prod(reduced)
    item = bind(kernel, [batch, row, column, channel], [1, group.rows, group.columns, group.channels])
    kernel.vectorize(channel_in, chosen.vector, unroll=True)
    schedule.unroll(row_in)
    schedule.unroll(column_in)
    kernel.accumulate_inside(convolution, item, 3, chosen.vector, pixels=2)
    for name in padding:
        elementwise(kernel, name, board)
    return packing

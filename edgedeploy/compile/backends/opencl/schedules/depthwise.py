"""Depthwise convolutions in NHWC on an OpenCL device: a work-item filters some pixels of a vector of channels."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.opencl.configuration import WorkItem
from edgedeploy.compile.backends.opencl.threads import bind
from edgedeploy.compile.operators import direct
from edgedeploy.compile.schedules.kernel import Kernel, Packing


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the convolution and everything fused with it; every kernel element asks whether it is padding."""
    schedule = kernel.schedule
    convolution = kernel.block(direct.DEPTHWISE)
    chosen = kernel.configuration
    assert isinstance(chosen, WorkItem)
    group, elements = chosen.group, kernel.extents(convolution)[-2:]
    kernel.inline(kernel.before(direct.DEPTHWISE))
    output = kernel.output_of(direct.DEPTHWISE)
    extents = kernel.extents(output)
    batch, row, column, channel = schedule.get_loops(output)
    column, column_in = schedule.split(column, [None, chosen.tile.columns])
    channel, channel_in = schedule.split(channel, [None, chosen.tile.channels])
    schedule.reorder(batch, row, column, channel, column_in, channel_in)
    kernel.operations += 2 * math.prod(extents) * math.prod(elements)
    item = bind(kernel, [batch, row, column, channel], [1, group.rows, group.columns, group.channels])
    kernel.vectorize(channel_in, chosen.vector, unroll=True)
    schedule.unroll(column_in)
    kernel.accumulate_inside(convolution, item, 2, chosen.vector, pixels=1)
    return None

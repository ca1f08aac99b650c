"""Products of matrices on an OpenCL device: a work-item computes some rows of a vector of columns."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.opencl.configuration import WorkItem
from edgedeploy.compile.backends.opencl.strategy import product_on_device
from edgedeploy.compile.backends.opencl.threads import bind, device_of
from edgedeploy.compile.schedules.kernel import Kernel, Packing


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the product and everything fused with it."""
    schedule = kernel.schedule
    anchor = kernel.anchor()
    assert anchor is not None
    product = kernel.block(anchor)
    extents = kernel.extents(product)
    if kernel.configuration is None:  # a product of two activations
        dtype, stack = kernel.types(product).accumulator, math.prod(extents[:-3])
        kernel.configuration = product_on_device(extents[-3], extents[-2], dtype, device_of(board), stack)
    chosen = kernel.configuration
    assert isinstance(chosen, WorkItem)
    tile, group = chosen.tile, chosen.group
    output = kernel.output_of(anchor)
    *stack, row, column = schedule.get_loops(output)
    row, row_in = schedule.split(row, [None, tile.columns])
    column, column_in = schedule.split(column, [None, tile.channels])
    schedule.reorder(*stack, row, column, row_in, column_in)
    kernel.operations += 2 * math.prod(extents)
    item = bind(kernel, [*stack, row, column], [*([1] * len(stack)), group.columns, group.channels])
    kernel.vectorize(column_in, chosen.vector, unroll=True)
    schedule.unroll(row_in)
    kernel.accumulate_inside(product, item, 1, chosen.vector, pixels=1)
    return None

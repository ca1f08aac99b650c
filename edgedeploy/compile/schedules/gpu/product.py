"""Products of matrices on an OpenCL device: a work-item computes some rows of a vector of columns."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.configuration import Product
from edgedeploy.compile.schedules import matmul
from edgedeploy.compile.schedules.gpu.threads import bind, device_of
from edgedeploy.compile.schedules.gpu.tiles import product_rows
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import vector_length

matches = matmul.matches


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the product and everything fused with it."""
    schedule, lanes = kernel.schedule, device_of(board).vector
    anchor = kernel.anchor()
    assert anchor is not None
    product = kernel.block(anchor)
    extents = kernel.extents(product)
    if kernel.configuration is None:  # a product of two activations
        rows, columns = product_rows(extents[-3], device_of(board)), vector_length(extents[-2], lanes)
        kernel.configuration = Product(whole=extents[-2], rows=rows, columns=columns)
    chosen = kernel.configuration
    assert isinstance(chosen, Product)
    output = kernel.output_of(anchor)
    *stack, row, column = schedule.get_loops(output)
    row, row_in = schedule.split(row, [None, chosen.rows])
    column, column_in = schedule.split(column, [None, chosen.columns])
    schedule.reorder(*stack, row, column, row_in, column_in)
    kernel.operations += 2 * math.prod(extents)
    item = bind(kernel, [*stack, row, column], board)
    kernel.vectorize(column_in, lanes, unroll=True)
    schedule.unroll(row_in)
    kernel.accumulate_inside(product, item, 1, lanes, pixels=1)
    return None

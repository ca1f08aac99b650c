"""Products of matrices: a register tile of rows x columns, vectors over the columns.

Leading dimensions, as attention has them, are more rows where the second matrix is one, else more tiles.
"""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Product
from edgedeploy.compile.backends.cpu.schedules import general
from edgedeploy.compile.operators.product import PACK
from edgedeploy.compile.schedules.kernel import Kernel, Packing, pack


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the product and everything fused with it; a matrix of constants is packed by tiles of columns."""
    schedule = kernel.schedule
    anchor = kernel.anchor()
    assert anchor is not None
    product = kernel.block(anchor)
    extents, lanes = kernel.extents(product), kernel.lanes(product, board)
    chosen = kernel.chosen(Product)
    packing = pack(kernel, product, chosen.columns) if len(extents) == 3 else None
    if PACK in kernel.before(anchor):
        general.schedule_elementwise(kernel, PACK, board)

    *stack, row, column = kernel.result_loops(anchor, kernel.output_of(anchor))
    row, row_in = schedule.split(row, [None, chosen.rows])
    column, column_in = schedule.split(column, [None, chosen.columns])
    schedule.reorder(*stack, column, row, row_in, column_in)
    task = kernel.parallelize([*stack, column, row], 2 * math.prod(extents), kernel.rate(product, board))
    kernel.unroll_tile([row_in, column_in], lanes)
    kernel.accumulate_inside(product, task, 1, lanes, pixels=1)
    return packing

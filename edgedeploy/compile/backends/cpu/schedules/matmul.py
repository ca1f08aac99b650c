"""Products of matrices: a register tile of rows x columns, vectors over the columns.

Leading dimensions, as attention has them, are more tiles.
"""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.cpu.configuration import Product
from edgedeploy.compile.backends.cpu.tiles import choose_product_tile
from edgedeploy.compile.schedules.kernel import Kernel, Packing, pack


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the product and everything fused with it; a matrix of constants is packed by tiles of columns."""
    schedule = kernel.schedule
    anchor = kernel.anchor()
    assert anchor is not None
    product = kernel.block(anchor)
    extents, lanes = kernel.extents(product), kernel.lanes(product, board)
    if kernel.configuration is None:  # a product of two activations
        tile_rows, tile_columns = choose_product_tile(extents[-3], extents[-2], kernel.types(product), board)
        kernel.configuration = Product(whole=extents[-2], rows=tile_rows, columns=tile_columns)
    chosen = kernel.chosen(Product)
    packing = pack(kernel, product, chosen.columns)

    output = kernel.output_of(anchor)
    *stack, row, column = schedule.get_loops(output)
    row, row_in = schedule.split(row, [None, chosen.rows])
    column, column_in = schedule.split(column, [None, chosen.columns])
    schedule.reorder(*stack, column, row, row_in, column_in)
    task = kernel.parallelize([*stack, column, row], 2 * math.prod(extents))
    kernel.unroll_tile([row_in, column_in], lanes)
    kernel.accumulate_inside(product, task, 1, lanes, pixels=1)
    return packing

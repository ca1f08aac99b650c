"""Products of a matrix with constant weights, as fully connected layers are: vectors run over the columns."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import lanes_for, vector_length


def matches(kernel: Kernel) -> bool:
    """A product of two matrices, with whatever elementwise work follows."""
    anchor = kernel.anchor()
    if anchor is None or not anchor.startswith("matmul") or kernel.before(anchor):
        return False
    return len(kernel.extents(kernel.block(anchor))) == 3 and all(
        len(kernel.extents(kernel.block(name))) == 2 for name in kernel.after(anchor)
    )


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule the product and everything fused with it; nothing is re-laid."""
    schedule, lanes = kernel.schedule, lanes_for(board)
    anchor = kernel.anchor()
    assert anchor is not None
    product = kernel.block(anchor)
    extents = kernel.extents(product)
    columns = extents[1]
    length = vector_length(columns, lanes)
    vectors = next(count for count in (8, 4, 2, 1) if columns % (count * length) == 0)

    kernel.tile = f"{vectors * length} columns"

    output = kernel.output_of(anchor)
    row, column = schedule.get_loops(output)[:2]
    column, column_in = schedule.split(column, [None, vectors * length])
    task = kernel.parallelize([row, column], 2 * math.prod(extents))
    kernel.vectorize(column_in, lanes, unroll=True)
    kernel.accumulate_inside(product, task, 1, lanes)
    return None

"""Softmax and norms along rows: vectors of partial sums, rows on all threads."""

from __future__ import annotations

from tvm.s_tir import Schedule

from edgedeploy.board import Board
from edgedeploy.compile.operators.rows import ROWS_ATTRIBUTE, Rows, write
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import is_worth_threads
from edgedeploy.compile.types import lanes_for


def matches(kernel: Kernel) -> bool:
    """A function that says which operator on rows it computes."""
    return ROWS_ATTRIBUTE in (kernel.function.attrs or {})


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Write the operator anew for the board."""
    operator = Rows.model_validate_json(str(kernel.function.attrs[ROWS_ATTRIBUTE]))
    lanes = min(lanes_for(board, "float32"), 1 << operator.columns.bit_length() - 1)
    kernel.operations = operator.operations
    kernel.parallel = is_worth_threads(operator.operations, lanes) and operator.rows > 1
    kernel.schedule = Schedule(write(operator, lanes, parallel=kernel.parallel))
    return None

"""Frames of cameras that become a network's input: rows on all threads, sums of pixels by whole vectors."""

from __future__ import annotations

from tvm.s_tir import Schedule

from edgedeploy.board import Board
from edgedeploy.compile.operators.preparation import PREPARATION_ATTRIBUTE, operations, write
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import is_worth_threads
from edgedeploy.compile.types import lanes_for
from edgedeploy.vision.camera import Preparation


def matches(kernel: Kernel) -> bool:
    """A function that says which preparation it is."""
    return PREPARATION_ATTRIBUTE in (kernel.function.attrs or {})


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Write the preparation anew for the board."""
    preparation = Preparation.model_validate_json(str(kernel.function.attrs[PREPARATION_ATTRIBUTE]))
    lanes = lanes_for(board, "int16")  # of levels between the axes
    kernel.operations = operations(preparation)
    kernel.parallel = is_worth_threads(kernel.operations, lanes)
    kernel.schedule = Schedule(write(preparation, lanes, parallel=kernel.parallel))
    return None

"""Everything else on an OpenCL device: pools, means, softmax, resize, concat, transposes, elementwise chains."""

from __future__ import annotations

import math
from typing import Any

from tvm.tirx import AttrStmt, For, SeqStmt

from edgedeploy.board import Board
from edgedeploy.compile.schedules.access import fuse_contiguous
from edgedeploy.compile.schedules.general import schedule_blocks
from edgedeploy.compile.schedules.gpu.threads import bind_all, device_of
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import vector_length
from edgedeploy.errors import UnsupportedError


def matches(kernel: Kernel) -> bool:
    """Any function."""
    return True


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule block by block, each as a kernel of its own."""
    schedule_blocks(kernel, board, _reduction, elementwise)
    return None


def elementwise(kernel: Kernel, name: str, board: Board) -> None:
    """A work-item computes one vector of a block's values."""
    schedule, block = kernel.schedule, kernel.block(name)
    if not schedule.get(block).iter_vars:
        _require_kernels(kernel, block)
        return
    kernel.operations += math.prod(kernel.extents(block))
    if not schedule.get_loops(block):
        schedule.add_unit_loop(block)
    fuse_contiguous(kernel, block)
    *outer, inner = schedule.get_loops(block)
    bind_all(kernel, [*outer, kernel.vectorize(inner, device_of(board).vector)], board)


def _require_kernels(kernel: Kernel, block: Any) -> None:
    """Leave alone what TVM itself wrote as kernels, as scattering.

    Raises:
        UnsupportedError: it is code for a CPU, which cannot reach the device's memory.
    """
    found = kernel.schedule.get(block)
    if not _launches(found.body):
        raise UnsupportedError(f"there is no schedule for {found.name_hint} on OpenCL devices")


def _launches(statement: Any) -> bool:
    """Whether all of a statement is done by work-items."""
    if isinstance(statement, SeqStmt):
        return all(map(_launches, statement.seq))
    if isinstance(statement, AttrStmt) and statement.attr_key == "thread_extent":
        return True
    return isinstance(statement, (AttrStmt, For)) and _launches(statement.body)


def _reduction(kernel: Kernel, name: str, board: Board) -> None:
    """A work-item sums up a vector of values over the last spatial dimension."""
    schedule, block = kernel.schedule, kernel.block(name)
    kernel.operations += math.prod(kernel.extents(block))
    kinds = [int(variable.iter_type) for variable in schedule.get(block).iter_vars]
    loops = schedule.get_loops(block)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == 0]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != 0]
    if not spatial:
        spatial = [schedule.add_unit_loop(loops[0])]
    length = vector_length(int(schedule.get(spatial[-1]).extent), device_of(board).vector)
    last, vector = schedule.split(spatial[-1], [None, length])
    schedule.reorder(*spatial[:-1], last, *reduced, vector)
    if length > 1:
        schedule.vectorize(vector)
    bind_all(kernel, [*spatial[:-1], last], board)
    schedule.decompose_reduction(block, reduced[0])

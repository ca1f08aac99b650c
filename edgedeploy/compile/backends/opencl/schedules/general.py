"""Everything else on an OpenCL device: pools, means, softmax, resize, concat, transposes, elementwise chains."""

from __future__ import annotations

import math

from edgedeploy.board import Board
from edgedeploy.compile.backends.opencl.threads import bind_all, device_of, vector_width
from edgedeploy.compile.schedules.access import fuse_contiguous
from edgedeploy.compile.schedules.blocks import schedule_blocks
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import vector_length


def matches(kernel: Kernel) -> bool:
    """Any function of blocks with loops; what TVM writes in another way, as scattering, is one block of code."""

    def has_loops(name: str) -> bool:
        block = kernel.block(name)
        if kernel.is_reduction(name):
            return bool(kernel.spatial_and_reduced(block, kernel.schedule.get_loops(block))[1])
        return bool(kernel.schedule.get(block).iter_vars)

    return all(map(has_loops, kernel.names))


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule block by block, each as a kernel of its own."""
    schedule_blocks(kernel, board, _reduction, elementwise)
    return None


def elementwise(kernel: Kernel, name: str, board: Board) -> None:
    """A work-item computes one vector of a block's values."""
    schedule, block = kernel.schedule, kernel.block(name)
    kernel.operations += math.prod(kernel.extents(block))
    if not schedule.get_loops(block):
        schedule.add_unit_loop(block)
    vector = vector_width(device_of(board), kernel.widest(block))
    fuse_contiguous(kernel, block)
    *outer, inner = schedule.get_loops(block)
    bind_all(kernel, [*outer, kernel.vectorize(inner, vector)], board)


def _reduction(kernel: Kernel, name: str, board: Board) -> None:
    """A work-item sums up a vector of values over the last spatial dimension."""
    schedule, block = kernel.schedule, kernel.block(name)
    kernel.operations += math.prod(kernel.extents(block))
    spatial, reduced = kernel.spatial_and_reduced(block, schedule.get_loops(block))
    if not spatial:
        spatial = [schedule.add_unit_loop(reduced[0])]
    length = vector_length(int(schedule.get(spatial[-1]).extent), vector_width(device_of(board), kernel.widest(block)))
    last, vector = schedule.split(spatial[-1], [None, length])
    schedule.reorder(*spatial[:-1], last, *reduced, vector)
    if length > 1:
        schedule.vectorize(vector)
    bind_all(kernel, [*spatial[:-1], last], board)
    schedule.decompose_reduction(block, reduced[0])

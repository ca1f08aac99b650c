"""Everything else: pools, means, softmax, resize, concat, transposes, elementwise chains.

Blocks with one consumer are computed where they are used. Each block that is left is spread over the
threads and vectorised over its innermost dimension; sums and maxima keep their accumulators in registers.
"""

from __future__ import annotations

import math
from typing import Any

from tvm.s_tir import ScheduleError

from edgedeploy.board import Board
from edgedeploy.compile.schedules.kernel import Kernel, Packing
from edgedeploy.compile.tiles import lanes_for, vector_length


def matches(kernel: Kernel) -> bool:
    """Any function."""
    return True


def apply(kernel: Kernel, board: Board) -> Packing | None:
    """Schedule block by block; nothing is re-laid."""
    _inline_single_uses(kernel)
    for name in _remaining(kernel):
        if kernel.is_reduction(name):
            _schedule_reduction(kernel, name, board)
        else:
            _schedule_elementwise(kernel, kernel.block(name), board)
    return None


def _remaining(kernel: Kernel) -> list[str]:
    root = kernel.schedule.get_sblock("root")
    return [kernel.schedule.get(block).name_hint for block in kernel.schedule.get_child_blocks(root)]


def _inline_single_uses(kernel: Kernel) -> None:
    """Inline what one other block reads: nothing is computed twice by that, except inside a window."""
    schedule = kernel.schedule
    for name in kernel.names:
        block = kernel.block(name)
        if kernel.is_reduction(name) or len(schedule.get_consumers(block)) != 1:
            continue
        try:
            schedule.compute_inline(block)
        except ScheduleError:
            continue


def _schedule_elementwise(kernel: Kernel, block: Any, board: Board) -> None:
    schedule, lanes = kernel.schedule, lanes_for(board)
    loops, extents = schedule.get_loops(block), kernel.extents(block)
    if not loops:
        return
    elements = math.prod(extents)
    if len(loops) == 1 or (vector_length(extents[-1], lanes) == 1 and vector_length(elements, lanes) > 1):
        # Odd innermost extents: one long loop often turns out contiguous.
        loops = [schedule.fuse(*loops)] if len(loops) > 1 else loops
        outer, inner = schedule.split(loops[0], [None, vector_length(elements, lanes)])
        kernel.parallelize([outer], elements)
        if int(schedule.get(inner).extent) > 1:
            schedule.vectorize(inner)
        return
    kernel.parallelize(list(loops[:-1]), elements)
    kernel.vectorize(schedule.get_loops(block)[-1], lanes)


def _schedule_reduction(kernel: Kernel, name: str, board: Board) -> None:
    """Spatial loops outside, the reduction inside them, vectors over the last spatial dimension."""
    schedule, lanes = kernel.schedule, lanes_for(board)
    block = kernel.block(name)
    kinds = [int(variable.iter_type) for variable in schedule.get(block).iter_vars]
    loops, extents = schedule.get_loops(block), kernel.extents(block)
    if len(kinds) != len(loops):
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == 0]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != 0]
    if not spatial or not reduced:
        return
    length = vector_length(int(schedule.get(spatial[-1]).extent), lanes)
    last, vector = schedule.split(spatial[-1], [None, length])
    schedule.reorder(*spatial[:-1], last, *reduced, vector)
    if length > 1:
        schedule.vectorize(vector)
    kernel.parallelize([*spatial[:-1], last], math.prod(extents))
    schedule.decompose_reduction(block, reduced[0])

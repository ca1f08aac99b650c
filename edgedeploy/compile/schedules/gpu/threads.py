"""Loops as work-items of an OpenCL device."""

from __future__ import annotations

import math
from typing import Any

from edgedeploy.board import Board, OpenCL
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import vector_length


def device_of(board: Board) -> OpenCL:
    """The board's OpenCL device; only boards that have one get here."""
    assert board.opencl is not None
    return board.opencl


def bind(kernel: Kernel, loops: list[Any], board: Board) -> Any:
    """Fuse loops and run them as work-items, in groups of the size that the device likes; returns the fused loop.

    The last loop's neighbours are neighbours in a group. Few work-items make small groups, so that each of the
    device's units gets one.
    """
    schedule, device = kernel.schedule, device_of(board)
    fused = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    items = int(schedule.get(fused).extent)
    size = max(1, min(device.work_group, 1 << max(0, math.ceil(items / device.units) - 1).bit_length()))
    group, item = schedule.split(fused, [None, size])
    schedule.bind(group, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")
    return item


def vectorise(kernel: Kernel, loop: Any, board: Board) -> Any:
    """Split off vectors of the device's length, or of the longest that divides the loop; returns what is left of it."""
    schedule = kernel.schedule
    length = vector_length(int(schedule.get(loop).extent), device_of(board).vector)
    outer, inner = schedule.split(loop, [None, length])
    if length > 1:
        schedule.vectorize(inner)
    return outer

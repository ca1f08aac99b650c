"""Loops as work-items of an OpenCL device."""

from __future__ import annotations

import math
from typing import Any

from tvm.s_tir import Schedule

from edgedeploy.board import Board, OpenCL
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import divisors, vector_length


def device_of(board: Board) -> OpenCL:
    """The board's OpenCL device; only boards that have one get here."""
    assert board.opencl is not None
    return board.opencl


def bind(kernel: Kernel, loops: list[Any], board: Board) -> Any:
    """Run loops as work-items, in groups of up to the size that the device likes; returns the loop over a group's.

    A group takes the last loops whole and a part of the one before, so that its work-items are neighbours. Few
    work-items make small groups, of which each of the device's units gets one.
    """
    schedule, device = kernel.schedule, device_of(board)
    items = math.prod(int(schedule.get(loop).extent) for loop in loops)
    room = max(1, min(device.work_group, items // device.units))
    outer, inner = list(loops), list[Any]()
    while outer and room > 1:
        loop = outer.pop()
        extent = int(schedule.get(loop).extent)
        part = max(count for count in divisors(extent) if count <= room)
        if part < extent:
            rest, loop = schedule.split(loop, [None, part])
            outer.append(rest)
        inner.insert(0, loop)
        room = room // part if part == extent else 1
    if not inner:
        rest, item = schedule.split(outer.pop(), [None, 1], preserve_unit_iters=True)
        outer.append(rest)
        inner.append(item)
    elif not outer:
        outer.append(schedule.add_unit_loop(inner[0]))
    schedule.bind(_fused(schedule, outer), "blockIdx.x")
    item = _fused(schedule, inner)
    schedule.bind(item, "threadIdx.x")
    return item


def _fused(schedule: Schedule, loops: list[Any]) -> Any:
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]


def vectorise(kernel: Kernel, loop: Any, board: Board) -> Any:
    """Split off vectors of the device's length, or of the longest that divides the loop; returns what is left of it."""
    schedule = kernel.schedule
    length = vector_length(int(schedule.get(loop).extent), device_of(board).vector)
    outer, inner = schedule.split(loop, [None, length])
    if length > 1:
        schedule.vectorize(inner)
    return outer

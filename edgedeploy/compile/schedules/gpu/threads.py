"""Loops as work-items of an OpenCL device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm.s_tir import Schedule

from edgedeploy.board import Board, OpenCL
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import divisors


def device_of(board: Board) -> OpenCL:
    """The board's OpenCL device; only boards that have one get here."""
    assert board.opencl is not None
    return board.opencl


def group_parts(extents: Sequence[int], board: Board) -> list[int]:
    """How much of each loop a work-group takes, outermost first: the last ones whole, and a part of the one before.

    So its work-items are neighbours. Few work-items make small groups, of which each of the device's units gets one.
    """
    device = device_of(board)
    room = max(1, min(device.work_group, math.prod(extents) // device.units))
    parts = [1] * len(extents)
    for index in reversed(range(len(extents))):
        parts[index] = max(count for count in divisors(extents[index]) if count <= room)
        if parts[index] < extents[index]:
            break
        room //= parts[index]
    return parts


def bind(kernel: Kernel, loops: list[Any], board: Board) -> Any:
    """Run loops as work-items, in groups as `group_parts` says; returns the loop over a group's."""
    schedule = kernel.schedule
    parts = group_parts([int(schedule.get(loop).extent) for loop in loops], board)
    pairs = [
        schedule.split(loop, [None, part], preserve_unit_iters=True) for loop, part in zip(loops, parts, strict=True)
    ]
    groups, items = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    schedule.reorder(*groups, *items)
    schedule.bind(_fused(schedule, groups), "blockIdx.x")
    item = _fused(schedule, items)
    schedule.bind(item, "threadIdx.x")
    return item


def _fused(schedule: Schedule, loops: list[Any]) -> Any:
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]

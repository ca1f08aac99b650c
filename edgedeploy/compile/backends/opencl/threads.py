"""Loops as work-items of an OpenCL device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm.s_tir import Schedule

from edgedeploy.board import Board
from edgedeploy.compile.schedules.kernel import Kernel
from edgedeploy.compile.tiles import divisors
from edgedeploy.compile.types import bits_of
from edgedeploy.opencl.profile import OpenCL, opencl_of

# The longest of OpenCL C's vectors.
WIDEST = 16


def device_of(board: Board) -> OpenCL:
    """The board's OpenCL device; only boards that have one get here."""
    device = opencl_of(board)
    assert device is not None
    return device


def vector_width(device: OpenCL, dtype: str) -> int:
    """How many values of a type a work-item computes with at a time, as the profile has it for float32."""
    return max(1, min(WIDEST, device.vector * bits_of("float32") // bits_of(dtype)))


def group_size(items: int, most: int, units: int) -> int:
    """The work-items of a group, at most: where there are few, groups are small, so that each unit gets one."""
    return max(1, min(most, items // units))


def group_parts(extents: Sequence[int], most: int) -> list[int]:
    """How much of each loop a work-group of at most so many items takes, outermost first.

    That is the last ones whole, and a part of the one before: its work-items are neighbours.
    """
    parts = [1] * len(extents)
    for index in reversed(range(len(extents))):
        parts[index] = max(count for count in divisors(extents[index]) if count <= most)
        if parts[index] < extents[index]:
            break
        most //= parts[index]
    return parts


def bind_all(kernel: Kernel, loops: list[Any], board: Board) -> None:
    """Run loops as work-items, in groups as the board's profile has them."""
    extents = [int(kernel.schedule.get(loop).extent) for loop in loops]
    device = device_of(board)
    bind(kernel, loops, group_parts(extents, group_size(math.prod(extents), device.work_group, device.units)))


def bind(kernel: Kernel, loops: list[Any], parts: Sequence[int]) -> Any:
    """Run loops as work-items, in groups that take so much of each; returns the loop over a group's."""
    schedule = kernel.schedule
    pairs = [
        schedule.split(loop, [None, part], preserve_unit_iters=True) for loop, part in zip(loops, parts, strict=True)
    ]
    groups, items = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    schedule.reorder(*groups, *items)
    schedule.bind(_fused(schedule, groups), "blockIdx.x")
    item = _fused(schedule, items)
    schedule.bind(item, "threadIdx.x")
    kernel.parallel = True
    return item


def _fused(schedule: Schedule, loops: list[Any]) -> Any:
    return schedule.fuse(*loops) if len(loops) > 1 else loops[0]

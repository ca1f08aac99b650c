"""Functions of any operators, scheduled block by block."""

from __future__ import annotations

from collections.abc import Callable

from tvm.s_tir import ScheduleError

from edgedeploy.board import Board
from edgedeploy.compile.schedules.kernel import Kernel

# Schedules one block, by name.
BlockSchedule = Callable[[Kernel, str, Board], None]


def schedule_blocks(kernel: Kernel, board: Board, reduction: BlockSchedule, elementwise: BlockSchedule) -> None:
    """Compute blocks where they are used, and schedule those that are left, each by itself.

    Args:
        kernel: the function.
        board: what it is for.
        reduction: schedules a block that accumulates.
        elementwise: schedules any other.
    """
    _inline_single_uses(kernel)
    left = kernel.schedule.get_child_blocks(kernel.schedule.get_sblock("root"))
    for name in [str(kernel.schedule.get(block).name_hint) for block in left]:
        (reduction if kernel.is_reduction(name) else elementwise)(kernel, name, board)


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

"""Resolved boards, as building and running use them.

A setting is taken from the first source that has it: the command line, the board profile, facts probed on the board,
the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgedeploy.target.board import BOARDS, NO_OVERRIDES, Board, Overrides, filled, load_board
from edgedeploy.target.facts import defaults, of_real_boards


@dataclass(frozen=True)
class ResolvedBoard:
    """A board with everything known about it.

    Attributes:
        name: as the user wrote it: the name of a profile, or a path to its file.
        label: the profile's name in messages, packages, records and folders.
        profile: its profile with overrides, and with probed facts for fields that neither states.
    """

    name: str
    label: str
    profile: Board


def resolve(name: str, overrides: Overrides = NO_OVERRIDES, *, ask_device: bool = True) -> ResolvedBoard:
    """The board `name`, a name or a path to a YAML file, with some fields of its profile replaced.

    Cores, glibc and properties of devices that nothing states are those of probed boards of this profile; if the board
    is this machine, the device itself is asked.

    Args:
        name: the board.
        overrides: fields that replace the profile's.
        ask_device: whether to ask this machine's device, whose driver may take seconds, or hang.
    """
    label = BOARDS.find(name).stem
    board = filled(load_board(name).overridden(overrides), defaults(label))
    if board.devices and (ask_device or not board.runs_here):
        probed = None if board.runs_here else of_real_boards(label)
        devices = [device.found(probed, board.vector.registers) for device in board.devices]
        board = board.model_copy(update={"devices": devices})
    return ResolvedBoard(name, label, board)

"""Boards with the settings of the command line, of their profile, and of facts probed on them, in this order."""

from __future__ import annotations

from dataclasses import dataclass

from edgedeploy.target.board import BOARDS, NO_OVERRIDES, Board, Overrides, filled, load_board
from edgedeploy.target.facts import defaults, of_real_boards


@dataclass(frozen=True)
class ResolvedBoard:
    """A board with everything known about it."""

    name: str  # as the user wrote it: the name of a profile, or a path to its file
    label: str  # the profile's name in messages, packages, records and folders
    profile: Board


def resolve(name: str, overrides: Overrides = NO_OVERRIDES, *, ask_device: bool = True) -> ResolvedBoard:
    """The board `name`, a name or a path to a YAML file, with some fields of its profile replaced.

    Cores, glibc and properties of devices that nothing states are those of probed boards of this profile; if the board
    is this machine, `ask_device` asks the device itself, whose driver may take seconds, or hang.
    """
    label = BOARDS.find(name).stem
    board = filled(load_board(name).overridden(overrides), defaults(label))
    if board.devices and (ask_device or not board.runs_here):
        probed = None if board.runs_here else of_real_boards(label)
        devices = [device.found(probed, board.vector.registers) for device in board.devices]
        board = board.model_copy(update={"devices": devices})
    return ResolvedBoard(name, label, board)

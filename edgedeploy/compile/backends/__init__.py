"""What networks run on: the CPU, or the backend of a kind of device in `edgedeploy.target.devices`."""

from __future__ import annotations

from contextlib import suppress
from pkgutil import resolve_name

from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends.cpu import CpuBackend
from edgedeploy.compile.configuration import Configuration
from edgedeploy.target.board import Board
from edgedeploy.target.devices import KINDS, kind


def host_of(board: Board) -> CpuBackend:
    """A board's CPU."""
    return CpuBackend(board)


def backend_of(board: Board) -> Backend:
    """The backend of the board's device if its profile names one, else its CPU."""
    if board.device is None:
        return host_of(board)
    backend: Backend = resolve_name(board.device.compiler)(board)
    return backend


def computes_in_half(board: Board) -> bool:
    """Whether what networks run on has instructions for arithmetic in half precision."""
    return board.device.half if board.device else host_of(board).has_half


def forms() -> tuple[type[Configuration], ...]:
    """The forms that configurations may have, of all backends."""
    backends = (CpuBackend, *(resolve_name(kind(name).compiler) for name in KINDS))
    return tuple(form for backend in backends for form in backend.forms)


def known_configuration(recorded: object) -> Configuration | None:
    """The configuration that was recorded as plain data; None if this version does not know its form or fields."""
    for form in forms():
        if isinstance(recorded, dict) and recorded.get("form") == form.model_fields["form"].default:
            with suppress(ValueError):
                return form.model_validate(recorded)
    return None

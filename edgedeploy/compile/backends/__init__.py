"""What networks run on: the registry of backends."""

from __future__ import annotations

from typing import Annotated, Union

from pydantic import Field, TypeAdapter

from edgedeploy.board import Board
from edgedeploy.compile.backend import Backend
from edgedeploy.compile.backends.cpu import Cpu
from edgedeploy.compile.backends.opencl import Device
from edgedeploy.compile.configuration import Configuration

BACKENDS: tuple[type[Backend], ...] = (Cpu, Device)

FORMS = tuple(form for backend in BACKENDS for form in backend.forms)

CONFIGURATION: TypeAdapter[Configuration] = TypeAdapter(Annotated[Union[FORMS], Field(discriminator="form")])  # type: ignore[arg-type]  # noqa: UP007


def known_configuration(recorded: object) -> Configuration | None:
    """The configuration that was recorded as plain data; None if this version knows no such form."""
    try:
        return CONFIGURATION.validate_python(recorded)
    except ValueError:
        return None


def backend_of(board: Board) -> Backend:
    """What a board's networks run on: its OpenCL device if the profile names one, else its CPU."""
    return Device(board) if board.opencl else Cpu(board)

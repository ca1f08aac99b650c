"""This machine's OpenCL devices, as a program in C lists them: a driver that crashes or hangs takes nobody with it."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path

from edgedeploy.board import BOARDS, Board
from edgedeploy.errors import EdgedeployError
from edgedeploy.files import is_file, replacing
from edgedeploy.opencl.device import Device, meant, named, parse
from edgedeploy.toolchain import link_program

# What the program ends with where there is nothing to list.
NO_LIBRARY, NO_PLATFORMS = 3, 4

LIST_S = 12


def as_here(board: Board) -> Board:
    """A profile whose networks run here, with what it leaves open of the OpenCL device as this machine's device is.

    Others stay as they are, and so does one whose device is not here.
    """
    if board.opencl is None or not board.runs_here:
        return board
    device = named(meant(board.opencl.device), devices_here())
    return board.with_device(device) if device else board


@contextmanager
def listing_source() -> Iterator[Path]:
    """The program's source."""
    with resources.as_file(resources.files("edgedeploy.opencl") / "listing.c") as path:
        yield path


@cache
def devices_here() -> tuple[Device, ...]:
    """This machine's devices; none where that cannot be found out: whatever uses one says why.

    The program is compiled once, and kept in the user's cache folder.
    """
    try:
        with listing_source() as source:
            program = _kept(source)
            if not is_file(program):
                with replacing(program) as temporary:
                    link_program(source, temporary, BOARDS.load("local"))
        done = subprocess.run(
            [program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIST_S, check=False
        )
    except (EdgedeployError, OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(parse(done.stdout)) if done.returncode == 0 else ()


def _kept(source: Path) -> Path:
    """Where the program for this machine is kept."""
    import platformdirs

    key = hashlib.sha256(source.read_bytes() + platform.machine().encode()).hexdigest()[:16]
    return Path(platformdirs.user_cache_dir("edgedeploy")) / "opencl-devices" / key

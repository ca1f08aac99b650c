"""This machine's OpenCL devices, as a program in C lists them: a driver that crashes or hangs takes nobody with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path

from edgedeploy.board import load_board
from edgedeploy.errors import EdgedeployError
from edgedeploy.files import sha256_of
from edgedeploy.kept import Kept, key_of
from edgedeploy.opencl.device import Device, parse
from edgedeploy.toolchain import c_compiler, link_program

# What the program ends with where there is nothing to list.
NO_LIBRARY, NO_PLATFORMS = 3, 4

LIST_S = 12

_PROGRAMS, _NAME = Kept("opencl-devices"), "devices"


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
        done = subprocess.run(
            [_program()], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIST_S, check=False
        )
    except (EdgedeployError, OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(parse(done.stdout)) if done.returncode == 0 else ()


def _program() -> Path:
    """The program, compiled for this machine if it was not yet."""
    board = load_board("local")
    with listing_source() as source:
        key = key_of([sha256_of(source), c_compiler(board).identity])[:16]
        what = "building what lists OpenCL devices"
        return _PROGRAMS.made(key, lambda folder: link_program(source, folder / _NAME, board), what) / _NAME

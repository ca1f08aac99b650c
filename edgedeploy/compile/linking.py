"""Machine code to a shared library, by the board's toolchain."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import tvm

from edgedeploy.board import Board
from edgedeploy.compile.backend import write_module
from edgedeploy.compile.codegen import Code
from edgedeploy.errors import ToolchainError
from edgedeploy.runtime.native import GUARDS, THREAD_POOL
from edgedeploy.toolchain import link_shared

# What the objects of a network's functions may take, in bytes. TVM writes them, by LLVM, which ends the process where a
# disk is full.
_ROOM = 16 << 20


def link(code: Code, library: Path, board: Board) -> None:
    """Link a network's code, its weights, its threads and its guards into the shared library that TVM loads.

    Raises:
        ToolchainError: the toolchain is not installed, does not fit the board, or fails, or the folder for temporary
            files has no room.
    """
    try:
        with tempfile.TemporaryFile() as room:
            os.posix_fallocate(room.fileno(), 0, _ROOM)
    except OSError as error:
        raise ToolchainError("the network's objects cannot be written", why=error.strerror) from error

    def compile_with(output: str, objects: list[str], **_: Any) -> None:
        link_shared([*map(Path, objects), THREAD_POOL, GUARDS], Path(output), board)

    def pack_weights(module: Any, in_program: bool, prefix: str, folder: str) -> str:
        """The object that holds the weights. TVM by itself forgets the CPU and the ABI, which linkers compare."""
        path = str(Path(folder) / f"{prefix}devc.o")
        pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
        write_module(pack(module, in_program, json.dumps(board.cpu_target()), prefix), Path(path))
        return path

    compile_with.object_format = "o"  # type: ignore[attr-defined]
    code.executable.export_library(str(library), fcompile=compile_with, fpack_imports=pack_weights)

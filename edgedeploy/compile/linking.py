"""Machine code to a shared library, by the board's toolchain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tvm

from edgedeploy.board import Board
from edgedeploy.compile.codegen import Code
from edgedeploy.runtime.native import GUARDS, THREAD_POOL
from edgedeploy.toolchain import link_shared


def link(code: Code, library: Path, board: Board) -> None:
    """Link a network's code, its weights, its threads and its guards into the shared library that TVM loads.

    Raises:
        ToolchainError: the toolchain is not installed, does not fit the board, or fails.
    """

    def compile_with(output: str, objects: list[str], **_: Any) -> None:
        link_shared([*map(Path, objects), THREAD_POOL, GUARDS], Path(output), board)

    def pack_weights(module: Any, in_program: bool, prefix: str, folder: str) -> str:
        """The object that holds the weights. TVM by itself forgets the CPU and the ABI, which linkers compare."""
        path = str(Path(folder) / f"{prefix}devc.o")
        pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
        pack(module, in_program, json.dumps(board.cpu_target()), prefix).write_to_file(path)
        return path

    compile_with.object_format = "o"  # type: ignore[attr-defined]
    code.executable.export_library(str(library), fcompile=compile_with, fpack_imports=pack_weights)

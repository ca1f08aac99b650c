"""Machine code to a shared library, by the board's toolchain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgedeploy.board import Board
from edgedeploy.compile.codegen import Code
from edgedeploy.runtime.native import THREAD_POOL
from edgedeploy.toolchain import link_shared


def link(code: Code, library: Path, board: Board) -> None:
    """Link a network's code, its weights and its threads into the shared library that TVM loads.

    Raises:
        ToolchainError: the toolchain is not installed, does not fit the board, or fails.
    """

    def compile_with(output: str, objects: list[str], **_: Any) -> None:
        link_shared([*map(Path, objects), THREAD_POOL], Path(output), board)

    # TVM asks its linker for the form of the inputs, and for the triple of the object that holds the weights.
    compile_with.object_format = "o"  # type: ignore[attr-defined]
    compile_with.get_target_triple = lambda: board.triple  # type: ignore[attr-defined]
    code.executable.export_library(str(library), fcompile=compile_with)

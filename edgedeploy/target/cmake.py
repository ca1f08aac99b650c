"""CMake toolchain files: the compilers and options that build users' own C and C++ for a board."""

from __future__ import annotations

import re
import shlex

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.target.board import Board
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.target.toolchain import Driver, archiver, c_compiler, cxx_compiler


def toolchain_file(resolved: ResolvedBoard, progress: Progress = SILENT) -> str:
    """The text of a CMake toolchain file for a board, whose compilers are tried first."""
    board = resolved.profile
    c, cxx = c_compiler(board), cxx_compiler(board)
    # CMake does not strip: zig's libraries for that are built now, with progress shown.
    c.check(stripped=False)
    cxx.check(progress, stripped=False)
    lines = [
        f"# Written by `edgedeploy toolchains cmake {resolved.label}`: {c.toolchain} for {board.triple}.",
        "#   cmake -B build -DCMAKE_TOOLCHAIN_FILE=THIS_FILE",
        "",
    ]
    if cxx.first_use:
        lines += [
            "if(NOT DEFINED EDGEDEPLOY_TOOLCHAIN)  # once for a build folder",
            f'  set(EDGEDEPLOY_TOOLCHAIN {cxx.toolchain} CACHE INTERNAL "")',
            f'  message(STATUS "{cxx.toolchain} for {board.triple}: {cxx.first_use}")',
            "endif()",
            "",
        ]
    if not board.runs_here:
        lines += ["set(CMAKE_SYSTEM_NAME Linux)", f"set(CMAKE_SYSTEM_PROCESSOR {board.architecture})", ""]
    lines += [f"set(CMAKE_C_COMPILER {_command(c)})", f"set(CMAKE_CXX_COMPILER {_command(cxx)})"]
    if cxx.static_options:
        lines += [
            "# The board need not have the compiler's own libraries.",
            f"set(CMAKE_EXE_LINKER_FLAGS_INIT {_quoted(shlex.join(cxx.static_options))})",
        ]
    if command := archiver(board):
        lines += [
            "# CMake's variables for an archiver take one word only, those for its calls any number.",
            "foreach(language C CXX)",
            f"  set(CMAKE_${{language}}_ARCHIVE_CREATE {_quoted(f'{shlex.join(command)} qc <TARGET> <OBJECTS>')})",
            f"  set(CMAKE_${{language}}_ARCHIVE_APPEND {_quoted(f'{shlex.join(command)} q <TARGET> <OBJECTS>')})",
            f"  set(CMAKE_${{language}}_ARCHIVE_FINISH {_quoted(f'{shlex.join(command)} s <TARGET>')})",
            "endforeach()",
        ]
    lines += [
        "# Not every linker writes files of what it read, which CMake 3.27 and later ask it for.",
        "set(CMAKE_LINK_DEPENDS_USE_LINKER FALSE)",
    ]
    if not board.runs_here:
        lines += ["", *_search(board)]
    return "\n".join(lines) + "\n"


def _search(board: Board) -> list[str]:
    """Where CMake searches: programs on this machine, everything else among the board's files."""
    if board.sysroot is None:
        return [
            "# This machine's libraries are not the board's: say where those are with CMAKE_PREFIX_PATH.",
            "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH FALSE)",
        ]
    kinds = {"PROGRAM": "NEVER", "LIBRARY": "ONLY", "INCLUDE": "ONLY", "PACKAGE": "ONLY"}
    return [
        f"set(CMAKE_FIND_ROOT_PATH {_quoted(str(board.sysroot))})",
        *(f"set(CMAKE_FIND_ROOT_PATH_MODE_{kind} {mode})" for kind, mode in kinds.items()),
    ]


def _command(driver: Driver) -> str:
    """A compiler as CMake takes it: the program, and the options of every call as a second element."""
    program, *options = driver.command
    return " ".join([_quoted(program), *([_quoted(shlex.join(options))] if options else [])])


def _quoted(text: str) -> str:
    """A quoted argument in CMake's language."""
    return '"' + re.sub(r'([\\"$;])', r"\\\1", text) + '"'

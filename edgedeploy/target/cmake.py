"""CMake toolchain files: the compilers and options that build users' own C and C++ for a board."""

from __future__ import annotations

import re
import shlex

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.text import fill_template
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.target.toolchain import Driver, archiver, c_compiler, cxx_compiler


def toolchain_file(resolved: ResolvedBoard, progress: Progress = SILENT) -> str:
    """The text of a CMake toolchain file for a board, whose compilers are tried first."""
    board = resolved.profile
    c, cxx = c_compiler(board), cxx_compiler(board)
    # CMake does not strip: zig's libraries for that are built now, with progress shown.
    c.check(stripped=False)
    cxx.check(progress, stripped=False)
    return fill_template(
        __package__,
        "toolchain.cmake",
        label=resolved.label,
        board=board,
        c=c,
        cxx=cxx,
        archiver=archiver(board),
        compiler=_compiler,
        join=shlex.join,
        quoted=_quoted,
    )


def _compiler(driver: Driver) -> str:
    """A compiler as CMake takes it: the program, and the options of every call as a second element."""
    program, *options = driver.command
    return " ".join([_quoted(program), *([_quoted(shlex.join(options))] if options else [])])


def _quoted(text: str) -> str:
    return '"' + re.sub(r'([\\"$;])', r"\\\1", text) + '"'

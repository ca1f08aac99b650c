"""Toolchains: which program links the code of a board, and how it is called."""

from __future__ import annotations

import importlib.util
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from edgedeploy.board import Board
from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.errors import ToolchainError

LINK_TIMEOUT_S = 300

Command = Annotated[list[str], Field(min_length=1)]


class Toolchain(Record):
    """One toolchain.

    Attributes:
        description: one line for people.
        linkers: compiler drivers that link, as commands; the first that is installed is used. `python`
            stands for the interpreter that runs edgedeploy.
        options: options of every call; `{zig_triple}` stands for the board's triple with its glibc
            version, as zig writes it.
        install: the command that installs it, for the error message.
        architectures: the architectures it links for, or `native` for this machine's; all if absent.
    """

    description: str
    linkers: Annotated[list[Command], Field(min_length=1)]
    options: list[str] = []
    install: str
    architectures: list[str] | None = None

    @field_validator("architectures", mode="before")
    @classmethod
    def _fill_in_native(cls, value: Any) -> Any:
        return [platform.machine()] if value == "native" else value


TOOLCHAINS = Catalog("toolchain", "toolchains", Toolchain)


def link_shared(objects: list[Path], output: Path, board: Board, toolchain_name: str | None = None) -> str:
    """Link object files into a shared library for a board.

    Args:
        objects: the object files, and sources in C.
        output: the library to write.
        board: what it is for.
        toolchain_name: a toolchain's name or file; the board's own if None.

    Returns:
        The command line that was run.

    Raises:
        ToolchainError: the toolchain is not installed, does not fit the board, or fails.
    """
    name = toolchain_name or board.toolchain
    toolchain = TOOLCHAINS.load(name)
    if toolchain.architectures is not None and board.architecture not in toolchain.architectures:
        raise ToolchainError(
            f"toolchain {name!r} does not link for {board.architecture}",
            why=f"it links for {', '.join(toolchain.architectures)}",
            hints=_other_toolchain(name),
        )
    options = [option.replace("{zig_triple}", zig_triple(board)) for option in toolchain.options]
    linker = _installed_linker(name, toolchain)
    command = [
        *linker,
        *options,
        "-shared",
        "-fPIC",
        "-O2",
        "-s",
        "-o",
        str(output),
        *map(str, objects),
        "-lm",
        "-lpthread",
    ]
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LINK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"the linker failed: {shown}", why=str(error)) from error
    if done.returncode != 0:
        raise ToolchainError(
            f"the linker failed with exit code {done.returncode}: {shown}",
            why=(done.stderr or done.stdout).strip()[-2000:],
            hints=_other_toolchain(name),
        )
    if not output.is_file():
        raise ToolchainError(f"the linker wrote nothing: {shown}", hints=_other_toolchain(name))
    return shown


def zig_triple(board: Board) -> str:
    """A board's triple as zig writes it: architecture, system, ABI with the oldest glibc.

    `armv7a-unknown-linux-gnueabihf` with glibc 2.28 is `arm-linux-gnueabihf.2.28`.
    """
    architecture, _, system, abi = board.triple.split("-")
    architecture = "arm" if architecture.startswith("armv") else architecture
    glibc = f".{board.glibc}" if board.glibc else ""
    return f"{architecture}-{system}-{abi}{glibc}"


def _runs_in_python(arguments: list[str]) -> bool:
    """Whether the interpreter finds the module of `-m MODULE ...`; anything else is its own business."""
    if len(arguments) < 2 or arguments[0] != "-m":
        return True
    return importlib.util.find_spec(arguments[1].partition(".")[0]) is not None


def _installed_linker(name: str, toolchain: Toolchain) -> list[str]:
    for command in toolchain.linkers:
        if command[0] == "python":
            if _runs_in_python(command[1:]):
                return [sys.executable, *command[1:]]
        elif shutil.which(command[0]):
            return list(command)
    programs = " or ".join(" ".join(command) for command in toolchain.linkers)
    raise ToolchainError(
        f"toolchain {name!r} is not installed",
        why=f"there is no {programs}",
        hints=[toolchain.install, *_other_toolchain(name)],
    )


def _other_toolchain(name: str) -> list[str]:
    """A hint for all who do not use zig already."""
    return [] if name == "zig" else ["use --toolchain zig, which links for every board"]

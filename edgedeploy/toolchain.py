"""Toolchains: which programs compile and link for a board, and how they are called."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from edgedeploy.board import Board
from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.errors import ToolchainError

LINK_TIMEOUT_S = 300
CHECK_TIMEOUT_S = 60

_ELF_MACHINES = {"aarch64": "EM_AARCH64", "arm": "EM_ARM", "x86_64": "EM_X86_64"}

Command = Annotated[list[str], Field(min_length=1)]


class Toolchain(Record):
    """One toolchain.

    Attributes:
        description: one line for people.
        linkers: compiler drivers that link, as commands; the first that is installed is used. `python`
            stands for the interpreter that runs edgedeploy.
        compilers: C++ compilers, in the same form.
        static_options: options that put the C++ library into an executable.
        options: options of every call; `{zig_triple}` stands for the board's triple with its glibc
            version, as zig writes it.
        install: the command that installs it, for the error message.
        architectures: the architectures it links for, or `native` for this machine's; all if absent.
    """

    description: str
    linkers: Annotated[list[Command], Field(min_length=1)]
    compilers: list[Command] = []
    static_options: list[str] = []
    options: list[str] = []
    install: str
    architectures: list[str] | None = None

    @field_validator("architectures", mode="before")
    @classmethod
    def _fill_in_native(cls, value: Any) -> Any:
        return [platform.machine()] if value == "native" else value


TOOLCHAINS = Catalog("toolchain", "toolchains", Toolchain)


@dataclass(frozen=True)
class CxxCompiler:
    """A C++ compiler that was found to compile and link for a board.

    Attributes:
        command: the program with the options of every call.
        link_flags: options of linking an executable.
        identity: what tells its output from that of others: the options, and the version that it states.
    """

    command: list[str]
    link_flags: list[str]
    identity: str


def cxx_compiler(board: Board, toolchain_name: str | None = None) -> CxxCompiler:
    """The C++ compiler of a toolchain, checked against the board.

    Raises:
        ToolchainError: it is not installed, or does not compile for the board.
    """
    name = toolchain_name or board.toolchain
    toolchain = _fitting(name, board)
    program = _installed(name, toolchain, toolchain.compilers)
    options = _options(toolchain, board)
    check_driver((*program, *options), board.triple, name, language="c++")
    version = run_tool([*program, "--version"], timeout_s=CHECK_TIMEOUT_S).splitlines()[0]
    identity = shlex.join([version, Path(program[-1]).name, *options])
    return CxxCompiler([*program, *options], toolchain.static_options, identity)


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
    toolchain = _fitting(name, board)
    driver = [*_installed(name, toolchain, toolchain.linkers), *_options(toolchain, board)]
    check_driver(tuple(driver), board.triple, name)
    command = [*driver, "-shared", "-fPIC", "-O2", "-s", "-o", str(output), *map(str, objects), "-lm", "-lpthread"]
    run_tool(command, timeout_s=LINK_TIMEOUT_S, hints=_other_toolchain(name))
    if not output.is_file():
        raise ToolchainError(f"the linker wrote nothing: {shlex.join(command)}", hints=_other_toolchain(name))
    return shlex.join(command)


def run_tool(
    command: list[str], *, timeout_s: float, hints: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> str:
    """Run a compiler or linker, and give back what it printed.

    Raises:
        ToolchainError: it cannot be started, takes too long, or fails; its command line is shown.
    """
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"the toolchain failed: {shown}", why=str(error)) from error
    if done.returncode != 0:
        raise ToolchainError(
            f"the toolchain failed with exit code {done.returncode}: {shown}",
            why=(done.stderr or done.stdout).strip()[-2000:],
            hints=hints,
        )
    return done.stdout


@cache
def check_driver(driver: tuple[str, ...], triple: str, name: str, language: str = "c") -> None:
    """Refuse a compiler driver that makes code for other machines than the board, before it is given work.

    The target that it states (`-dumpmachine`, which zig does not answer) and a library linked from one line of C or
    C++ must be of the triple's architecture. Asked once per process.

    Raises:
        ToolchainError: they are not, or nothing was linked.
    """
    hints, wanted = _other_toolchain(name), _family(triple.split("-", 1)[0])
    stated = _stated_target(driver)
    if stated and _family(stated.split("-", 1)[0]) != wanted:
        raise ToolchainError(
            f"toolchain {name!r} does not make code for {triple}", why=f"it makes code for {stated}", hints=hints
        )
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        source, library = Path(folder) / "line", Path(folder) / "line.so"
        source.write_text("int edgedeploy_line(int x) { return x + 1; }\n", encoding="utf-8")
        command = [*driver, "-x", language, "-shared", "-fPIC", "-o", str(library), str(source)]
        run_tool(command, timeout_s=LINK_TIMEOUT_S, hints=hints)
        made = _elf_machine(library)
        if made is None or made != _ELF_MACHINES.get(wanted, made):
            raise ToolchainError(
                f"toolchain {name!r} does not make code for {triple}", why=f"it made {made or 'nothing'}", hints=hints
            )


def _stated_target(driver: tuple[str, ...]) -> str | None:
    try:
        return run_tool([*driver, "-dumpmachine"], timeout_s=CHECK_TIMEOUT_S).strip()
    except ToolchainError:
        return None


def _family(architecture: str) -> str:
    """One name for what different tools call the same architecture."""
    if architecture.startswith("arm") and architecture != "arm64":
        return "arm"
    return {"arm64": "aarch64", "amd64": "x86_64", "i386": "i686"}.get(architecture, architecture)


def _elf_machine(path: Path) -> str | None:
    """ELF's name of the machine that a file is for; None if it is no ELF file."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as stream:
            return str(ELFFile(stream)["e_machine"])
    except (OSError, ELFError):
        return None


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


def _fitting(name: str, board: Board) -> Toolchain:
    """A toolchain that says it makes code for the board's architecture."""
    toolchain = TOOLCHAINS.load(name)
    if toolchain.architectures is not None and board.architecture not in toolchain.architectures:
        raise ToolchainError(
            f"toolchain {name!r} does not link for {board.architecture}",
            why=f"it links for {', '.join(toolchain.architectures)}",
            hints=_other_toolchain(name),
        )
    return toolchain


def _options(toolchain: Toolchain, board: Board) -> list[str]:
    return [option.replace("{zig_triple}", zig_triple(board)) for option in toolchain.options]


def _installed(name: str, toolchain: Toolchain, commands: list[Command]) -> list[str]:
    """The first of a toolchain's commands that is installed."""
    if not commands:
        raise ToolchainError(f"toolchain {name!r} names no C++ compiler", hints=_other_toolchain(name))
    for command in commands:
        if command[0] == "python":
            if _runs_in_python(command[1:]):
                return [sys.executable, *command[1:]]
        elif shutil.which(command[0]):
            return list(command)
    programs = " or ".join(" ".join(command) for command in commands)
    raise ToolchainError(
        f"toolchain {name!r} is not installed",
        why=f"there is no {programs}",
        hints=[toolchain.install, *_other_toolchain(name)],
    )


def _other_toolchain(name: str) -> list[str]:
    """A hint for all who do not use zig already."""
    return [] if name == "zig" else ["use --toolchain zig, which links for every board"]

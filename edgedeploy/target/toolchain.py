"""Toolchains: the programs that compile and link for a board, and how to call them."""

from __future__ import annotations

import logging
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from edgedeploy.base.cache import FolderCache, key_of
from edgedeploy.base.catalog import Catalog
from edgedeploy.base.documents import Record
from edgedeploy.base.files import digest_of, is_folder
from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import OutputError, ToolchainError
from edgedeploy.target.board import Board
from edgedeploy.target.triples import architecture_of

# Time limit of a compiler or linker, to end one that hangs. At its first start zig compiles parts of the C library, and
# for C++ the C++ library: minutes on an idle machine, many times that on a busy one.
_TIMEOUT_S = 3600

# A compiler's drivers for C and for C++, and their names at the end of a program's name.
_DRIVERS = (("gcc", "g++"), ("clang", "clang++"), ("cc", "c++"))
_DRIVER_NAME = re.compile(r"(?<![a-z])(?P<name>gcc|g\+\+|clang\+\+|clang|cc|c\+\+)(?P<version>(-[\d.]+)?)$")

# C sources that are linked into many libraries, compiled once for each driver.
_OBJECTS = FolderCache("objects")
_OBJECT_OPTIONS = ["-fPIC", "-O2"]

# Characters that errors show of the beginning and of the end of a long command line, as of one with hundreds of files.
_SHOWN = 400

# A sysroot has at least one of these; compilers silently ignore other folders.
_SYSTEM_FOLDERS = ("lib", "lib64", "usr")

Command = Annotated[list[str], Field(min_length=1)]


class Toolchain(Record):
    """One toolchain; docs/data-files.md describes its fields."""

    description: str
    linkers: Annotated[list[Command], Field(min_length=1)]
    compilers: list[Command] = []
    archiver: Command | None = None
    static_options: list[str] = []
    options: list[str] = []
    sysroot_options: list[str] = ["--sysroot={sysroot}"]
    install: str
    architectures: Annotated[
        list[str] | None, BeforeValidator(lambda stated: [platform.machine()] if stated == "native" else stated)
    ] = None


TOOLCHAINS = Catalog("toolchain", "toolchains", Toolchain)


@dataclass(frozen=True)
class Driver:
    """An installed compiler driver with its options for a board; `check` tests it."""

    toolchain: str  # the toolchain's name, or the command of a cross compiler used instead
    command: tuple[str, ...]  # the program with the options of every call
    static_options: tuple[str, ...]
    triple: str
    float_abi: str | None
    language: str  # `c` or `c++`
    identity: str  # identifies its output: the versions of compiler and linker, and the options

    @property
    def first_use(self) -> str:
        """The slow work of the driver's first use, for people; empty without any."""
        built = {"c": "C library", "c++": "C and C++ libraries"}[self.language]
        return f"at first use it builds its {built}, for minutes" if self.toolchain == "zig" else ""

    def check(self, progress: Progress = SILENT, *, stripped: bool = True) -> None:
        """Refuse a driver that does not link, or makes code for other machines than the board.

        `stripped` says whether it will link stripped files: zig builds its libraries for each case.
        """
        with progress.stage(f"try {self.toolchain}" + (f" ({self.first_use})" if self.first_use else "")):
            _check(self, stripped)

    @property
    def hints(self) -> list[str]:
        """What to try if it fails."""
        return _other_toolchain(self.toolchain)


def c_compiler(board: Board) -> Driver:
    """The C compiler that links for a board: its profile's cross compiler, or its toolchain's."""
    return _driver(board, "c")


def cxx_compiler(board: Board) -> Driver:
    """The C++ compiler for a board."""
    return _driver(board, "c++")


def archiver(board: Board) -> list[str] | None:
    """The archiver of static libraries for a board; None if others find it."""
    name, toolchain = _toolchain_of(board)
    return _installed(name, toolchain, [toolchain.archiver]) if toolchain.archiver else None


def is_installed(toolchain: Toolchain) -> bool:
    """Whether a toolchain's linker is installed."""
    return any(_found(command) for command in toolchain.linkers)


def link_shared(objects: list[Path], output: Path, board: Board) -> str:
    """Link object files, and C sources, which are compiled once and cached, for a board; returns the command line."""
    driver = c_compiler(board)
    driver.check()
    options = ["-shared", *_OBJECT_OPTIONS, "-s", "-o", str(output)]
    files = [str(_object(each, driver) if each.suffix == ".c" else each) for each in objects]
    command = [*driver.command, *driver.static_options, *options, *files, "-lm", "-lpthread"]
    run_tool(command, hints=driver.hints)
    if not output.is_file():
        raise ToolchainError(f"the linker wrote nothing: {shlex.join(command)}", hints=driver.hints)
    return shlex.join(command)


def _object(source: Path, driver: Driver) -> Path:
    """The cached object file of a C source for a driver, or the source itself if the cache is not writable.

    Headers are those of the source's folder.
    """
    headers = sorted(source.parent.glob("*.h"))
    key = key_of([driver.identity, driver.triple, _OBJECT_OPTIONS, digest_of([source, *headers], source.parent)])

    def make(target: Path) -> None:
        command = [*driver.command, *_OBJECT_OPTIONS, "-c", "-o", str(target), str(source)]
        run_tool(command, hints=driver.hints)

    try:
        return _OBJECTS.get_file(key, f"{source.stem}.o", make, f"compiling {source.name}")
    except OutputError:
        return source


def link_program(source: Path, program: Path, board: Board, hints: Sequence[str] = ()) -> Driver:
    """Compile and link a C program for a board; returns the driver. `hints` are for failures."""
    driver = c_compiler(board)
    driver.check()
    command = [*driver.command, "-O2", "-o", str(program), str(source), "-ldl", "-lm", "-lpthread"]
    run_tool(command, hints=hints)
    return driver


def run_tool(command: list[str], *, hints: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> str:
    """Run a compiler or linker, and return its output; errors show its command line."""
    shown = shlex.join(command)
    logging.getLogger(__name__).info("calling %s", shown)
    if len(shown) > 2 * _SHOWN:
        shown = f"{shown[:_SHOWN]} ... {shown[-_SHOWN:]}"
    try:
        done = capture(command, timeout_s=_TIMEOUT_S, env={"HOME": _home(), **os.environ, **(environment or {})})
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
def _check(driver: Driver, stripped: bool) -> None:
    """Compare a driver's output with the board, once per process.

    The target that it states (`-dumpmachine`, which zig does not answer) and a library linked from one line of C or C++
    must be of the triple's architecture, and the library must have the board's float ABI.
    """
    from edgedeploy.target.elf import machine_of

    wanted, stated = architecture_of(driver.triple), ""

    def refuse(why: str) -> ToolchainError:
        what = f"toolchain {driver.toolchain!r} does not make code for {driver.triple}"
        return ToolchainError(what, why=why, hints=driver.hints)

    with suppress(ToolchainError):
        stated = run_tool([*driver.command, "-dumpmachine"]).strip()
    if stated and architecture_of(stated).name != wanted.name:
        raise refuse(f"it makes code for {stated}")
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        source, library = Path(folder) / "line", Path(folder) / "line.so"
        source.write_text("int edgedeploy_line(int x) { return x + 1; }\n", encoding="utf-8")
        options = ["-x", driver.language, "-shared", "-fPIC", *(["-s"] if stripped else [])]
        run_tool([*driver.command, *options, "-o", str(library), str(source)], hints=driver.hints)
        machine, float_abi = machine_of(library) or (None, None)
    if machine is None or machine != (wanted.elf_machine or machine):
        raise refuse(f"it generated {machine or 'nothing'}")
    if driver.float_abi and float_abi != driver.float_abi:
        raise refuse(f"it generated code for the {float_abi}-float ABI, the board has the {driver.float_abi}-float one")


def _home() -> str:
    """The user's folder if HOME is not set: zig needs a place for its cache."""
    home = os.path.expanduser("~")  # noqa: PTH111  # Path.home() is an error for users that the system does not know
    return home if os.path.isabs(home) else tempfile.gettempdir()  # noqa: PTH117


def zig_triple(board: Board) -> str:
    """A board's triple in zig's form: architecture, system, ABI with the oldest glibc.

    `armv7a-unknown-linux-gnueabihf` with glibc 2.28 is `arm-linux-gnueabihf.2.28`.
    """
    architecture, _, system, abi = board.triple.split("-")
    architecture = architecture_of(architecture).zig or architecture
    glibc = f".{board.glibc}" if board.glibc else ""
    return f"{architecture}-{system}-{abi}{glibc}"


def _toolchain_of(board: Board) -> tuple[str, Toolchain]:
    """A board's toolchain and its name: its cross compiler, or a toolchain for its architecture."""
    if board.cross_compiler:
        return shlex.join(board.cross_compiler), Toolchain(
            description="a cross compiler",
            linkers=[with_language(board.cross_compiler, "c")],
            compilers=[with_language(board.cross_compiler, "c++")],
            install="install it, or name another one with --cross-compiler",
        )
    toolchain = TOOLCHAINS.load(board.toolchain)
    known = toolchain.architectures
    if known is not None and board.family not in {architecture_of(each).name for each in known}:
        raise ToolchainError(
            f"toolchain {board.toolchain!r} does not link for {board.architecture}",
            why=f"it links for {', '.join(known)}",
            hints=_other_toolchain(board.toolchain),
        )
    return board.toolchain, toolchain


def with_language(command: list[str], language: str) -> list[str]:
    """The command of a compiler's driver for `c` or `c++`: for gcc-12, gcc-12 or g++-12."""
    *before, program = command
    names = {name: drivers[language == "c++"] for drivers in _DRIVERS for name in drivers}
    return [*before, _DRIVER_NAME.sub(lambda found: names[found["name"]] + found["version"], program)]


def _driver(board: Board, language: str) -> Driver:
    name, toolchain = _toolchain_of(board)
    if board.sysroot and not is_folder(board.sysroot):
        raise ToolchainError(f"the sysroot {board.sysroot} does not exist", hints=["name a folder with --sysroot"])
    if board.sysroot and not any(is_folder(board.sysroot / name) for name in _SYSTEM_FOLDERS):
        raise ToolchainError(
            f"{board.sysroot} is not a sysroot",
            why=f"it has none of the folders {', '.join(_SYSTEM_FOLDERS)}",
            hints=["name the folder that holds the copy of the board's / with --sysroot"],
        )
    program = _installed(name, toolchain, toolchain.linkers if language == "c" else toolchain.compilers)
    sysroot_options = toolchain.sysroot_options if board.sysroot else []
    values = {"{zig_triple}": zig_triple(board), "{sysroot}": str(board.sysroot)}
    options = [
        reduce(lambda text, name: text.replace(name, values[name]), values, option)
        for option in [*toolchain.options, *sysroot_options, *board.cross_compiler_options]
    ]
    identity = shlex.join([*_versions(tuple(program)), Path(program[-1]).name, *options])
    command, static_options = (*program, *options), tuple(toolchain.static_options)
    return Driver(name, command, static_options, board.triple, board.float_abi, language, identity)


@cache
def _versions(program: tuple[str, ...]) -> tuple[str, str]:
    """The first lines of a driver's and its linker's version output; the latter has zig's own version."""
    linker = ""
    with suppress(ToolchainError):  # it states none
        linker = run_tool([*program, "-Wl,--version"])
    compiler = run_tool([*program, "--version"])
    return compiler.partition("\n")[0], linker.partition("\n")[0]


def _installed(name: str, toolchain: Toolchain, commands: list[Command]) -> list[str]:
    if not commands:
        raise ToolchainError(f"toolchain {name!r} names no C++ compiler", hints=_other_toolchain(name))
    for command in commands:
        if found := _found(command):
            return found
    programs = " or ".join(" ".join(command) for command in commands)
    raise ToolchainError(
        f"toolchain {name!r} is not installed",
        why=f"no program {programs} was found",
        hints=[toolchain.install, *_other_toolchain(name)],
    )


def _found(command: Command) -> list[str] | None:
    """A command as called here, or None if its program, or the module of `python -m MODULE`, is not installed."""
    program, *arguments = command
    if program != "python":
        return command if shutil.which(program) else None
    if arguments[:1] == ["-m"] and len(arguments) > 1 and not find_spec(arguments[1].partition(".")[0]):
        return None
    return [sys.executable, *arguments]


def _other_toolchain(name: str) -> list[str]:
    return [] if name == "zig" else ["use --toolchain zig, which links for every board"]

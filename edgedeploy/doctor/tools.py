"""Compilers and linkers: the board's are tried and their program is run; others are looked for."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from edgedeploy.base import extras
from edgedeploy.base.programs import capture
from edgedeploy.doctor.case import Case
from edgedeploy.doctor.check import Finding, check, failed, not_applicable, ok
from edgedeploy.doctor.running import isolated
from edgedeploy.errors import UnsupportedError, VirtualBoardError
from edgedeploy.target.board import Board
from edgedeploy.target.hosts import busyness
from edgedeploy.target.toolchain import TOOLCHAINS, is_installed, link_program
from edgedeploy.target.triples import architecture_of, multiarch
from edgedeploy.virtual.emulation import emulation_of, emulator, require_means

_COMPILE_S = 28
_RUN_S = 10

_SAYS = "edgedeploy"
_SOURCE = f'#include <stdio.h>\nint main(void) {{ return puts("{_SAYS}") < 0; }}\n'


@check("toolchain", "host", limit_s=_COMPILE_S + 1)
def toolchain(case: Case) -> Finding:
    """Whether the board's toolchain compiles and links: a shared library and a program."""
    if not extras.is_installed("tvm"):
        return not_applicable("nothing is built without TVM", extras.INSTALL_BUILD)
    source = case.folder / "program.c"
    source.write_text(_SOURCE, encoding="utf-8")
    return compiled(case, source, case.program)


def compiled(case: Case, source: Path, program: Path) -> Finding:
    """Compile and link a program in C for a board, with a time limit."""
    # zig builds its startup code and its lists of glibc's symbols when it first links for a triple.
    first_time = f"zig takes longer the first time: `edgedeploy build digits --board {case.name}` waits for it, once"
    return isolated(_compile, case.board, source, program, limit_s=_COMPILE_S, if_stuck=first_time)


def _compile(board: Board, source: Path, program: Path) -> Finding:
    hints = [f"edgedeploy toolchains lists others; name one in the profile: edgedeploy boards show {board.toolchain}"]
    driver = link_program(source, program, board, hints)
    version = re.sub(r"\s*\([^)]*\)", "", shlex.split(driver.identity)[0])
    return ok(f"{driver.toolchain} ({version}) compiles and links for {board.triple}")


@check("program", "host", needs=("toolchain",))
def program(case: Case) -> Finding:
    """Whether the toolchain's program runs here, or emulated."""
    board = case.board
    if board.family == architecture_of(platform.machine()).name:
        return _run([str(case.program)], {}, "this machine runs it")
    try:
        emulation = emulation_of(board)
    except VirtualBoardError as error:
        return not_applicable(error.cause, *error.hints[:1])
    assert emulation.qemu is not None
    qemu = emulator(emulation.qemu)
    libraries = Path("/usr", multiarch(board.triple))
    if qemu is None or not libraries.is_dir():
        return not_applicable(
            f"no C library for {emulation.debian} in {libraries}, so it was not run here",
            f"sudo apt install libc6-{emulation.debian}-cross",
        )
    core = {"QEMU_CPU": emulation.cpu} if emulation.cpu else {}
    return _run([qemu, "-L", str(libraries), str(case.program)], core, f"{Path(qemu).name} runs it")


def _run(command: list[str], environment: dict[str, str], how: str) -> Finding:
    """Whether the program runs and prints the right text."""
    try:
        done = capture(command, timeout_s=(_RUN_S - 2) * busyness(), env={**os.environ, **environment})
    except subprocess.TimeoutExpired:
        return failed("the toolchain's program does not end", "use another toolchain: edgedeploy toolchains")
    if done.returncode == 0 and done.stdout.strip() == _SAYS:
        return ok(how)
    message = done.stderr.strip() or f"exit code {done.returncode}"
    return failed(f"the toolchain's program does not run: {message}", "use another toolchain: edgedeploy toolchains")


@check("other toolchains", "host")
def other_toolchains(case: Case) -> Finding:
    """Which other toolchains are installed."""
    known = {name: TOOLCHAINS.load(name) for name in TOOLCHAINS.names() if name != case.board.toolchain}
    installed = [name for name, each in known.items() if is_installed(each)]
    absent = {name: each.install for name, each in known.items() if name not in installed}
    found = f"{', '.join(installed) or 'none'}" + (f"; not installed: {', '.join(absent)}" if absent else "")
    return ok(found, *(f"for {name}: {install}" for name, install in absent.items()))


@check("CMake", "host")
def cmake(case: Case) -> Finding:
    """Whether users' own C++ can be built with `edgedeploy toolchains cmake`."""
    found = shutil.which("cmake")
    if found is None:
        return not_applicable("not installed; only your own C and C++ needs it", "sudo apt install cmake")
    return ok(next(iter(_version_of(found)), found))


@check("virtual boards", "host")
def virtual_boards(case: Case) -> Finding:
    """Whether this machine can run a virtual board."""
    try:
        emulation = emulation_of(case.board)
        require_means()
    except VirtualBoardError as error:
        return not_applicable(error.cause, *error.hints[:1])
    if emulation.qemu is None:
        return ok("this machine runs their programs itself")
    lines = _version_of(emulator(emulation.qemu) or "")
    return ok(f"{next(iter(lines), emulation.qemu)} emulates {emulation.cpu or 'some core'}")


@check("predictions", "host", applies=lambda case: case.board.core_model is not None)
def predictions(case: Case) -> Finding:
    """Whether `edgedeploy predict` finds its programs for the board."""
    # Imported here: it needs NumPy, which may be what is broken.
    from edgedeploy.predicting.tools import Means, recording_emulator

    try:
        means = Means.of(case.name, case.board)
    except UnsupportedError as error:
        return not_applicable(f"{error.cause}; only `edgedeploy predict` needs it", *error.hints)
    return ok(f"{means.name}, and {Path(recording_emulator(case.board)).name} that takes plugins")


def _version_of(program: str) -> list[str]:
    return capture([program, "--version"], timeout_s=_RUN_S * busyness()).stdout.splitlines()

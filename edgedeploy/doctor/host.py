"""This machine: its system, folders, ports, and networks; and its compilers and linkers.

The board's compiler and linker are tried, and their program is run; others are looked for.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from edgedeploy.base import extras
from edgedeploy.base.files import is_folder
from edgedeploy.base.programs import capture
from edgedeploy.base.settings import cache_folder, user_folder
from edgedeploy.doctor.case import Case
from edgedeploy.doctor.check import Finding, check, failed, not_applicable, ok, warning
from edgedeploy.doctor.running import isolated
from edgedeploy.errors import RpcError, UnsupportedError, VirtualBoardError
from edgedeploy.remote import LOOPBACK
from edgedeploy.rpc import DEFAULT_PORT
from edgedeploy.rpc.tracker import Endpoint, summary
from edgedeploy.target.board import Board
from edgedeploy.target.hosts import busyness
from edgedeploy.target.toolchain import TOOLCHAINS, is_installed, link_program
from edgedeploy.target.triples import architecture_of, architectures, multiarch
from edgedeploy.virtual.emulation import emulation_of, emulator, require_means
from edgedeploy.zoo.store import MIRRORS_VARIABLE, mirror_folders

# The tags of Apache TVM's wheels.
_OLDEST_GLIBC = (2, 28)
_OLDEST_PYTHON = (3, 10)

_TVM_S = 25

# The first build for a board takes about as much in the cache: zig's libraries, the agent's object files, a network.
_ROOMY_BYTES = 1 << 30
_WRITTEN_BYTES = 1 << 20


@check("system", "host")
def system(case: Case) -> Finding:
    """Whether TVM's wheels run on this machine."""
    libc, version = platform.libc_ver()
    python = platform.python_version()
    found = f"{platform.system()} on {platform.machine()}, {libc or 'no glibc'} {version}, Python {python}".strip()
    if sys.platform != "linux" or not architecture_of(platform.machine()).tvm_wheels:
        machines = ", ".join(row.name for row in architectures() if row.tvm_wheels)
        return failed(found, f"use a machine with Linux on one of {machines}")
    if libc != "glibc" or tuple(map(int, version.split(".")[:2])) < _OLDEST_GLIBC:
        return failed(found, "use a system with glibc 2.28 or later, such as Debian 10")
    if sys.version_info < _OLDEST_PYTHON:
        return failed(found, "use Python 3.10 or later")
    return ok(found)


@check("TVM", "host", limit_s=_TVM_S + 2)
def tvm(case: Case) -> Finding:
    """Whether TVM can be loaded, and its LLVM knows the board's triple, CPU and features."""
    if not extras.is_installed("tvm"):
        return not_applicable(
            "it is not installed: packages can be pushed, run and shown, but not built", extras.INSTALL_BUILD
        )
    stuck = "try it again: the first import of TVM from a slow disk can take half a minute"
    return isolated(load_tvm, case.board, limit_s=_TVM_S, if_stuck=stuck)


def load_tvm(board: Board) -> Finding:
    """Load TVM into this process."""
    import tvm
    from tvm.target import codegen

    from edgedeploy.compile.output.targets import check_target

    check_target(board)
    version = f"TVM {tvm.__version__} with LLVM {codegen.llvm_version_major()}"
    return ok(f"{version} generates code for {' '.join([board.cpu, *board.features])} ({board.triple})")


@check("folders", "host", if_stuck="check that the disks and network drives of these folders answer")
def folders(case: Case) -> Finding:
    """Whether edgedeploy's folders have free space and write permission."""
    named = {
        "cache": cache_folder(),
        "data": user_folder("data"),
        "configuration": user_folder(),
        "state": user_folder("state"),
        "temporary files": Path(tempfile.gettempdir()),
    }
    places = {name: _existing(path.absolute()) for name, path in named.items()}
    faults = [(named[name], fault) for name, place in places.items() if (fault := _cannot_write(place))]
    if faults:
        hints = [hint for path, error in faults for hint in _remedies(path, error)]
        found = "; ".join(f"{path} cannot be written: {error.strerror or error}" for path, error in faults)
        return failed(found, *dict.fromkeys(hints))
    free = {name: shutil.disk_usage(place).free for name, place in places.items()}
    found = f"{free['cache'] / (1 << 30):,.1f} GiB are free in {named['cache']}; all others can be written"
    if free["cache"] < _ROOMY_BYTES:
        hint = f"free 1 GiB there, e.g. in {named['cache'] / 'packages'}"
        return warning(found, hint, "or set XDG_CACHE_HOME to a folder with more space")
    return ok(found, free_bytes=free)


def _existing(path: Path) -> Path:
    """The folder, or the nearest existing one above it."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _cannot_write(folder: Path) -> OSError | None:
    """Why no file can be written in a folder; a real one shows more than permissions and free space."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".edgedeploy-", dir=folder) as stream:
            stream.write(os.urandom(_WRITTEN_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error
    return None


def _remedies(path: Path, error: OSError) -> Iterator[str]:
    place = _existing(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        yield f"make room on the file system of {place}: df -h {place}"
    elif error.errno in (errno.EACCES, errno.EPERM) and not is_folder(path):
        yield f"create it for yourself: sudo install -d -o $USER {path}"
    elif error.errno in (errno.EACCES, errno.EPERM):
        yield f"make it yours: sudo chown -R $USER {path}"
    elif not is_folder(place):
        yield f"remove the file {place}, which is in the way"
    yield "or choose other folders with XDG_CACHE_HOME, XDG_DATA_HOME, XDG_CONFIG_HOME, XDG_STATE_HOME and TMPDIR"


@check("networks", "host")
def networks(case: Case) -> Finding:
    """Whether the folders with networks' files exist."""
    mirrors = mirror_folders()
    if not mirrors:
        return not_applicable(f"{MIRRORS_VARIABLE} is not set: files are downloaded")
    return ok(f"{MIRRORS_VARIABLE} names {', '.join(map(str, mirrors))}")


@check("tracker ports", "host")
def tracker_ports(case: Case) -> Finding:
    """Whether programs may listen on this machine's loopback interface, as trackers and tunnels do."""
    try:
        with socket.create_server((LOOPBACK, 0)):
            pass
    except OSError as error:
        return warning(
            f"nothing can listen on {LOOPBACK}: {error.strerror or error}; tuning needs that",
            "start the loopback interface: sudo ip link set lo up",
        )
    try:
        with socket.create_server((LOOPBACK, DEFAULT_PORT)):
            return ok(f"any free port of {LOOPBACK}, and {DEFAULT_PORT}, the default of trackers")
    except OSError:
        endpoint = Endpoint(LOOPBACK, DEFAULT_PORT)
    try:
        summary(endpoint, 2)
    except RpcError:
        return warning(
            f"port {DEFAULT_PORT} of {LOOPBACK}, the default of trackers, is taken by something else",
            f"find out which: ss -ltnp 'sport = :{DEFAULT_PORT}'",
            "or use another port: edgedeploy rpc tracker --port 0 (tuning does that by itself)",
        )
    return ok(f"a tracker runs at {endpoint}; all others are free")


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

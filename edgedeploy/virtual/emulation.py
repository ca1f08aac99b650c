"""How this machine runs a board's programs: itself, or by qemu's user emulation."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.base.programs import capture
from edgedeploy.errors import VirtualBoardError
from edgedeploy.target.board import Board
from edgedeploy.target.hosts import cpuinfo_of
from edgedeploy.target.triples import architecture_of, architectures

_BINFMT = Path("/proc/sys/fs/binfmt_misc")

# The programs that virtual boards need, and their Debian packages.
_PROGRAMS = {
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
    "mmdebstrap": "mmdebstrap",
}

_INSTALL = "apt-get install qemu-user-static binfmt-support"
_WITHOUT = "use --board local: the network then runs in this process"


@dataclass(frozen=True)
class Emulation:
    """How a board's programs run here, in a Debian of an architecture and by default of a `suite`."""

    debian: str
    suite: str
    qemu: str | None = None  # qemu's name of the architecture; None if this machine runs the programs itself
    cpu: str | None = None  # the core that qemu emulates; None without qemu, or if this qemu does not know the core
    cpuinfo: str | None = None  # the board's /proc/cpuinfo; None without qemu


def emulation_of(board: Board) -> Emulation:
    """How a board's programs run on this machine."""
    architecture = architecture_of(board.triple)
    debian, qemu = architecture.debian, architecture.qemu
    if debian is None or qemu is None:
        raise VirtualBoardError(
            f"virtual boards of architecture {board.architecture} are not supported",
            why=f"supported are {', '.join(row.name for row in architectures() if row.debian)}",
        )
    if board.architecture == platform.machine():
        return Emulation(debian, architecture.suite)
    program = emulator(qemu)
    if program is None:
        raise VirtualBoardError(
            f"programs for {board.architecture} do not run on this machine",
            why=f"qemu-{qemu}-static is not installed",
            hints=[_INSTALL, _WITHOUT],
        )
    cpu = board.cpu if board.cpu in capture([program, "-cpu", "help"]).stdout.split() else None
    return Emulation(debian, architecture.suite, qemu, cpu, cpuinfo_of(board.triple, board.cpu, board.cores))


def emulator(qemu: str) -> str | None:
    """qemu's program for an architecture, by qemu's name; None if it is not installed."""
    return shutil.which(f"qemu-{qemu}-static") or shutil.which(f"qemu-{qemu}")


def require_means() -> None:
    """Raise VirtualBoardError unless this process is root and has the programs that virtual boards need."""
    if os.geteuid() != 0:
        raise VirtualBoardError(
            "virtual boards need root",
            why="they have file systems and processes of their own",
            hints=["run the same command with sudo", _WITHOUT],
        )
    for program, package in _PROGRAMS.items():
        if shutil.which(program) is None:
            raise VirtualBoardError(
                f"virtual boards need {program}",
                why="it is not installed",
                hints=[f"apt-get install {package}", _WITHOUT],
            )


def register(emulation: Emulation) -> None:
    """Register the emulator with the kernel for programs of its architecture, if it is not yet registered."""
    if emulation.qemu is None:
        return
    name = f"qemu-{emulation.qemu}"
    if _registered(name):
        return
    if not (_BINFMT / "register").exists():
        _try("mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT))
    if not _registered(name):
        _try("update-binfmts", "--enable", name)
    if not _registered(name):
        raise VirtualBoardError(
            f"the kernel does not start {name} for programs of its architecture",
            why=f"{_BINFMT / name} is absent, or is not enabled with flag F, which works in another root",
            hints=[_INSTALL, f"update-binfmts --enable {name}", _WITHOUT],
        )


def _registered(name: str) -> bool:
    try:
        text = (_BINFMT / name).read_text(encoding="utf-8")
    except OSError:
        return False
    flags = next((line.partition(":")[2] for line in text.splitlines() if line.startswith("flags")), "")
    return text.startswith("enabled") and "F" in flags


def _try(*command: str) -> None:
    """Run a command, and ignore its failure."""
    if shutil.which(command[0]):
        capture(command)

"""The machine that other engines run on under emulation: Debian's ARM libraries, and what kernels say of the board."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgedeploy.board import Board
from edgedeploy.core_model import CoreModel
from edgedeploy.hosts import cpuinfo_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.virtual.emulation import emulation_of, register, require_means
from edgedeploy.virtual.rootfs import rootfs

# Python of Debian 12, which the root file system has, and what engines link to.
PYTHON = "3.11"
_SUITE = "bookworm"
_PACKAGES = ("python3", "libgomp1", "libstdc++6")

_LINE = 64


def machine(board: Board, core: CoreModel, folder: Path, progress: Progress = SILENT) -> Path:
    """A root file system for qemu's `-L` in an empty folder.

    Engines choose kernels and tiles by the core's name and the caches' sizes, which they read from the kernel's files:
    with `-L`, those are the board's.
    """
    emulation = emulation_of(board)
    require_means()
    register(emulation)
    root = rootfs(_SUITE, emulation.debian, progress, _PACKAGES)
    own = ("proc", "sys", "dev")
    for path in root.iterdir():
        if path.name not in own:
            (folder / path.name).symlink_to(path)
    _write(folder / "proc/cpuinfo", cpuinfo_of(board.triple, board.cpu, board.cores))
    processors = folder / "sys/devices/system/cpu"
    for name in ("possible", "present", "online"):
        _write(processors / name, f"0-{board.cores - 1}")
    _write(processors / "kernel_max", str(board.cores - 1))
    for number in range(board.cores):
        _write_core(processors / f"cpu{number}", number, board, core)
    return folder


def _write_core(folder: Path, number: int, board: Board, core: CoreModel) -> None:
    _write(folder / "cpufreq/cpuinfo_max_freq", str(core.clock_mhz * 1000))
    every = f"0-{board.cores - 1}"
    levels: Sequence[tuple[int, str, int, int, str]] = [
        (1, "Data", board.cache.l1_kib, core.l1.ways, str(number)),
        (2, "Unified", board.cache.l2_kib, core.l2.ways, every if core.l3 is None else str(number)),
        *([(3, "Unified", core.l3.kib, core.l3.ways, every)] if core.l3 else []),
    ]
    for index, (level, kind, kib, ways, shared) in enumerate(levels):
        place = folder / f"cache/index{index}"
        said = {
            "level": level,
            "type": kind,
            "size": f"{kib}K",
            "ways_of_associativity": ways,
            "number_of_sets": kib * 1024 // _LINE // ways,
            "coherency_line_size": _LINE,
            "shared_cpu_list": shared,
        }
        for name, value in said.items():
            _write(place / name, str(value))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n", encoding="ascii")

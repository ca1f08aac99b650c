"""Runs programs of a board under emulation, and records one inference."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgedeploy.agent.build import agent_for
from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import UnsupportedError
from edgedeploy.package.archive import write_members
from edgedeploy.package.manifest import LIBRARY_NAME, Manifest
from edgedeploy.predicting.record import BLOCKS, LINE, Record, read_record
from edgedeploy.predicting.tools import recorder, recording_emulator
from edgedeploy.selftest.emulator import Emulator
from edgedeploy.target.board import Board, CoreModel
from edgedeploy.target.hosts import cpuinfo_of
from edgedeploy.virtual.emulation import emulation_of, register, require_means
from edgedeploy.virtual.rootfs import rootfs

_TIMEOUT_S = 3600

# Debian 12's Python and the libraries that engines link to, in the root file system of other engines.
PYTHON = "3.11"
_SUITE = "bookworm"
_PACKAGES = ("python3", "libgomp1", "libstdc++6")

# The plugin's arguments about marks: a system call with its first argument marks the beginnings and ends of inferences;
# the model of the caches begins at the mark `watch`, and the recorded inference at the mark `record`. The agent reads
# the monotonic clock (clock_gettime is call 113 of 64-bit ARM, that clock is 1) when an inference begins and when it
# has ended. The first one fills the caches' model.
AGENT_MARKS = "mark=113:1,watch=0,record=2"


def cache_options(board: Board, core: CoreModel) -> list[str]:
    """The plugin's arguments about a board's data caches."""
    return [f"l{level}={kib * 1024}:{ways}" for level, kib, ways in _caches(board, core)]


def _caches(board: Board, core: CoreModel) -> list[tuple[int, int, int]]:
    """The level, KiB and ways of each data cache."""
    levels = [(1, board.cache.l1_kib, core.l1.ways), (2, board.cache.l2_kib, core.l2.ways)]
    return [*levels, (3, core.l3.kib, core.l3.ways)] if core.l3 else levels


def record_package(
    manifest: Manifest,
    contents: Mapping[str, bytes],
    board: Board,
    core: CoreModel,
    folder: Path,
    progress: Progress = SILENT,
) -> Record:
    """Run a package on its recorded inputs, with one thread, and record its second inference."""
    emulator = Emulator.of(board, lambda: agent_for(board, progress=progress))
    package, record = folder / "package", folder / "record"
    record.mkdir(parents=True)
    write_members(package, manifest, contents)
    command = [str(emulator.agent), "run", str(package), "--threads", "1"]
    command += ["--fill", "selftest", "--warmup", "1", "--repeat", "1"]
    run_recorded(command, board, core, AGENT_MARKS, record, options=emulator.options, progress=progress)
    return read_record(record, agent=emulator.agent, library=package / LIBRARY_NAME)


def run_recorded(
    command: Sequence[str],
    board: Board,
    core: CoreModel,
    marks: str,
    folder: Path,
    *,
    options: Sequence[str],
    environment: Mapping[str, str] | None = None,
    what: str = "one inference",
    progress: Progress = SILENT,
) -> None:
    """Run a board's program under emulation, and record it: with qemu's `options` for core and root.

    `environment` has all variables that it gets; `what` names the recorded inference in messages.
    """
    program = recording_emulator(board)
    plugin = ",".join([str(recorder(progress)), f"out={folder}", marks, *cache_options(board, core)])
    with progress.stage(f"record {what} under {Path(program).name}"):
        try:
            # No other variables: their size shifts the stack, which changes cache misses.
            command = [program, *options, "-plugin", plugin, *command]
            done = capture(command, timeout_s=_TIMEOUT_S, env=dict(environment or {}))
        except subprocess.TimeoutExpired as error:
            raise UnsupportedError(f"{program} did not end within {_TIMEOUT_S} s") from error
    if done.returncode or not (folder / BLOCKS).is_file():
        why = done.stderr.strip().rpartition("\n")[2].removeprefix("agent: ") or f"it ended with {done.returncode}"
        raise UnsupportedError(f"{Path(program).name} did not record {what}", why=why)


def machine(board: Board, core: CoreModel, folder: Path, progress: Progress = SILENT) -> Path:
    """Create a root file system for qemu's `-L` in an empty folder: Debian's ARM libraries and the kernel's files.

    Engines read the core's name and the caches' sizes from the kernel's files to choose kernels and tiles; with `-L`,
    these are the board's.
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
    every = f"0-{board.cores - 1}"
    for number in range(board.cores):
        place = processors / f"cpu{number}"
        _write(place / "cpufreq/cpuinfo_max_freq", str(core.clock_mhz * 1000))
        for index, (level, kib, ways) in enumerate(_caches(board, core)):
            values = {
                "level": level,
                "type": "Data" if level == 1 else "Unified",
                "size": f"{kib}K",
                "ways_of_associativity": ways,
                "number_of_sets": kib * 1024 // LINE // ways,
                "coherency_line_size": LINE,
                "shared_cpu_list": every if level == 3 or (level == 2 and core.l3 is None) else str(number),
            }
            for name, value in values.items():
                _write(place / f"cache/index{index}" / name, str(value))
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n", encoding="ascii")

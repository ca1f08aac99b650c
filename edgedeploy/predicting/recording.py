"""Runs programs of a board under emulation, and records one inference."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.agent.build import agent_for
from edgedeploy.board import Board
from edgedeploy.core_model import CoreModel
from edgedeploy.errors import UnsupportedError
from edgedeploy.hosts import cpuinfo_of
from edgedeploy.package.archive import manifest_bytes
from edgedeploy.package.manifest import LIBRARY_NAME, MANIFEST_NAME, Manifest
from edgedeploy.predicting.means import recorder, recording_emulator
from edgedeploy.predicting.record import BLOCKS, Record, read_record
from edgedeploy.progress import SILENT, Progress
from edgedeploy.selftest.emulator import Emulator
from edgedeploy.virtual.emulation import emulation_of, register, require_means
from edgedeploy.virtual.rootfs import rootfs

_TIMEOUT_S = 3600


@dataclass(frozen=True)
class Marks:
    """By which a program's inferences are known: a system call and its first argument, and which of them count.

    Attributes:
        call, argument: the system call.
        watch: the mark from which on the caches are modelled.
        record: the mark at which the inference begins that is recorded; it ends at the next one.
    """

    call: int
    argument: int
    watch: int
    record: int

    def options(self) -> list[str]:
        """The plugin's arguments."""
        return [f"mark={self.call}:{self.argument}", f"watch={self.watch}", f"record={self.record}"]


# The agent reads the monotonic clock (clock_gettime is call 113 of 64-bit ARM, that clock is 1) when an inference
# begins and when it has ended. The first one fills the caches' model.
AGENT_MARKS = Marks(call=113, argument=1, watch=0, record=2)


def cache_options(board: Board, core: CoreModel) -> list[str]:
    """The plugin's arguments about a board's data caches."""
    levels = {"l1": (board.cache.l1_kib, core.l1.ways), "l2": (board.cache.l2_kib, core.l2.ways)}
    if core.l3:
        levels["l3"] = core.l3.kib, core.l3.ways
    return [f"{name}={kib * 1024}:{ways}" for name, (kib, ways) in levels.items()]


def record_package(
    manifest: Manifest,
    contents: Mapping[str, bytes],
    board: Board,
    core: CoreModel,
    folder: Path,
    progress: Progress = SILENT,
) -> Record:
    """Run a package on its recorded inputs, with one thread, and record its second inference.

    Args:
        manifest, contents: the package.
        board, core: what it was built for.
        folder: an empty one, for files that are of use as long as the record is.
        progress: is told of each step.
    """
    emulator = Emulator.of(board, lambda: agent_for(board, progress=progress))
    package, record = folder / "package", folder / "record"
    record.mkdir(parents=True)
    for name, content in {**contents, MANIFEST_NAME: manifest_bytes(manifest)}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    command = [str(emulator.agent), "run", str(package), "--threads", "1"]
    command += ["--fill", "selftest", "--warmup", "1", "--repeat", "1"]
    run_recorded(command, board, core, AGENT_MARKS, record, options=emulator.options, progress=progress)
    return read_record(record, agent=emulator.agent, library=package / LIBRARY_NAME)


def run_recorded(
    command: Sequence[str],
    board: Board,
    core: CoreModel,
    marks: Marks,
    folder: Path,
    *,
    options: Sequence[str],
    environment: Mapping[str, str] | None = None,
    what: str = "one inference",
    progress: Progress = SILENT,
) -> None:
    """Run a board's program under emulation and have it recorded into an empty folder.

    Args:
        command: the program and its arguments.
        board, core: whose caches are modelled.
        marks: how its inferences are known.
        folder: where the record goes.
        options: of qemu: core and root.
        environment: all variables that the program gets.
        what: is recorded, for people.
        progress: is told of it.
    """
    program = recording_emulator(board)
    plugin = ",".join([str(recorder(progress)), f"out={folder}", *marks.options(), *cache_options(board, core)])
    with progress.stage(f"record {what} under {Path(program).name}"):
        try:
            done = subprocess.run(
                [program, *options, "-plugin", plugin, *command],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_TIMEOUT_S,
                env=dict(environment or {}),  # no more: its size shifts the stack, and with it what the caches miss
            )
        except subprocess.TimeoutExpired as error:
            raise UnsupportedError(f"{program} did not end within {_TIMEOUT_S} s") from error
    if done.returncode or not (folder / BLOCKS).is_file():
        said = done.stderr.strip().rpartition("\n")[2].removeprefix("agent: ")
        why = said or f"it ended with {done.returncode}"
        raise UnsupportedError(f"{Path(program).name} did not record {what}", why=why)


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

"""Other engines on a board: wheels and networks go into a temporary folder there."""

from __future__ import annotations

import io
import json
import math
import struct
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.base.closing import Closing, on_failure
from edgedeploy.base.programs import script
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.benchmarking.engine_program import NAMES, SCRIPT
from edgedeploy.benchmarking.engines.engine import CPU, CannotRunError, Engine, Profile, Task
from edgedeploy.benchmarking.turns import Costs, Turn
from edgedeploy.benchmarking.wheels import Site, Target, site
from edgedeploy.errors import BoardConnectionError, DownloadError, last_line, signal_of
from edgedeploy.remote.connection import Completed, Connection
from edgedeploy.remote.login import BROKEN
from edgedeploy.remote.place import RemoteProgram

# The version and platform of the board's Python; prints nothing without Python.
_PROBE = """
command -v python3 >/dev/null || exit 0
exec python3 -c 'import json, platform, struct, sys
print(json.dumps([list(sys.version_info[:2]), platform.machine(), struct.calcsize("P"), platform.libc_ver()[1]]))'
"""
_MAKE = 'umask 077 && mktemp -d "$HOME/.edgedeploy-bench-XXXXXX"'
_UNPACK = 'mkdir -p -- "$1" && exec tar -xzf - -C "$1"'
_REMOVE = 'case "$1" in */.edgedeploy-bench-??????) exec rm -rf -- "$1";; esac'
_START = script(__package__, "engine.sh")

# An emulated board needs minutes for what a real one does in a second.
_ANSWER_S, _TRANSFER_S = 1800.0, 1800.0
_LONGEST_ANSWER = 1 << 22
_BLOCK = 1 << 18
_LONGEST_REASON = 300

# The architecture in wheels' names, by the kernel's name of the machine and the size of a pointer.
ARCHITECTURES = {
    ("aarch64", 8): "aarch64",
    ("aarch64", 4): "armv7l",
    ("armv8l", 4): "armv7l",
    ("armv7l", 4): "armv7l",
    ("x86_64", 8): "x86_64",
}


class BoardEngines(Closing):
    """The engines on a board; a context manager that removes their files."""

    def __init__(self, connection: Connection, progress: Progress = SILENT) -> None:
        self._connection, self._progress = connection, progress
        self._uploaded: dict[str, str] = {}
        self._networks = 0

    def close(self) -> None:
        """Remove the folder."""
        if folder := self.__dict__.get("_folder"):
            try:
                self._connection.run(_REMOVE, folder, timeout_s=_TRANSFER_S)
            except BoardConnectionError as error:
                self._progress.note(f"{folder} may still be on the board: {error.cause}")

    def load(self, engine: Engine, task: Task) -> _BoardEngine:
        """Load a network into an engine on the board; `task.folder` takes the converted network.

        Raises CannotRunError if the engine has no wheel, the board's Python or CPU cannot load it, or it cannot run the
        network.
        """
        if engine.name not in NAMES:
            raise CannotRunError(f"it is not measured on boards, as {', '.join(NAMES)} are")
        if reason := engine.absence():
            raise CannotRunError(f"{reason}, whose version is brought to the board")
        wheels = [self._wheel(engine.distribution, engine.version()), self._wheel("numpy", None)]
        task, compile_s = engine.converted(task)
        paths = [self._upload_wheel(wheel) for wheel in wheels]
        folder = self._upload_network(task)
        costs = Costs(compile_s, size_bytes=task.size_bytes)
        return _BoardEngine(self._connection, folder, ":".join(paths), engine.name, task, costs)

    @cached_property
    def _folder(self) -> str:
        created = self._connection.run(_MAKE)
        if created.code or not created.text.startswith("/"):
            raise CannotRunError(f"no room for it on the board: {created.messages or created.text}")
        self._send({SCRIPT.name: SCRIPT}, created.text, SCRIPT.name)
        return created.text

    @cached_property
    def _probed(self) -> Completed:
        return self._connection.run(_PROBE)

    @property
    def _python(self) -> Target:
        """The system that the board's Python loads wheels of."""
        answer = self._probed
        if not answer.text:
            raise CannotRunError("the board has no Python: apt-get install python3")
        try:
            (major, minor), machine, size, libc = json.loads(answer.text)
            return Target(ARCHITECTURES[machine, size], f"{int(major)}.{int(minor)}", int(libc.split(".")[1]))
        except KeyError as error:
            raise CannotRunError(f"no wheels exist for {machine} with pointers of {size} bytes") from error
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            why = f"the board's Python does not start: {answer.messages[-_LONGEST_REASON:]}"
            raise CannotRunError(why) from error

    def _wheel(self, name: str, version: str | None) -> Site:
        python = self._python
        try:
            return site(name, version, python, self._progress)
        except DownloadError as error:
            wanted = f"{name} {version}" if version else name
            reason = f"no wheel of {wanted} for Python {python.python} on {python.architecture}: {error.cause}"
            raise CannotRunError(reason) from error

    def _upload_wheel(self, wheel: Site) -> str:
        """The folder of a wheel on the board."""
        if wheel.name not in self._uploaded:
            folder = f"{self._folder}/{wheel.name}"
            self._send({".": wheel.path}, folder, f"{wheel.name} {wheel.version}")
            self._uploaded[wheel.name] = folder
        return self._uploaded[wheel.name]

    def _upload_network(self, task: Task) -> str:
        """A folder on the board with a network's files and its inputs."""
        self._networks += 1
        folder = f"{self._folder}/network-{self._networks}"
        self._send({path.name: path for path in (*task.files, *task.write_arguments())}, folder, "the network")
        return folder

    def _send(self, paths: Mapping[str, Path], folder: str, what: str) -> None:
        """Send files and folders by their names there; `what` is for messages."""
        with tempfile.TemporaryFile() as packed:
            with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
                for name, path in paths.items():
                    archive.add(path, name, filter=_plain)
            with self._progress.stage(f"bring {what}, {packed.tell() / 1e6:.0f} MB"):
                packed.seek(0)
                content = iter(lambda: packed.read(_BLOCK), b"")
                done = self._connection.run(_UNPACK, folder, content=content, timeout_s=_TRANSFER_S)
        if done.code:
            raise CannotRunError(f"{what} does not fit on the board: {done.messages[-_LONGEST_REASON:]}")


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """A member without its owner; None for tests."""
    if "/tests/" in f"{member.name}/":
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class _BoardEngine(Closing):
    """A `Player`: an engine's process on the board; a context manager that ends it."""

    device = CPU

    def __init__(
        self, connection: Connection, folder: str, python_path: str, engine: str, task: Task, costs: Costs
    ) -> None:
        self._connection, self._folder, self._outputs = connection, folder, task.outputs
        arguments = folder, python_path, engine, str(task.threads), task.network.name
        self._program = RemoteProgram(connection, _START, *arguments, timeout_s=_ANSWER_S)
        with on_failure(self.close):
            ready = self._answer()
            self.typical, load_s, first_s = (_positive(ready.get(key)) for key in ("typical_s", "load_s", "first_s"))
        self._costs = replace(costs, load_s=load_s, first_s=first_s)

    def turn(self, warmup: int, count: int) -> Turn:
        seconds = self._ask({"warmup": warmup, "count": count}).get("seconds")
        if not isinstance(seconds, list) or len(seconds) != count:
            raise CannotRunError("it does not report how long it took")
        return Turn([_positive(each) for each in seconds], None)

    def outputs(self) -> dict[str, np.ndarray]:
        peak = self._ask({}).get("peak_bytes")
        self._costs = replace(self._costs, peak_bytes=peak if isinstance(peak, int) else None)
        read = self._connection.run('exec cat -- "$1/outputs.npz"', self._folder, timeout_s=_ANSWER_S)
        try:
            with np.load(io.BytesIO(read.output), allow_pickle=False) as content:
                return dict(zip(self._outputs, [content[name] for name in content.files], strict=True))
        except (OSError, ValueError, EOFError, KeyError, struct.error) as error:
            raise CannotRunError(f"its outputs cannot be read: {last_line(error)}") from error

    def profile(self, count: int) -> Profile | None:
        answer = self._ask({"profile": count}).get("functions")
        if answer is None:
            return None
        try:
            return {str(name): (str(kind), [float(each) for each in times]) for name, (kind, times) in answer.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise CannotRunError("it does not report how long its operators took") from error

    def costs(self) -> Costs:
        return self._costs  # with the peak memory once outputs were read

    def close(self) -> None:
        self._program.close()

    def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        with suppress(OSError):  # it has ended, and its last line explains it
            self._program.send(f"{json.dumps(request)}\n".encode())
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        for line in self._lines():
            if line.startswith("ended "):
                raise CannotRunError(_reason(line.removeprefix("ended "), next(self._lines(), "")))
            try:
                answer = json.loads(line)
            except ValueError:
                continue  # engines print other lines, too
            if isinstance(answer, dict):
                return answer
        raise self._connection.lost()

    def _lines(self) -> Iterator[str]:
        try:
            while line := self._program.stream.readline(_LONGEST_ANSWER):
                yield line.decode(errors="replace").strip()
        except BROKEN as error:
            raise self._connection.lost(error) from error


def _positive(value: object) -> float:
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
        return float(value)
    raise CannotRunError("it does not report how long it took")


def _reason(code: str, message: str) -> str:
    """Why a process ended, by its exit code in the shell and the last line that it wrote."""
    number = int(code) if code.isdecimal() else 1
    name = signal_of(number)
    if name == "SIGILL":
        return "the board's CPU lacks an instruction that its wheel is compiled for (SIGILL)"
    if name:
        return f"it crashed on the board ({name})"
    return f"on the board: {message[:_LONGEST_REASON]}" if message else f"it ended on the board with code {number}"

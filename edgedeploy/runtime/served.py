"""Packages that an agent runs, on a board or in a process here, by the protocol that docs/agent.md describes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.base.cache import FolderCache
from edgedeploy.base.closing import Closing, on_failure
from edgedeploy.base.files import sha256_of
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import EdgedeployError, ReleaseError
from edgedeploy.model.tail.program import Tail
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.package.archive import read_manifest, read_package, read_tails, write_members
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.failures import failure
from edgedeploy.remote.place import ChildProgram, Program, RemoteProgram
from edgedeploy.runtime.session import check_machine, check_tensors, fitting_entry
from edgedeploy.runtime.timing import EndToEnd, Timing
from edgedeploy.target.board import load_board

_PROTOCOL = 1

# An emulated board takes minutes for what a real one does in a second.
_REPLY_S = 1800

_UNPACKED = FolderCache("unpacked")

_SERVE = """
cd && cd "$1" && shift && exec ./agent serve . "$@"
"""


def unpacked(package: Path) -> Path:
    """The folder of an unpacked package in the cache; the package is checked."""
    manifest, contents = read_package(package)

    key, said = sha256_of(package)[:16], f"unpacking {package.name}"
    return _UNPACKED.get(key, lambda folder: write_members(folder, manifest, contents), said)


class ServedSession(Closing):
    """A `Runner` through an agent; a context manager. Derived classes start the agent."""

    def __init__(self, agent: str, program: Program, tails: Sequence[Tail | None] = ()) -> None:
        """Wait until a started agent, called `agent` in messages, has loaded its package.

        `tails` are, for each entry of the package, the part that runs here after the agent's; outputs are the tail's.
        """
        self._agent, self._program = agent, program
        with on_failure(self.close):
            self._greet(tails)

    def close(self) -> None:
        """Let the agent end."""
        self._program.close()
        self._program.stream.close()

    def _greet(self, tails: Sequence[Tail | None]) -> None:
        hello = self._reply()
        if hello.get("protocol") != _PROTOCOL:
            raise ReleaseError(
                f"{self._agent} has another version of the protocol",
                why=f"it has {hello.get('protocol')}, this edgedeploy needs {_PROTOCOL}",
                hints=["push the package again: that brings the agent that belongs to it"],
            )
        self._entries = [hello, *hello.get("further", [])]
        self._tails = tails or [None] * len(self._entries)
        if len(self._tails) != len(self._entries):
            raise self._broken(f"it has {len(self._entries)} entries, the package has {len(self._tails)}")
        self._enter(0)
        self.threads = int(hello["threads"])
        self.device_name: str | None = hello.get("device")  # None for the processor

    def _enter(self, place: int) -> None:
        """Become the session of one entry of the package."""
        stated, self._tail, self._entry = self._entries[place], self._tails[place], place
        self.inputs, self._compiled = _specs(stated["inputs"]), _specs(stated["outputs"])
        self.outputs = self._tail.outputs if self._tail else self._compiled

    def fitting(self, tensors: Tensors) -> ServedSession:
        """As `Session.fitting`; it ends with this session."""
        if len(self._entries) == 1:
            return self
        found = copy(self)
        found._enter(fitting_entry(tensors, [_specs(entry["inputs"]) for entry in self._entries]))
        return found

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference: arrays by input name, to arrays by output name."""
        return self.fitting(tensors)._run(tensors)

    def _run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        inputs = check_tensors(tensors, self.inputs)
        reply = self._ask({"command": "run"}, b"".join(array.tobytes() for array in inputs))
        content = self._read(int(reply.get("bytes", 0)))
        sizes = [math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in self._compiled]
        if len(content) != sum(sizes):
            raise self._broken(f"it sent {len(content)} bytes of outputs, not {sum(sizes)}")
        arrays: dict[str, np.ndarray] = {}
        start = 0
        for spec, size in zip(self._compiled, sizes, strict=True):
            flat = np.frombuffer(content, spec.dtype, math.prod(spec.shape), start)
            arrays[spec.name] = flat.reshape(spec.shape).copy()
            start += size
        if self._tail is None:
            return arrays
        return self._tail.run({spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)} | arrays)

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """As `Session.measure`; the agent's times include no transfer and no tail."""
        request = {"command": "measure", "repeat": repeat, "number": number, "warmup": warmup}
        return Timing(tuple(map(float, self._ask_about(tensors, request)["runs_ms"])))

    def measure_end_to_end(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> EndToEnd:
        """Run `warmup` times, then time `repeat` inferences, inputs and outputs in the agent's memory."""
        reply = self._ask_about(tensors, {"command": "measure-end-to-end", "repeat": repeat, "warmup": warmup})
        kernels = reply.get("kernels_ms")
        total = Timing(tuple(map(float, reply["runs_ms"])))
        return EndToEnd(total, Timing(tuple(map(float, kernels))) if kernels else None)

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """As `Session.function_times`, measured by the agent."""
        functions = self._ask_about(tensors, {"command": "profile", "repeat": repeat, "warmup": warmup})["functions"]
        return {str(name): [float(time) for time in times] for name, times in functions.items()}

    def memory(self) -> dict[str, int | None]:
        """The memory that the agent takes now, in bytes, by the names that `agent run` prints."""
        return dict(self._ask({"command": "status"})["memory"])

    def _ask_about(self, tensors: Tensors, request: dict[str, Any]) -> dict[str, Any]:
        return self._ask(request, b"".join(array.tobytes() for array in check_tensors(tensors, self.inputs)))

    def _ask(self, request: dict[str, Any], content: bytes = b"") -> dict[str, Any]:
        entry = {"entry": self._entry} if self._entry else {}
        line = json.dumps({**request, **entry, "bytes": len(content)})
        try:
            self._program.send(f"{line}\n".encode() + content)
        except OSError as error:
            raise self._ended() from error
        reply = self._reply()
        if not reply.get("ok"):
            what = f"{self._agent} cannot do what it was asked"
            raise failure(int(reply.get("code", 1)), what, str(reply.get("error")))
        return reply

    def _reply(self) -> dict[str, Any]:
        try:
            line = self._program.stream.readline()
        except TimeoutError as error:
            raise self._broken(f"it did not answer within {_REPLY_S} s") from error
        if not line.endswith(b"\n"):
            raise self._ended()
        try:
            return dict(json.loads(line))
        except ValueError as error:
            raise self._broken(f"it answered {line[:80]!r}") from error

    def _read(self, count: int) -> bytes:
        content = bytes(self._program.stream.read(count)) if count else b""
        if len(content) != count:
            raise self._ended()
        return content

    def _ended(self) -> EdgedeployError:
        return self._program.failure(f"{self._agent} ended")

    def _broken(self, why: str) -> ReleaseError:
        self.close()
        return ReleaseError(f"{self._agent} does not answer as it should", why=why)


class RemoteSession(ServedSession):
    """A release that the agent on a board runs, over SSH."""

    def __init__(
        self, connection: Connection, folder: str, threads: int | None = None, tails: Sequence[Tail | None] = ()
    ) -> None:
        """Load a release in a folder, relative to the home folder; `threads` is the package's default if None."""
        program = RemoteProgram(connection, _SERVE, folder, *_options(threads), timeout_s=_REPLY_S)
        super().__init__(f"the agent on {connection.address}", program, tails)


class ChildSession(ServedSession):
    """A package that an agent runs in a child process, since TVM is not installed."""

    def __init__(self, package: Path, threads: int | None = None, progress: Progress = SILENT) -> None:
        """Load a package from its archive; `threads` is the package's default if None."""
        from edgedeploy.agent.build import agent_for

        manifest = read_manifest(package)
        check_machine(package, manifest)
        board = load_board("local" if manifest.device is None else "local-opencl")
        folder, agent = unpacked(package), agent_for(board, progress=progress).path
        program = ChildProgram('exec "$@"', str(agent), "serve", str(folder), *_options(threads))
        super().__init__("the agent on this machine", program, read_tails(package))


def _options(threads: int | None) -> list[str]:
    return ["--threads", str(threads)] if threads else []


def _specs(stated: Sequence[dict[str, Any]]) -> list[TensorSpec]:
    return [TensorSpec(name=each["name"], shape=each["shape"], dtype=each["dtype"]) for each in stated]

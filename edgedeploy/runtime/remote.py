"""A package that runs on a board: the agent there answers requests over the SSH connection."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import paramiko

from edgedeploy.closing import Closing
from edgedeploy.errors import EdgedeployError, ReleaseError
from edgedeploy.remote.connection import Connection, close_channel
from edgedeploy.remote.failures import failure
from edgedeploy.runtime.session import check_tensors, fitting_entry
from edgedeploy.runtime.timing import EndToEnd, Timing
from edgedeploy.tail.evaluation import Tail
from edgedeploy.tensors import Tensors, TensorSpec

# The version of the protocol that docs/agent.md describes.
_PROTOCOL = 1

# An emulated board needs minutes for what a real one does in a second.
_REPLY_S = 1800

_SERVE = """
cd && cd "$1" && shift && exec ./agent serve . "$@"
"""


class RemoteSession(Closing):
    """A `Runner` on a board; a context manager."""

    def __init__(
        self, connection: Connection, folder: str, threads: int | None = None, tails: Sequence[Tail | None] = ()
    ) -> None:
        """Load a release that lies on a board.

        Args:
            connection: the board.
            folder: the release, relative to the home folder.
            threads: how many threads to run with; what the package says if None.
            tails: what follows the part that runs there, for each entry of the package; they run here, and outputs are
                theirs then.

        Raises:
            PackageError: the board does not load it.
            InputError: more threads were asked for than the board has processors.
            DeviceError: the board's device is not there, or does not take it.
            BoardConnectionError: the connection broke.
        """
        self._connection = connection
        options = ["--threads", str(threads)] if threads else []
        self._channel = connection.open(_SERVE, folder, *options)
        self._channel.settimeout(_REPLY_S)
        self._stream = self._channel.makefile("rb")
        hello = self._reply()
        if hello.get("protocol") != _PROTOCOL:
            raise ReleaseError(
                f"the agent on {connection.address} speaks another protocol",
                why=f"it is {hello.get('protocol')}, {_PROTOCOL} is understood here",
                hints=["push the package again: that brings the agent that belongs to it"],
            )
        self._entries = [hello, *hello.get("further", [])]
        self._tails = tails or [None] * len(self._entries)
        if len(self._tails) != len(self._entries):
            raise self._broken(f"it has {len(self._entries)} entries, the package has {len(self._tails)}")
        self._enter(0)
        self.threads = int(hello["threads"])
        # What the device calls itself that the network runs on; None for the processor.
        self.device_name: str | None = hello.get("device")

    def close(self) -> None:
        """Let the agent end."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()
        close_channel(self._channel)

    def _enter(self, place: int) -> None:
        """Be the session of one entry of the package."""
        said, self._tail, self._entry = self._entries[place], self._tails[place], place
        self.inputs = [_spec(each) for each in said["inputs"]]
        self._compiled = [_spec(each) for each in said["outputs"]]
        self.outputs = self._tail.outputs if self._tail else self._compiled

    def fitting(self, tensors: Tensors) -> RemoteSession:
        """As `Session.fitting`; it ends with this one."""
        if len(self._entries) == 1:
            return self
        inputs = [[_spec(each) for each in entry["inputs"]] for entry in self._entries]
        found = copy(self)
        found._enter(fitting_entry(tensors, inputs))
        return found

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference on the board: arrays by input name, to arrays by output name.

        Raises:
            InputError: as `Session.run`.
            DeviceError: the board's device does not do it.
            ReleaseError: the agent cannot do it, or ended.
            BoardConnectionError: the connection broke.
        """
        return self.fitting(tensors)._run(tensors)

    def _run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        inputs = check_tensors(tensors, self.inputs)
        reply = self._ask({"command": "run"}, b"".join(array.tobytes() for array in inputs))
        content = self._read(int(reply.get("bytes", 0)))
        if len(content) != sum(map(_size, self._compiled)):
            raise self._broken(f"it gave {len(content)} bytes of outputs")
        arrays: dict[str, np.ndarray] = {}
        start = 0
        for spec in self._compiled:
            flat = np.frombuffer(content, spec.dtype, math.prod(spec.shape), start)
            arrays[spec.name] = flat.reshape(spec.shape).copy()
            start += _size(spec)
        if self._tail is None:
            return arrays
        return self._tail.run({spec.name: array for spec, array in zip(self.inputs, inputs, strict=True)} | arrays)

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """As `Session.measure`; the times are taken on the board and hold no transfer, and no tail.

        Raises:
            InputError, DeviceError, ReleaseError, BoardConnectionError: as `run`.
        """
        request = {"command": "measure", "repeat": repeat, "number": number, "warmup": warmup}
        return Timing(tuple(map(float, self._ask(request, self._content(tensors))["runs_ms"])))

    def measure_end_to_end(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> EndToEnd:
        """Run `warmup` times, then time `repeat` inferences, inputs and outputs in the board's memory.

        Raises:
            InputError, ReleaseError, BoardConnectionError: as `run`.
        """
        request = {"command": "measure-end-to-end", "repeat": repeat, "warmup": warmup}
        reply = self._ask(request, self._content(tensors))
        kernels = reply.get("kernels_ms")
        total = Timing(tuple(map(float, reply["runs_ms"])))
        return EndToEnd(total, Timing(tuple(map(float, kernels))) if kernels else None)

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """As `Session.function_times`; the times are taken on the board.

        Raises:
            InputError, DeviceError, ReleaseError, BoardConnectionError: as `run`.
        """
        request = {"command": "profile", "repeat": repeat, "warmup": warmup}
        functions = self._ask(request, self._content(tensors))["functions"]
        return {str(name): [float(time) for time in times] for name, times in functions.items()}

    def memory(self) -> dict[str, int | None]:
        """What the agent takes of the board's memory now, in bytes, as `agent run` states it.

        Raises:
            ReleaseError, BoardConnectionError: as `run`.
        """
        return dict(self._ask({"command": "status"})["memory"])

    def _content(self, tensors: Tensors) -> bytes:
        return b"".join(array.tobytes() for array in check_tensors(tensors, self.inputs))

    def _ask(self, request: dict[str, Any], content: bytes = b"") -> dict[str, Any]:
        entry = {"entry": self._entry} if self._entry else {}
        line = json.dumps({**request, **entry, "bytes": len(content)}) + "\n"
        try:
            self._channel.sendall(line.encode() + content)
        except (OSError, paramiko.SSHException) as error:
            raise self._ended() from error
        reply = self._reply()
        if not reply.get("ok"):
            what = f"the agent on {self._connection.address} cannot do what it was asked"
            raise failure(int(reply.get("code", 1)), what, str(reply.get("error")))
        return reply

    def _reply(self) -> dict[str, Any]:
        try:
            line = self._stream.readline()
        except TimeoutError as error:
            raise self._broken(f"it said nothing for {_REPLY_S} s") from error
        if not line.endswith(b"\n"):
            raise self._ended()
        try:
            return dict(json.loads(line))
        except ValueError as error:
            raise self._broken(f"it said {line[:80]!r}") from error

    def _read(self, count: int) -> bytes:
        content = bytes(self._stream.read(count)) if count else b""
        if len(content) != count:
            raise self._ended()
        return content

    def _broken(self, why: str) -> ReleaseError:
        self.close()
        return ReleaseError(f"the agent on {self._connection.address} does not answer as it should", why=why)

    def _ended(self) -> EdgedeployError:
        """The error for an agent that ended."""
        with contextlib.suppress(OSError, TimeoutError):
            self._channel.settimeout(10)
            messages = self._channel.makefile_stderr("rb").read().decode(errors="replace").strip()
            code = self._channel.recv_exit_status() if self._connection.alive else -1
            if self._connection.alive:
                why = messages or f"it ended with code {code}, as it does for want of memory"
                return failure(code, f"the agent on {self._connection.address} ended", why)
        return self._connection.lost()


def _spec(said: dict[str, Any]) -> TensorSpec:
    return TensorSpec(name=said["name"], shape=said["shape"], dtype=said["dtype"])


def _size(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize

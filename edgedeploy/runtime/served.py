"""A package that an agent runs, which answers requests: what is the same on a board and on this machine."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, Protocol

import numpy as np

from edgedeploy.closing import Closing
from edgedeploy.errors import EdgedeployError, ReleaseError
from edgedeploy.remote.failures import failure
from edgedeploy.runtime.session import check_tensors, fitting_entry
from edgedeploy.runtime.timing import EndToEnd, Timing
from edgedeploy.tail.program import Tail
from edgedeploy.tensors import Tensors, TensorSpec

# The version of the protocol that docs/agent.md describes.
_PROTOCOL = 1

# An emulated board needs minutes for what a real one does in a second.
REPLY_S = 1800


class Replies(Protocol):
    """What an agent prints."""

    def readline(self) -> bytes: ...  # noqa: D102

    def read(self, size: int, /) -> bytes: ...  # noqa: D102


class ServedSession(Closing):
    """A `Runner` through an agent; a context manager. What leads to the agent is for those derived from it."""

    def __init__(self, agent: str, replies: Replies, tails: Sequence[Tail | None] = ()) -> None:
        """Wait until an agent that was started says that it has loaded its package.

        Args:
            agent: what it is called in messages.
            replies: what it prints.
            tails: what follows the part that runs there, for each entry of the package; they run here, and outputs are
                theirs then.

        Raises:
            PackageError: the agent does not load it.
            InputError: more threads were asked for than there are processors.
            DeviceError: the device is not there, or does not take it.
            BoardConnectionError: the connection broke.
        """
        self._agent, self._replies = agent, replies
        hello = self._reply()
        if hello.get("protocol") != _PROTOCOL:
            raise ReleaseError(
                f"{agent} speaks another protocol",
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

    @abstractmethod
    def _send(self, content: bytes) -> None:
        """Send the agent something."""

    @abstractmethod
    def _ended(self) -> EdgedeployError:
        """The error for an agent that ended."""

    def _enter(self, place: int) -> None:
        """Be the session of one entry of the package."""
        said, self._tail, self._entry = self._entries[place], self._tails[place], place
        self.inputs = [_spec(each) for each in said["inputs"]]
        self._compiled = [_spec(each) for each in said["outputs"]]
        self.outputs = self._tail.outputs if self._tail else self._compiled

    def fitting(self, tensors: Tensors) -> ServedSession:
        """As `Session.fitting`; it ends with this one."""
        if len(self._entries) == 1:
            return self
        inputs = [[_spec(each) for each in entry["inputs"]] for entry in self._entries]
        found = copy(self)
        found._enter(fitting_entry(tensors, inputs))
        return found

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference there: arrays by input name, to arrays by output name.

        Raises:
            InputError: as `Session.run`.
            DeviceError: the device does not do it.
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
        """As `Session.measure`; the times are taken by the agent and hold no transfer, and no tail."""
        request = {"command": "measure", "repeat": repeat, "number": number, "warmup": warmup}
        return Timing(tuple(map(float, self._ask(request, self._content(tensors))["runs_ms"])))

    def measure_end_to_end(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> EndToEnd:
        """Run `warmup` times, then time `repeat` inferences, inputs and outputs in the agent's memory."""
        request = {"command": "measure-end-to-end", "repeat": repeat, "warmup": warmup}
        reply = self._ask(request, self._content(tensors))
        kernels = reply.get("kernels_ms")
        total = Timing(tuple(map(float, reply["runs_ms"])))
        return EndToEnd(total, Timing(tuple(map(float, kernels))) if kernels else None)

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """As `Session.function_times`; the times are taken by the agent."""
        request = {"command": "profile", "repeat": repeat, "warmup": warmup}
        functions = self._ask(request, self._content(tensors))["functions"]
        return {str(name): [float(time) for time in times] for name, times in functions.items()}

    def memory(self) -> dict[str, int | None]:
        """What the agent takes of memory now, in bytes, as `agent run` states it."""
        return dict(self._ask({"command": "status"})["memory"])

    def _content(self, tensors: Tensors) -> bytes:
        return b"".join(array.tobytes() for array in check_tensors(tensors, self.inputs))

    def _ask(self, request: dict[str, Any], content: bytes = b"") -> dict[str, Any]:
        entry = {"entry": self._entry} if self._entry else {}
        line = json.dumps({**request, **entry, "bytes": len(content)}) + "\n"
        try:
            self._send(line.encode() + content)
        except OSError as error:
            raise self._ended() from error
        reply = self._reply()
        if not reply.get("ok"):
            what = f"{self._agent} cannot do what it was asked"
            raise failure(int(reply.get("code", 1)), what, str(reply.get("error")))
        return reply

    def _reply(self) -> dict[str, Any]:
        try:
            line = self._replies.readline()
        except TimeoutError as error:
            raise self._broken(f"it said nothing for {REPLY_S} s") from error
        if not line.endswith(b"\n"):
            raise self._ended()
        try:
            return dict(json.loads(line))
        except ValueError as error:
            raise self._broken(f"it said {line[:80]!r}") from error

    def _read(self, count: int) -> bytes:
        content = bytes(self._replies.read(count)) if count else b""
        if len(content) != count:
            raise self._ended()
        return content

    def _broken(self, why: str) -> ReleaseError:
        self.close()
        return ReleaseError(f"{self._agent} does not answer as it should", why=why)


def _spec(said: dict[str, Any]) -> TensorSpec:
    return TensorSpec(name=said["name"], shape=said["shape"], dtype=said["dtype"])


def _size(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize

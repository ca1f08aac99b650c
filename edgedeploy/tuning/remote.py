"""What a measuring process does: one session on a device of a tracker, in which the functions of a library are timed.

All of it blocks, and some of it cannot be interrupted: `measuring.py` runs it in a process that it can end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.devices import Device, runtime_of
from edgedeploy.errors import DeviceError, last_line
from edgedeploy.rpc.tracker import Endpoint
from edgedeploy.runtime.native import BEFORE_EACH, PREPARE_MEASURING, SET_THREADS
from edgedeploy.tuning.building import Argument

if TYPE_CHECKING:
    from edgedeploy.board import Board

# What of the inputs stays on the device between functions: the smallest boards have 512 MB.
KEPT_BYTES = 128 << 20

_FILL = "tvm.contrib.random.random_fill_for_measure"

# The line before what a server said.
_OVER_RPC = "Error caught from RPC call:\n"

# How TVM's servers say that they ended a session because its time was over.
TIMEOUT_MARK = "RPCSessionTimeoutError"


@dataclass(frozen=True)
class Evaluation:
    """How a function is timed.

    Attributes:
        number: runs in a row whose mean is one time.
        repeat: how many times are taken.
        min_repeat_ms: `number` grows until the runs of one time take so long.
        timeout_s: of all of that for one function, with its first run.
        displaced_bytes: of other memory that each thread reads before each repeat, so that weights are not in its
            caches: about twice the last cache before memory; 0 for warm caches. Other devices' caches stay warm.
        device: that functions run on, of a kind with a runtime of its own; None for the CPU.
    """

    number: int = 1
    repeat: int = 10
    min_repeat_ms: int = 0
    timeout_s: float = 10
    displaced_bytes: int = 2 << 20
    device: Device | None = None

    @classmethod
    def on(cls, board: Board, **timing: Any) -> Evaluation:
        """How functions are timed on a board, with cold caches; `timing` has the first four fields."""
        return cls(**timing, displaced_bytes=2 * board.cache.l2_kib * 1024, device=board.accelerator)

    @property
    def limit_s(self) -> float:
        """How long one function may take in all, with the compilation of its kernels by a device's driver."""
        return self.timeout_s + (self.device.compiling_s if self.device else 0)


@dataclass(frozen=True)
class Job:
    """A function of a library to time."""

    name: str
    arguments: tuple[Argument, ...]
    library: Path


@dataclass(frozen=True)
class Begun:
    """A function is about to be timed: the index of its job."""

    job: int


@dataclass(frozen=True)
class Done:
    """A function was timed, in seconds for each repeat; or it raised an error, and the session goes on."""

    job: int
    seconds: tuple[float, ...]
    error: str | None = None


@dataclass(frozen=True)
class Refused:
    """The device accepts sessions, but not the libraries. A device's error begins with its kind, as agents' do."""

    why: str


def session(
    device: Endpoint,
    secret: str,
    jobs: Sequence[Job],
    evaluation: Evaluation,
    threads: int,
    begin_s: float,
    session_s: float,
) -> Iterator[Begun | Done | Refused]:
    """Time functions one after the other.

    Args:
        device: was just handed out by its tracker.
        secret: the greeting that it expects.
        jobs: the functions, whose libraries are sent there; without any, a session is only opened and closed.
        evaluation: how they are timed.
        threads: how many threads they run with.
        begin_s: no function but the first is begun later than this.
        session_s: the server ends the session after this time.
    """
    import tvm

    opened = time.monotonic()
    remote = tvm.rpc.connect(device.host, device.port, secret, session_timeout=session_s)
    try:
        if not jobs:
            return
        try:
            modules = {library: _loaded(remote, library) for library in dict.fromkeys(job.library for job in jobs)}
            if evaluation.device is None:
                [module] = modules.values()
                module[SET_THREADS](threads)
                module[PREPARE_MEASURING](threads, evaluation.displaced_bytes)
                inputs = _Inputs(remote, remote.cpu())
            else:
                inputs = _Inputs(
                    remote, runtime_of(evaluation.device.backend).remote_device(remote, evaluation.device.name)
                )
        except Exception as error:
            if not _stands(remote):
                raise
            yield Refused(f"{error.kind}: {error.cause}" if isinstance(error, DeviceError) else last_line(error))
            return
        for index, job in enumerate(jobs):
            if index and time.monotonic() - opened > begin_s:
                return
            yield Begun(index)
            try:
                seconds = _timed(modules[job.library], job, inputs, evaluation)
            except Exception as error:
                if not _stands(remote, inputs.device):
                    raise
                yield Done(index, (), f"{type(error).__name__}: {_cause(error, evaluation)}")
            else:
                yield Done(index, seconds)
    finally:
        with contextlib.suppress(Exception):  # it broke before
            remote.get_function("CloseRPCConnection")()


def _loaded(remote: Any, library: Path) -> Any:
    remote.upload(str(library), library.name)
    return remote.load_module(library.name)


def _stands(remote: Any, device: Any = None) -> bool:
    """Whether a session and its device survived an error."""
    try:
        remote.get_function(_FILL)
        if device is not None:
            device.sync()
    except Exception:
        return False
    return True


def _cause(error: Exception, evaluation: Evaluation) -> str:
    """Why a function failed. A device's runtime and driver say it at the beginning of the error, TVM at the end."""
    _, _, said = str(error).partition(_OVER_RPC)
    return "; ".join(said.splitlines()[:2]) if said and evaluation.device is not None else last_line(error)


def _timed(module: Any, job: Job, inputs: _Inputs, evaluation: Evaluation) -> tuple[float, ...]:
    tensors = inputs.of(job.arguments)
    evaluator = module.time_evaluator(
        job.name,
        inputs.device,
        number=evaluation.number,
        repeat=evaluation.repeat,
        min_repeat_ms=evaluation.min_repeat_ms,
        f_preproc="" if evaluation.device is not None else BEFORE_EACH,
    )
    return tuple(evaluator(*tensors).results)


class _Inputs:
    """Tensors on the device, which functions of the same shapes share."""

    def __init__(self, remote: Any, device: Any) -> None:
        self.device = device
        self._fill = remote.get_function(_FILL)
        self._kept: dict[tuple[int, Argument], Any] = {}

    def of(self, arguments: tuple[Argument, ...]) -> list[Any]:
        """Tensors for a function: floats are random; whole numbers, which may be indices, are zero."""
        wanted = list(enumerate(arguments))
        new = sum(argument.bytes for position, argument in wanted if (position, argument) not in self._kept)
        for entry in [entry for entry in self._kept if entry not in wanted]:  # the oldest first
            if new + sum(argument.bytes for _, argument in self._kept) <= KEPT_BYTES:
                break
            del self._kept[entry]
        return [self._tensor(entry) for entry in wanted]

    def _tensor(self, entry: tuple[int, Argument]) -> Any:
        import numpy as np
        import tvm

        if entry not in self._kept:
            _, argument = entry
            tensor = tvm.runtime.empty(argument.shape, argument.dtype, self.device)
            if argument.dtype.startswith("float"):
                self._fill(tensor)
            else:
                tensor.copyfrom(np.zeros(argument.shape, argument.dtype))
            self._kept[entry] = tensor
        return self._kept[entry]

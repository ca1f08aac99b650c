"""One session on a device of a tracker, in which the functions of a library are timed.

It blocks, and cannot always be interrupted: `measuring.py` runs it in a process that it can end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.compile.native import BEFORE_EACH, PREPARE_MEASURING, SET_THREADS
from edgedeploy.errors import DeviceError, last_line
from edgedeploy.rpc.tracker import Endpoint
from edgedeploy.target.devices import Device, runtime_of
from edgedeploy.tuning.building import Argument, Batch, Entry

if TYPE_CHECKING:
    from edgedeploy.target.board import Board

# Of inputs that stay on the device between functions: the smallest boards have 512 MB.
CACHE_BYTES = 128 << 20

_FILL = "tvm.contrib.random.random_fill_for_measure"

# The line before a server's error.
_OVER_RPC = "Error caught from RPC call:\n"

# In the error of TVM's servers when a session's time is over.
TIMEOUT_MARK = "RPCSessionTimeoutError"


@dataclass(frozen=True)
class Evaluation:
    """How a function is timed."""

    number: int = 1  # runs in a row whose mean is one time
    repeat: int = 10  # how many times are taken
    min_repeat_ms: int = 0  # `number` grows until the runs of one time take so long
    timeout_s: float = 10  # of all of that for one function, with its first run
    # Of other memory that each thread reads before each repeat, so that weights are not in its caches: about twice the
    # last cache before memory; 0 for warm caches. Other devices' caches stay warm.
    displaced_bytes: int = 2 << 20
    device: Device | None = None  # that functions run on, of a kind with its own runtime; None for the CPU

    @classmethod
    def on(cls, board: Board, **timing: Any) -> Evaluation:
        """How functions are timed on a board, with cold caches; `timing` has the first four fields."""
        return cls(**timing, displaced_bytes=2 * board.cache.l2_kib * 1024, device=board.accelerator)

    @property
    def limit_s(self) -> float:
        """How long one function may take in all, with the compilation of its kernels by a device's driver."""
        return self.timeout_s + (self.device.compiling_s if self.device else 0)


@dataclass(frozen=True)
class Begun:
    """A function is about to be timed: the index of its job."""

    job: int


@dataclass(frozen=True)
class Done:
    """A function was timed, in seconds for each repeat; or it raised an error, and the session continues."""

    job: int
    seconds: tuple[float, ...]
    error: str | None = None


@dataclass(frozen=True)
class Refused:
    """The device accepts sessions, but not the libraries. A device's error begins with its kind, as agents' do."""

    why: str


def session(
    device: Endpoint, secret: str, jobs: Batch, evaluation: Evaluation, threads: int, begin_s: float, session_s: float
) -> Iterator[Begun | Done | Refused]:
    """Time functions one after the other.

    Args:
        device: was just handed out by its tracker; it expects the secret as a greeting.
        jobs: whose libraries are sent there; without any, a session is only opened and closed.
        begin_s: no function but the first is begun later than this.
        session_s: the server ends the session after this time.
    """
    import tvm

    opened = time.monotonic()
    remote = tvm.rpc.connect(device.host, device.port, secret, session_timeout=session_s)
    try:
        if not jobs.entries:
            return
        try:
            modules: dict[Path | None, Any] = {}
            for library in jobs.libraries:
                remote.upload(str(library), library.name)
                modules[library] = remote.load_module(library.name)
            if evaluation.device is None:
                [module] = modules.values()
                module[SET_THREADS](threads)
                module[PREPARE_MEASURING](threads, evaluation.displaced_bytes)
                inputs = _Inputs(remote, remote.cpu())
            else:
                runtime = runtime_of(evaluation.device.backend)
                inputs = _Inputs(remote, runtime.remote_device(remote, evaluation.device.name))
        except Exception as error:
            if not _survived(remote):
                raise
            yield Refused(f"{error.kind}: {error.cause}" if isinstance(error, DeviceError) else last_line(error))
            return
        for index, job in enumerate(jobs.entries):
            if index and time.monotonic() - opened > begin_s:
                return
            yield Begun(index)
            try:
                seconds = _timed(modules[job.library], job, inputs, evaluation)
            except Exception as error:
                if not _survived(remote, inputs.device):
                    raise
                yield Done(index, (), f"{type(error).__name__}: {_cause(error, evaluation)}")
            else:
                yield Done(index, seconds)
    finally:
        with contextlib.suppress(Exception):  # it broke before
            remote.get_function("CloseRPCConnection")()


def _survived(remote: Any, device: Any = None) -> bool:
    try:
        remote.get_function(_FILL)
        if device is not None:
            device.sync()
    except Exception:
        return False
    return True


def _cause(error: Exception, evaluation: Evaluation) -> str:
    """Why a function failed: at the beginning of the error of a device's runtime or driver, at the end of TVM's."""
    _, _, text = str(error).partition(_OVER_RPC)
    return "; ".join(text.splitlines()[:2]) if text and evaluation.device is not None else last_line(error)


def _timed(module: Any, job: Entry, inputs: _Inputs, evaluation: Evaluation) -> tuple[float, ...]:
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
        self._cache: dict[tuple[int, Argument], Any] = {}

    def of(self, arguments: tuple[Argument, ...]) -> list[Any]:
        """Tensors for a function: floats are random; whole numbers, which may be indices, are zero."""
        import numpy as np
        import tvm

        wanted = list(enumerate(arguments))
        new = sum(argument.bytes for position, argument in wanted if (position, argument) not in self._cache)
        for entry in [entry for entry in self._cache if entry not in wanted]:  # the oldest first
            if new + sum(argument.bytes for _, argument in self._cache) <= CACHE_BYTES:
                break
            del self._cache[entry]
        for entry in wanted:
            if entry not in self._cache:
                shape, dtype = entry[1].shape, entry[1].dtype
                self._cache[entry] = tvm.runtime.empty(shape, dtype, self.device)
                if dtype.startswith("float"):
                    self._fill(self._cache[entry])
                else:
                    self._cache[entry].copyfrom(np.zeros(shape, dtype))
        return [self._cache[entry] for entry in wanted]

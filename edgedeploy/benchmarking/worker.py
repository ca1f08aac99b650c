"""One engine in a process of its own: the process, and the side that talks to it.

Engines in one process disturb each other: one ties the calling thread to a core, another's threads keep
spinning after their work, and their OpenMP libraries clash. Here each has a process that is silent while the
others are measured: it answers only when its threads have come to rest.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines import find_engine
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Profile, Task, files_of
from edgedeploy.closing import Closing
from edgedeploy.errors import EdgedeployError
from edgedeploy.workers import Worker, WorkerError

# How long an answer may take: a turn of inferences may also take so many times as long as its inferences are known to.
_PATIENCE_S, _TIMES_AS_LONG = 600.0, 10.0
# The warm-up goes on until both are reached.
_WARMUP_CALLS, _WARMUP_S = 3, 0.2
# Threads rest when the process has used less than a tenth of this time on processors; spinning ends on its own.
_REST_S, _REST_AT_MOST_S = 0.005, 1.0


@dataclass(frozen=True)
class Turn:
    """What an engine did in one turn.

    Attributes:
        seconds: the time of each inference.
        processors: how many processors it kept busy on average; None where that is not known.
        kernel_seconds: what the kernels of each inference took by the device's own clock, summed; None where nothing
            tells.
    """

    seconds: list[float]
    processors: float | None
    kernel_seconds: list[float] | None = None


@dataclass(frozen=True)
class Start:
    """What an engine needed until it was warm.

    Attributes:
        typical: the median time of an inference once warm, in seconds.
        device: what runs the network.
        compile_s: what a converter or compiler took, which another run need not wait for where its result is kept;
            None where the engine has none.
        load_s: from the file, or from what was made of it, to a network that is ready.
        first_s: the first inference.
        file_bytes: of the files that the engine reads.
    """

    typical: float
    device: str
    compile_s: float | None
    load_s: float
    first_s: float
    file_bytes: int


class EngineWorker(Closing):
    """An engine's process with one network loaded; a context manager that ends it."""

    def __init__(self, engine: Engine, task: Task) -> None:
        self._worker = Worker(partial(_load, engine.name, task), task.folder / "said.txt", restarts=False)
        # The median time of an inference once warm, in seconds, and what runs it.
        self.start: Start = self._asked(self._worker.start, timeout_s=_PATIENCE_S)
        self.typical, self.device = self.start.typical, self.start.device

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`."""
        patience = max(_PATIENCE_S, _TIMES_AS_LONG * self.typical * (warmup + count))
        return self._asked(self._worker.call, _turn, warmup, count, timeout_s=patience)

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of the last inference by name."""
        return self._asked(self._worker.call, _outputs, timeout_s=_PATIENCE_S)

    def peak_bytes(self) -> int | None:
        """The most memory that its process had in use since the network was loaded, if the system tells."""
        return self._asked(self._worker.call, _peak_bytes, timeout_s=_PATIENCE_S)

    def profile(self, count: int) -> Profile | None:
        """The times of `count` inferences by function, in a network that is loaded once more; None if nothing tells."""
        return self._asked(self._worker.call, _profile, count, timeout_s=_PATIENCE_S)

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _asked(self, ask: Callable[..., Any], *arguments: Any, **limits: float) -> Any:
        try:
            return ask(*arguments, **limits)
        except WorkerError as error:
            self.close()
            cause = error.__cause__
            if isinstance(cause, EdgedeployError | CannotRunError):
                raise CannotRunError(str(cause)) from cause
            raise CannotRunError(str(error)) from error
        except KeyboardInterrupt:
            self.close()  # it would go on to the end of its work
            raise


# In the process of an engine: what it has ready.
_engine: Engine
_task: Task
_loaded: Loaded


def _load(name: str, task: Task) -> Start:
    """Load and warm up."""
    global _engine, _task, _loaded
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    engine = find_engine(name)
    for module in (engine.module, *engine.imports):  # the same for all networks, and no part of loading one
        with suppress(ImportError):  # which `load` finds a reason for
            importlib.import_module(module)
    compile_s = None
    if engine.convert:
        started = perf_counter()
        task = replace(task, converted=engine.convert(task))
        compile_s = perf_counter() - started
    _engine, _task = engine, task
    started = perf_counter()
    _loaded = engine.load(task)
    load_s = perf_counter() - started
    if _loaded.compile_s is not None:
        compile_s, load_s = _loaded.compile_s, max(0.0, load_s - _loaded.compile_s)
    _forget_peak()
    first_s, typical = _warm_up(_loaded)
    return Start(typical, _loaded.device, compile_s, load_s, first_s, _file_bytes(task))


def _file_bytes(task: Task) -> int:
    """The size of the network's files as the engine reads them."""
    files = [task.file] if task.converted is None else files_of(task.converted)
    return sum(path.stat().st_size for path in files)


def _forget_peak() -> None:
    """Have the system count the peak of memory anew, which loading may have reached (proc(5), clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_bytes() -> int | None:
    """The most that was resident at once, as proc(5) has it."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def _outputs() -> dict[str, np.ndarray]:
    return _loaded.outputs()


def _profile(count: int) -> Profile | None:
    return _engine.profile(_task, count) if _engine.profile else None


def _warm_up(loaded: Loaded) -> tuple[float, float]:
    """The time of the first inference and of a typical one, in seconds."""
    seconds: list[float] = []
    while len(seconds) < _WARMUP_CALLS or sum(seconds) < _WARMUP_S:
        started = perf_counter()
        loaded.run()
        seconds.append(perf_counter() - started)
    _rest()
    return seconds[0], float(np.median(seconds))


def _turn(warmup: int, count: int) -> Turn:
    run = _loaded.run
    for _ in range(warmup):
        run()
    seconds, kernels = [], []
    busy = process_time()
    for _ in range(count):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
        if _loaded.kernel_seconds:
            kernels.append(_loaded.kernel_seconds())
    processors = (process_time() - busy) / sum(seconds)
    _rest()
    return Turn(seconds, processors, kernels or None)


def _rest() -> None:
    """Wait until the process's threads have stopped to spin, a second at most."""
    deadline = perf_counter() + _REST_AT_MOST_S
    while perf_counter() < deadline:
        used = process_time()
        sleep(_REST_S)
        if process_time() - used < _REST_S / 10:
            return

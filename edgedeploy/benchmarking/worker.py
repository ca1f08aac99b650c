"""One engine in a process of its own: the process, and the side that talks to it.

Engines in one process disturb each other: one ties the calling thread to a core, another's threads keep
spinning after their work, and their OpenMP libraries clash. Here each has a process that is silent while the
others are measured: it answers only when its threads have come to rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from edgedeploy.benchmarking.engines import find_engine
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Task
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


class EngineWorker(Closing):
    """An engine's process with one network loaded; a context manager that ends it.

    Raises:
        CannotRunError: from the constructor and every method, if the engine cannot run the network, crashes,
            or does not answer; the process has ended then. Its cause is edgedeploy's own error, if that says why.
    """

    def __init__(self, engine: Engine, task: Task) -> None:
        self._worker = Worker(partial(_load, engine.name, task), task.folder / "said.txt", restarts=False)
        # The median time of an inference once warm, in seconds, and what runs it.
        self.typical: float
        self.device: str
        self.typical, self.device = self._asked(self._worker.start, timeout_s=_PATIENCE_S)

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`."""
        patience = max(_PATIENCE_S, _TIMES_AS_LONG * self.typical * (warmup + count))
        return self._asked(self._worker.call, _turn, warmup, count, timeout_s=patience)

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of the last inference by name."""
        return self._asked(self._worker.call, _outputs, timeout_s=_PATIENCE_S)

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
_loaded: Loaded


def _load(name: str, task: Task) -> tuple[float, str]:
    """Load and warm up; the typical time of an inference in seconds, and what runs it."""
    global _loaded
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    _loaded = find_engine(name).load(task)
    return _warm_up(_loaded), _loaded.device


def _outputs() -> dict[str, np.ndarray]:
    return _loaded.outputs()


def _warm_up(loaded: Loaded) -> float:
    seconds: list[float] = []
    while len(seconds) < _WARMUP_CALLS or sum(seconds) < _WARMUP_S:
        started = perf_counter()
        loaded.run()
        seconds.append(perf_counter() - started)
    _rest()
    return float(np.median(seconds))


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

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
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

from edgedeploy.base.closing import Closing
from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.benchmarking.engine_program import forget_peak, peak_bytes, rest, timed, warm_up
from edgedeploy.benchmarking.engines import find_engine
from edgedeploy.benchmarking.engines.engine import CannotRunError, Engine, Loaded, Profile, Task
from edgedeploy.benchmarking.turns import Costs, Turn
from edgedeploy.errors import EdgedeployError

# Time limit of an answer; that of a turn is at least this multiple of the known time of its inferences.
_TIMEOUT_S, _TIMES_AS_LONG = 600.0, 10.0


class EngineWorker(Closing):
    """An engine's process with one network loaded; a context manager that ends it.

    The constructor and every method raise CannotRunError, and end the process, if the engine cannot run the network,
    crashes, or does not answer. Its cause is edgedeploy's own error, if there is one.
    """

    typical: float
    device: str
    _costs: Costs

    def __init__(self, engine: Engine, task: Task) -> None:
        self._worker = Worker(partial(_load, engine.name, task), task.folder / "output.txt", restarts=False)
        self.typical, self.device, self._costs = self._asked(self._worker.start, timeout_s=_TIMEOUT_S)

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`."""
        timeout_s = max(_TIMEOUT_S, _TIMES_AS_LONG * self.typical * (warmup + count))
        return self._asked(self._worker.call, _turn, warmup, count, timeout_s=timeout_s)

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of the last inference by name."""
        return self._asked(self._worker.call, _outputs, timeout_s=_TIMEOUT_S)

    def costs(self) -> Costs:
        """What it needed besides the time of an inference."""
        return replace(self._costs, peak_bytes=self._asked(self._worker.call, peak_bytes, timeout_s=_TIMEOUT_S))

    def profile(self, count: int) -> Profile | None:
        """The times of `count` inferences by function, in a network that is loaded once more; None if not supported."""
        return self._asked(self._worker.call, _profile, count, timeout_s=_TIMEOUT_S)

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


# In the process of an engine: its task, and the loaded network.
_engine: Engine
_task: Task
_loaded: Loaded


def _load(name: str, task: Task) -> tuple[float, str, Costs]:
    """Load and warm up; the median time of an inference in seconds, the device, and the costs."""
    global _engine, _task, _loaded
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    engine = find_engine(name)
    for module in (engine.module, *engine.imports):  # the same for all networks, and no part of loading one
        with suppress(ImportError):  # `load` explains it
            importlib.import_module(module)
    task, compile_s = engine.converted(task)
    _engine, _task = engine, task
    started = perf_counter()
    _loaded = engine.load(task)
    load_s = perf_counter() - started
    if _loaded.compile_s is not None:
        compile_s, load_s = _loaded.compile_s, max(0.0, load_s - _loaded.compile_s)
    forget_peak()
    first_s, typical = warm_up(_loaded.run)
    return typical, _loaded.device, Costs(compile_s, load_s, first_s, size_bytes=task.size_bytes)


def _outputs() -> dict[str, np.ndarray]:
    return _loaded.outputs()


def _profile(count: int) -> Profile | None:
    return _engine.profile(_task, count) if _engine.profile else None


def _turn(warmup: int, count: int) -> Turn:
    timed(_loaded.run, warmup)
    kernels: list[float] = []
    kernel_seconds = _loaded.kernel_seconds
    after = (lambda: kernels.append(kernel_seconds())) if kernel_seconds else None
    busy = process_time()
    seconds = timed(_loaded.run, count, after)
    processors = (process_time() - busy) / sum(seconds)
    rest()
    return Turn(seconds, processors, kernels or None)

"""One engine in a process of its own: the process, and the side that talks to it.

Engines in one process disturb each other: one ties the calling thread to a core, another's threads keep
spinning after their work, and their OpenMP libraries clash. Here each has a process that is silent while the
others are measured: it answers only when its threads have come to rest.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np

from edgedeploy.bench.engines import find_engine
from edgedeploy.bench.engines.engine import CannotRunError, Engine, Loaded, Task
from edgedeploy.closing import Closing
from edgedeploy.errors import EdgedeployError
from edgedeploy.workers import send

# How long an answer may take: converting and loading, or a turn of inferences, which may also take so many times as
# long as its inferences are known to.
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


class Worker(Closing):
    """An engine's process with one network loaded; a context manager that ends it.

    Raises:
        CannotRunError: from the constructor and every method, if the engine cannot run the network, crashes,
            or does not answer; the process has ended then. Its cause is edgedeploy's own error, if that says why.
    """

    def __init__(self, engine: Engine, task: Task) -> None:
        self.engine = engine
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(engine.name, task, theirs), daemon=True)
        self._process.start()
        theirs.close()
        # The median time of an inference once warm, in seconds, and what runs it.
        self.typical: float
        self.device: str
        self.typical, self.device = self._answer()

    def turn(self, warmup: int, count: int) -> Turn:
        """Run `warmup` inferences, then time `count`."""
        patience = max(_PATIENCE_S, _TIMES_AS_LONG * self.typical * (warmup + count))
        return self._ask("turn", warmup, count, patience=patience)

    def outputs(self) -> dict[str, np.ndarray]:
        """The outputs of the last inference by name."""
        return self._ask("outputs")

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, *request: Any, patience: float = _PATIENCE_S) -> Any:
        try:
            send(self._connection, request)
        except OSError as error:
            raise self._lost() from error
        return self._answer(patience)

    def _answer(self, patience: float = _PATIENCE_S) -> Any:
        try:
            if not self._connection.poll(patience):
                self._process.kill()
                self.close()
                raise CannotRunError(f"it gave no answer within {patience:.0f} s")
            worked, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._lost() from error
        except KeyboardInterrupt:
            self._process.kill()  # it would go on to the end of its work
            raise
        if not worked:
            self.close()
            raise CannotRunError(str(answer)) from (answer if isinstance(answer, EdgedeployError) else None)
        return answer

    def _lost(self) -> CannotRunError:
        self.close()
        code = self._process.exitcode or 0
        how = f"crashed ({signal.Signals(-code).name})" if code < 0 else f"ended with code {code}"
        return CannotRunError(f"its process {how}")


def _serve(name: str, task: Task, connection: Connection) -> None:
    """The process: load, warm up, then do as told until the other side goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the other side's business
    os.environ["OMP_NUM_THREADS"] = str(task.threads)
    _silence(task.folder / "said.txt")
    try:
        loaded = find_engine(name).load(task)
        send(connection, (True, (_warm_up(loaded), loaded.device)))
        while True:
            request, *arguments = connection.recv()
            send(connection, (True, loaded.outputs() if request == "outputs" else _turn(loaded, *arguments)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except CannotRunError as error:
        send(connection, (False, str(error)))
    except EdgedeployError as error:
        send(connection, (False, error))
    except BaseException as error:
        send(connection, (False, _reason(error)))


def _silence(path: Path) -> None:
    """Send what native code prints to a file: standard output belongs to the results."""
    with path.open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)


def _warm_up(loaded: Loaded) -> float:
    seconds: list[float] = []
    while len(seconds) < _WARMUP_CALLS or sum(seconds) < _WARMUP_S:
        started = perf_counter()
        loaded.run()
        seconds.append(perf_counter() - started)
    _rest()
    return float(np.median(seconds))


def _turn(loaded: Loaded, warmup: int, count: int) -> Turn:
    run = loaded.run
    for _ in range(warmup):
        run()
    seconds, kernels = [], []
    busy = process_time()
    for _ in range(count):
        started = perf_counter()
        run()
        seconds.append(perf_counter() - started)
        if loaded.kernel_seconds:
            kernels.append(loaded.kernel_seconds())
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


def _reason(error: BaseException) -> str:
    """The line of an exception that says the most: engines wrap theirs in lists of source files."""
    lines: Sequence[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[-1] if lines else "no message"
    return f"{type(error).__name__}: {line}"[:300]

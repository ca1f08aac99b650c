"""Run things that may hang or crash: functions in processes here, and programs on the board."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from edgedeploy.base.programs import script
from edgedeploy.base.workers import Worker, WorkerError, WorkerTimeoutError
from edgedeploy.doctor.check import Finding, failed, failure
from edgedeploy.errors import EdgedeployError, ending, signal_of
from edgedeploy.remote.connection import Completed
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.place import Place
from edgedeploy.target.hosts import busyness

_RUN = script(__package__, "run.sh")

# The exit code of shells for a file that cannot be executed.
CANNOT_RUN = 126


def isolated(function: Callable[..., Finding], *arguments: Any, limit_s: float, if_stuck: str = "") -> Finding:
    """The finding of a function in its own process; `failed` if it raises an error, crashes, or exceeds the limit.

    The limit is for an idle machine, with the start of the process.
    """
    limit_s *= busyness()
    look = partial(function, *arguments)
    try:
        temporary = tempfile.TemporaryDirectory()
    except OSError as error:
        return failed(f"no usable folder for temporary files: {error.strerror}", "set TMPDIR to one with free space")
    with temporary as folder, Worker(look, Path(folder, "output.txt")) as worker:
        try:
            finding: Finding = worker.start(limit_s)
        except WorkerTimeoutError:
            return failed(f"no answer within {limit_s:.0f} s", *filter(None, [if_stuck]))
        except WorkerError as error:
            return failure(error.__cause__) if isinstance(error.__cause__, EdgedeployError) else failed(str(error))
    return finding


def run_program(place: Place, program: Path, *arguments: str, limit_s: float) -> Completed:
    """Copy a program of this machine to the board, run it with a time limit, and remove it."""
    limit = f"{limit_s:.0f}"
    return place.run(_RUN, BASE, limit, *arguments, content=[program.read_bytes()], timeout_s=limit_s + 5)


def end_of(done: Completed) -> str:
    """How a program failed, in words."""
    name = signal_of(done.code)  # SIGKILL ends programs that hang
    how = f"it was ended by {name}" if name else ending(done.code)
    return f"{how}: {done.messages.splitlines()[-1]}" if done.messages else how

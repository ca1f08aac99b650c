"""Looks in a process of their own, since they may hang or crash; it is ended in time, with all that it started."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from edgedeploy.doctor.check import Finding, failed, failure
from edgedeploy.errors import EdgedeployError
from edgedeploy.hosts import busyness
from edgedeploy.workers import Worker, WorkerError, WorkerTimeoutError


def isolated(function: Callable[..., Finding], *arguments: Any, limit_s: float, if_stuck: str = "") -> Finding:
    """What the function finds; `failed` if it raises an error, crashes, or takes longer than the limit.

    Args:
        function: a function of a module.
        arguments: its arguments, which can be pickled.
        limit_s: how long it may take on an idle machine, with the start of the process.
        if_stuck: what to do where it takes longer.
    """
    limit_s *= busyness()
    look = partial(function, *arguments)
    try:
        temporary = tempfile.TemporaryDirectory()
    except OSError as error:
        return failed(f"there is no folder for temporary files: {error.strerror}", "set TMPDIR to one with room")
    with temporary as folder, Worker(look, Path(folder, "said.txt")) as worker:
        try:
            finding: Finding = worker.start(limit_s)
        except WorkerTimeoutError:
            return failed(f"no answer within {limit_s:.0f} s", *filter(None, [if_stuck]))
        except WorkerError as error:
            return failure(error.__cause__) if isinstance(error.__cause__, EdgedeployError) else failed(str(error))
    return finding

"""Functions in a process of their own, since they may hang or crash; it is ended in time, with all that it started."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from edgedeploy.doctor.check import Finding, failed, failure
from edgedeploy.errors import EdgedeployError, last_line
from edgedeploy.hosts import busyness
from edgedeploy.workers import send

_END_S = 5


def isolated(function: Callable[..., Finding], *arguments: Any, limit_s: float, if_stuck: str = "") -> Finding:
    """What the function finds; `failed` if it raises an error, crashes, or takes longer than the limit.

    Args:
        function: a function of a module.
        arguments: its arguments, which can be pickled.
        limit_s: how long it may take on an idle machine, with the start of the process.
        if_stuck: what to do where it takes longer.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, function, arguments), daemon=True)
    process.start()
    assert process.pid  # 0 would be our own group
    theirs.close()
    with ours:
        try:
            limit_s *= busyness()
            if not ours.poll(limit_s):
                return failed(f"no answer within {limit_s:.0f} s", *filter(None, [if_stuck]))
            finding = ours.recv()
            assert isinstance(finding, Finding)
            return finding
        except (EOFError, OSError):
            process.join(_END_S)
            code = process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return failed(f"it crashed ({how})")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()  # it may not have had a group of its own yet
            process.join(_END_S)


def _serve(connection: Connection, function: Callable[..., Finding], arguments: tuple[Any, ...]) -> None:
    """The process: one call, in a group of its own, of which nothing survives it."""
    os.setsid()
    signal.signal(signal.SIGTERM, lambda number, frame: os.killpg(0, signal.SIGKILL))
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    try:
        finding = function(*arguments)
    except EdgedeployError as error:
        finding = failure(error)
    except Exception as error:
        finding = failed(f"{type(error).__name__}: {last_line(error)}"[:500])
    send(connection, finding)

"""Trackers and servers that `edgedeploy rpc` runs on this machine: each is a process with a record in a file.

A record without its process is a leftover, and is removed.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from edgedeploy.base.closing import on_failure
from edgedeploy.base.documents import Record
from edgedeploy.base.files import write_text, writing
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import RpcError, UnknownNameError
from edgedeploy.virtual.process import Process

# An agent may have to be built first.
_START_S = 1800
# A server ends its agent on the board; the connection may be dead.
_END_S = 30
_LOG_CHARACTERS = 500


class Part(Record):
    """A tracker, or the servers of a command for the boards of a profile at some hosts."""

    name: str
    kind: Literal["tracker", "server"]
    addresses: list[str]  # where it listens, HOST:PORT each
    process: Process
    key: str | None = None
    board: str | None = None
    hosts: list[str] = []
    tracker: str | None = None  # with which servers are registered


@contextlib.contextmanager
def registered(part: Part) -> Iterator[Part]:
    """Keep a record of a part of this process while the block runs, under a name that no other has."""
    taken = {each.name for each in running()}
    wanted = re.sub(r"[^\w.-]", "_", part.name) or part.kind
    names = itertools.chain([wanted], (f"{wanted}-{count}" for count in itertools.count(2)))
    part = part.model_copy(update={"name": next(name for name in names if name not in taken)})
    path = _path(part.process)
    write_text(path, part.model_dump_json(indent=1) + "\n")
    try:
        yield part
    finally:
        path.unlink(missing_ok=True)


def running() -> list[Part]:
    """The parts that run, by name; leftovers of others are removed."""
    found = [_read(path) for path in _folder().glob("*.json")]
    return sorted((part for part in found if part), key=lambda part: part.name)


def require(name: str) -> Part:
    """The part of a name."""
    parts = {part.name: part for part in running()}
    if name in parts:
        return parts[name]
    raise UnknownNameError(
        f"no tracker or server {name!r} runs here",
        why=f"these run: {', '.join(parts)}" if parts else "none runs",
        hints=["list them with `edgedeploy rpc status`"],
    )


def stop(part: Part) -> None:
    """End a part, and everything that it started here and on boards."""
    part.process.end(_END_S)
    _path(part.process).unlink(missing_ok=True)


def detached(arguments: Sequence[str]) -> Part:
    """Run `edgedeploy rpc` with these arguments in the background, and wait until it serves."""
    log = _folder() / f"{time.time_ns()}.log"
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        process = Process.start([sys.executable, "-m", "edgedeploy", "rpc", *arguments], log)
    with on_failure(lambda: process.end(_END_S)):
        deadline = time.monotonic() + _START_S
        while process.alive and time.monotonic() < deadline:
            if part := _read(_path(process)):
                log.unlink()  # nobody reads it any more; the process still writes into the unnamed file
                return part
            time.sleep(0.05)
        ended = not process.alive
        output = log.read_text(encoding="utf-8", errors="replace").strip()[-_LOG_CHARACTERS:]
    process.end(_END_S)
    log.unlink()
    why = output.removeprefix("error: ") or "it printed nothing"
    raise RpcError(f"the {arguments[0]} " + ("ended at once" if ended else f"did not start in {_START_S} s"), why=why)


def _read(path: Path) -> Part | None:
    try:
        part = Part.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    if part.process.alive:
        return part
    path.unlink(missing_ok=True)
    return None


def _path(process: Process) -> Path:
    return _folder() / f"{process.pid}.json"


def _folder() -> Path:
    return user_folder("state") / "rpc"

"""A lock on a board for changes of its releases, held while the connection exists.

The lock is flock(2)'s, held by a shell on the board that waits for signs of life. It ends with that shell: when we
release it, when our process or the connection ends, and after a minute without a sign.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import time
from collections.abc import Callable, Iterator

from edgedeploy.base.programs import script
from edgedeploy.errors import BoardBusyError, BoardConnectionError, ReleaseError
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.login import BROKEN, SILENCE_S
from edgedeploy.remote.place import RemoteProgram, attended

_PATIENCE_S = 3.0
_BEAT_S = 10
_SILENCE_S = 60

_HOLD = script(__package__, "lock.sh")

Check = Callable[[], None]


@contextlib.contextmanager
def locked(connection: Connection) -> Iterator[Check]:
    """Hold the board's lock while the block runs, and remove leftovers of interrupted pushes.

    Yields a function that raises BoardConnectionError if the lock was lost.
    """
    owner = f"{getpass.getuser()} on {socket.gethostname()}, process {os.getpid()}"
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        holder = RemoteProgram(connection, _HOLD, BASE, owner, str(_SILENCE_S), timeout_s=SILENCE_S)
        try:
            answer = holder.stream.readline().decode(errors="replace").strip()
            if answer == "locked":
                break
            messages = holder.messages()
        except BROKEN as error:
            raise connection.lost(error) from error
        holder.close()
        if not answer.startswith("held by") or time.monotonic() > deadline:
            raise _refused(connection, answer, messages)
        time.sleep(0.2)

    def check() -> None:
        if not connection.alive:
            raise connection.lost()
        if holder.ended:
            hints = ["try again: files that were sent stay there"]
            raise BoardConnectionError(f"the lock on {connection.address} was lost", hints=hints)

    with attended(holder, _BEAT_S):
        yield check


def _refused(connection: Connection, answer: str, messages: str) -> Exception:
    if answer.startswith("held by"):
        return BoardBusyError(
            f"somebody else is changing the releases on {connection.address}",
            why=f"the lock is {answer}",
            hints=["wait until that is done, and try again"],
        )
    if answer == "none":
        return ReleaseError(
            f"{connection.address} has no flock", hints=["install util-linux there, or a busybox that has it"]
        )
    if not connection.alive:
        return connection.lost()
    return ReleaseError(
        f"the folder for releases on {connection.address} cannot be created",
        why=messages or None,
        hints=[f"look at ~/{BASE} there: who owns it, and whether its disk is full or read-only"],
    )

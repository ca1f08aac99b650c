"""Processes that outlive their parent and can be identified later."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from edgedeploy.base.documents import Record
from edgedeploy.base.programs import wait_until

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_END_S = 10


class Process(Record):
    """A process: PID, start in clock ticks since boot, and boot ID; PIDs are reused, the three together are not."""

    pid: int
    started: int
    boot: str

    @classmethod
    def start(cls, command: Sequence[str], log: Path) -> Process:
        """Start a program in its own session, with its output in `log`."""
        with log.open("wb") as output:
            pid = os.posix_spawnp(
                command[0],
                list(command),
                dict(os.environ),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                    (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
                ],
                setsid=True,
            )
        return cls(pid=pid, started=_started(pid) or 0, boot=_boot())

    @classmethod
    def current(cls) -> Process:
        """This process."""
        return cls(pid=os.getpid(), started=_started(os.getpid()) or 0, boot=_boot())

    @property
    def alive(self) -> bool:
        """Whether this process still runs."""
        with contextlib.suppress(ChildProcessError):  # reap it if it is our child
            os.waitpid(self.pid, os.WNOHANG)
        return self.boot == _boot() and _started(self.pid) == self.started

    def end(self, grace_s: float = 0) -> None:
        """Kill it, and wait for its end; with a grace, send SIGTERM first and wait that long."""
        if grace_s and self.alive:
            os.kill(self.pid, signal.SIGTERM)
            wait_until(lambda: not self.alive, grace_s)
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            wait_until(lambda: not self.alive, _END_S)


def _boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


def _started(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat (proc(5)); None if the process does not exist or has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()  # the program's name may hold anything
    return None if state in "ZX" else int(fields[18])

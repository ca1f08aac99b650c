"""The user's own check of a release in use: a shell command on the board, with a time limit."""

from __future__ import annotations

import time
from dataclasses import dataclass

from edgedeploy.base.programs import script, wait_until
from edgedeploy.errors import InputError, ReleaseError
from edgedeploy.release.layout import CURRENT, folder_of
from edgedeploy.remote.connection import Connection, close_channel
from edgedeploy.remote.login import BROKEN
from edgedeploy.target.board import HEALTH_CHECK_S, Board, check_command

# Only the end of a check's output is reported: errors come last.
MOST_BYTES = 4096

_POLL_S = 0.3
# The board's time after the limit, to end the check and to report that.
_GRACE_S = 20
# The exit code of timeout(1).
_TIMED_OUT = 124

CHECK = script(__package__, "health_check.sh")


@dataclass(frozen=True)
class HealthCheck:
    """A check: a command for the board's POSIX shell, and its time limit in seconds."""

    command: str
    limit_s: int = HEALTH_CHECK_S

    @classmethod
    def chosen(cls, board: Board, command: str | None, limit_s: int | None) -> HealthCheck | None:
        """The check of the command line or else of the board's profile; an empty command means none."""
        stated = board.health_check if command is None else command
        try:
            return cls(check_command(stated), limit_s or board.health_check_s) if stated else None
        except ValueError as error:
            raise InputError("invalid command in --health-check", why=str(error)) from error

    def run(self, connection: Connection, model: str, identity: str) -> str:
        """Check the release in use, in its folder; returns the end of the check's output."""
        arguments = (folder_of(model, CURRENT), str(self.limit_s), model, identity, self.command)
        channel = connection.open(CHECK, *arguments)
        printed, deadline = b"", time.monotonic() + self.limit_s + _GRACE_S
        try:
            channel.settimeout(_POLL_S)
            while time.monotonic() < deadline:
                try:
                    block = channel.recv(MOST_BYTES)
                except TimeoutError:
                    # Programs that it left running may hold its output open.
                    if channel.exit_status_ready() or not connection.alive:
                        break
                    continue
                if not block:
                    break
                printed = (printed + block)[-MOST_BYTES:]
            wait_until(lambda: channel.exit_status_ready() or not connection.alive, deadline - time.monotonic())
            code = channel.recv_exit_status() if channel.exit_status_ready() else _TIMED_OUT
        except BROKEN as error:
            raise connection.lost(error) from error
        finally:
            close_channel(channel)
        if code < 0 or not connection.alive:
            raise connection.lost()
        text = printed.decode(errors="replace").strip()
        if code == 0:
            return text
        how = f"it did not end within {self.limit_s} s" if code == _TIMED_OUT else f"it ended with code {code}"
        raise ReleaseError(
            f"the health check of {model} failed on {connection.address}", why=f"{how}:\n{text}" if text else how
        )

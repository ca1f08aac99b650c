"""Switch to a release, check it in use, and confirm it or go back.

    record "switched" -> switch -> self-test through `current` -> the user's health check -> record "confirmed"

A switch that is cut off before its last line is unconfirmed; the next switch treats it that way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from edgedeploy.base.programs import script, wait_until
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import BoardConnectionError, EdgedeployError, InputError, ReleaseError, UnhealthyReleaseError
from edgedeploy.release import steps
from edgedeploy.release.layout import CURRENT, RELEASES, TRIALS, folder_of
from edgedeploy.release.lock import Check
from edgedeploy.release.record import Entry, Event
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

HEALTH_CHECK = script(__package__, "health_check.sh")


@dataclass(frozen=True)
class HealthCheck:
    """The user's own check of a release in use: a command for the board's POSIX shell, with a time limit in seconds."""

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
        channel = connection.open(HEALTH_CHECK, *arguments)
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


def commit(
    connection: Connection,
    model: str,
    identity: str,
    check: Check,
    *,
    health: HealthCheck | None = None,
    returning: bool = False,
    progress: Progress = SILENT,
) -> tuple[dict[str, Any], str | None]:
    """Switch to a release on the board, and confirm it; the lock is held, and `check` raises if it was lost.

    Returns the agent's report of the self-test, and the health check's output. `returning` says that it is a rollback.
    """
    stock = steps.inventory(connection, model)
    record = stock.record
    back = record.way_back(stock.releases, identity)
    entries = [Entry.now(Event.FOUND, record.unknown)] if record.unknown else []
    entries.append(Entry.now(Event.RETURNED if returning else Event.SWITCHED, identity))
    check()
    with progress.stage(f"switch to {identity}"):
        steps.switch(connection, model, identity, back=back, entries=entries)
    reason = "self-test"
    try:
        with progress.stage("confirm by self-test"):
            test = steps.self_test(connection, model, f"{RELEASES}/{model}/{CURRENT}")
        printed = None
        if health:
            reason = "health-check"
            with progress.stage("confirm by health check"):
                printed = health.run(connection, model, identity)
        steps.write_record(connection, model, Entry.now(Event.CONFIRMED, identity))
    except KeyboardInterrupt:
        progress.note(f"{connection.address} was switched to {model} {identity}, which is not confirmed")
        raise
    except EdgedeployError as error:
        if not connection.alive:
            raise _unconfirmed(error, model, identity) from error
        raise _gone_back(connection, model, identity, back, reason, error) from error
    return test, printed


def _gone_back(
    connection: Connection, model: str, identity: str, back: str | None, reason: str, error: EdgedeployError
) -> EdgedeployError:
    """Go back, and return the error that reports it."""
    now = f"the board went back to {back}" if back else "nothing was in use before, so nothing of this model is now"
    try:
        if back == identity:
            now = "it was in use before and still is"
        else:
            steps.go_back(connection, model, back)
    except EdgedeployError as second:
        return _unconfirmed(second, model, identity)
    unwritten = ""
    try:
        steps.write_record(connection, model, Entry.now(Event.FAILED, identity, reason))
    except EdgedeployError as second:
        unwritten = f"; its record could not be written: {second.cause}"
    return UnhealthyReleaseError(
        f"{model} {identity} was switched to on {connection.address} and failed; {now}",
        why=f"{error.cause}{unwritten}",
        hints=["correct what the check reports, and push again", "edgedeploy releases list --history"],
    )


def _unconfirmed(error: EdgedeployError, model: str, identity: str) -> EdgedeployError:
    """The error for a switch that was neither confirmed nor undone."""
    kind = BoardConnectionError if isinstance(error, BoardConnectionError) else ReleaseError
    hint = f"the board was switched to {model} {identity} and did not confirm it: repeat the command to have it checked"
    return kind(error.what, why=error.why, hints=[*error.hints, hint, f"or: edgedeploy releases rollback {model}"])


def activate(
    connection: Connection, model: str, identity: str, check: Check, *, returning: bool = False, **options: Any
) -> None:
    """Switch to a release on the board after a self-test; the lock is held. Options are `commit`'s."""
    present = steps.inventory(connection, model).releases
    if identity not in present:
        raise ReleaseError(
            f"no release {identity} of {model} on {connection.address}",
            why=f"the board has {', '.join(present)}" if present else "the board has none of that model",
            hints=["list them with `edgedeploy releases list`"],
        )
    steps.self_test(connection, model, f"{RELEASES}/{model}/{identity}")
    commit(connection, model, identity, check, returning=returning, **options)


def previous(connection: Connection, model: str) -> str:
    """The release that was in use before, from the board's record."""
    stock = steps.inventory(connection, model)
    found = stock.record.previous(stock.releases)
    if found is None:
        current = stock.record.current
        others = [identity for identity in stock.releases if identity != current]
        raise ReleaseError(
            f"no release of {model} to go back to on {connection.address}",
            why=f"its record knows of none in use before {current}" if current else "none is in use",
            hints=[f"edgedeploy releases activate {model} {each}" for each in reversed(others)]
            or ["list them with `edgedeploy releases list`"],
        )
    return found


def sweep(connection: Connection, *, keep: int, model: str | None = None) -> list[str]:
    """Remove all but `keep` releases of a model, or of each, and all trials; returns the removed folders.

    The one in use stays, then the newest that were in use. Unused files are removed too. The lock is held.
    """
    found = steps.inventories(connection)
    unwanted = []
    for name, stock in found.items():
        if model in (None, name):
            order = stock.record.ranked(list(stock.releases))
            unwanted += [f"{RELEASES}/{name}/{identity}" for identity in order[keep:]]
            unwanted += [f"{TRIALS}/{name}/{identity}" for identity in stock.trials]
    steps.sweep(connection, unwanted)
    return sorted(unwanted)

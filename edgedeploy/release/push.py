"""Puts a release on a board, step by step; a second push goes on wherever the first one was cut off.

    probe -> gate -> lock -> take stock -> upload -> assemble -> self-test -> switch -> sweep

Nothing in use changes before the switch, and the switch is one rename.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from edgedeploy.board import load_board
from edgedeploy.errors import ReleaseError
from edgedeploy.facts import Facts
from edgedeploy.progress import SILENT, Progress
from edgedeploy.release import board as steps
from edgedeploy.release.gate import check_abi, check_space
from edgedeploy.release.layout import Release
from edgedeploy.release.lock import Check, locked
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe

DEFAULT_KEEP = 3

State = Literal["pushed", "already there", "would be pushed"]


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        model: the model.
        id: the release's name on the board; None if nothing was done.
        state: what became of it.
        current: whether it is in use now.
        uploaded: sizes of the files that were sent, or would be, in bytes, by name in the package.
        sent: bytes that were sent altogether, commands among them.
        seconds: how long it took.
        facts: what the board is.
        test: what the agent said of the self-test.
    """

    model: str
    id: str | None
    state: State
    current: bool
    uploaded: dict[str, int]
    sent: int
    seconds: float
    facts: Facts
    test: dict[str, Any] = field(default_factory=dict)


def push(
    connection: Connection,
    release: Release,
    *,
    activate: bool = True,
    dry_run: bool = False,
    keep: int = DEFAULT_KEEP,
    progress: Progress = SILENT,
) -> Pushed:
    """Put a release on a board, have it test itself there, and switch to it.

    Args:
        release: what is to be put there.
        activate: switch to it, and remove old ones; otherwise it only lies there.
        dry_run: only say what would be sent.
        keep: how many releases of the model to keep, the one in use always among them.

    Raises:
        UnsuitableBoardError: the board cannot run it; nothing was sent.
        BoardBusyError: somebody else pushes to the board.
        ReleaseError: a step failed; the release in use is as it was.
        OpenCLError: as `self_test`.
        BoardConnectionError: the connection broke.
    """
    started, sent_before = perf_counter(), connection.sent
    where = str(connection.address)
    with progress.stage(f"probe {where}"):
        facts = probe(connection)
        check_abi(f"{release.model} for board {release.manifest.board!r}", release.manifest.abi, facts, where)
        check_abi("the agent", release.agent_abi, facts, where)

    def outcome(identity: str | None, state: State, uploaded: dict[str, int], test: dict[str, Any]) -> Pushed:
        sent, seconds = connection.sent - sent_before, perf_counter() - started
        current = activate and identity is not None
        return Pushed(release.model, identity, state, current, uploaded, sent, seconds, facts, test)

    if dry_run:
        absent = steps.missing(connection, release)
        check_space(sum(map(len, absent.values())), facts, where)
        state: State = "would be pushed" if absent else "already there"
        return outcome(None, state, _sizes(release, absent), {})
    with locked(connection) as check:
        with progress.stage("take stock"):
            absent = steps.missing(connection, release)
            check_space(sum(map(len, absent.values())), facts, where)
            before = steps.releases(connection)
        if absent:
            title = f"upload {len(absent)} files"
            with progress.transfer(title, sum(map(len, absent.values()))) as advance:
                for blob, content in absent.items():
                    steps.upload(connection, blob, content, advance)
        known = _sound_release(connection, release, before) if not absent else None
        identity, test = known or _install(connection, release, before, check, progress)
        if activate:
            check()
            with progress.stage(f"switch to {identity}"):
                steps.switch(connection, release.model, identity)
            with progress.stage("sweep"):
                sweep(connection, keep=keep, model=release.model)
    return outcome(identity, "already there" if known else "pushed", _sizes(release, absent), test)


def activate(connection: Connection, model: str, identity: str, check: Check) -> dict[str, Any]:
    """Switch to a release that lies on the board, after a self-test; the lock is held.

    Raises:
        ReleaseError: there is no such release, or its self-test fails.
    """
    present = [each.id for each in steps.releases(connection) if each.model == model]
    if identity not in present:
        raise ReleaseError(
            f"there is no release {identity} of {model} on {connection.address}",
            why=f"there are {', '.join(present)}" if present else "there is none of that model",
            hints=["list them with `edgedeploy releases list`"],
        )
    test = steps.self_test(connection, model, identity)
    check()
    steps.switch(connection, model, identity)
    return test


def previous(connection: Connection, model: str) -> str:
    """The release before the one in use.

    Raises:
        ReleaseError: there is none.
    """
    present = [each for each in steps.releases(connection) if each.model == model]
    current = next((each.id for each in present if each.current), None)
    older = [each.id for each in present if current is not None and each.id < current]
    if not older:
        raise ReleaseError(
            f"there is no release of {model} to go back to on {connection.address}",
            why=f"the one in use, {current}, is the oldest" if current else "none is in use",
            hints=["list them with `edgedeploy releases list`"],
        )
    return older[-1]


def sweep(connection: Connection, *, keep: int, model: str | None = None) -> list[str]:
    """Remove all but the newest `keep` releases of a model, or of each; those in use stay.

    The lock is held. Files that no release has any more go too.
    """
    present = [each for each in steps.releases(connection) if model in (None, each.model)]
    unwanted = []
    for name in {each.model for each in present}:
        newest = sorted((each for each in present if each.model == name), key=lambda each: each.id, reverse=True)
        unwanted += [each for each in newest[keep:] if not each.current]
    steps.sweep(connection, unwanted)
    return sorted(f"{each.model}/{each.id}" for each in unwanted)


def release_for(package: Path, board_name: str, progress: Progress = SILENT) -> Release:
    """The release of a package for a board, with the agent of that board.

    Raises:
        PackageError: the package is damaged or hostile.
        ToolchainError: the agent cannot be built.
    """
    from edgedeploy.agent.build import agent_for

    board = load_board(board_name)
    return Release.of(package, agent_for(board, progress=progress).path, board)


def _install(
    connection: Connection,
    release: Release,
    present: Sequence[steps.OnBoard],
    check: Check,
    progress: Progress,
) -> tuple[str, dict[str, Any]]:
    """Put a release together whose files are all there, and test it."""
    identity = release.new_id(each.id for each in present if each.model == release.model)
    with progress.stage("assemble"):
        staged = steps.assemble(connection, release, identity)
    with progress.stage("self-test on the board"):
        test = steps.self_test(connection, release.model, staged)
    check()
    steps.publish(connection, release.model, staged, identity)
    return identity, test


def _sound_release(
    connection: Connection, release: Release, present: Sequence[steps.OnBoard]
) -> tuple[str, dict[str, Any]] | None:
    """A release of the same content that lies on the board and passes its self-test."""
    for each in reversed(present):
        if each.model == release.model and release.is_called(each.id):
            try:
                return each.id, steps.self_test(connection, each.model, each.id)
            except ReleaseError:
                continue
    return None


def _sizes(release: Release, absent: dict[str, bytes]) -> dict[str, int]:
    return {name: len(release.contents[name]) for name, blob in release.blobs.items() if blob in absent}

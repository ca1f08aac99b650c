"""Puts a release on a board, step by step; a second push goes on wherever the first one was cut off.

    probe -> gate -> lock -> take stock -> upload -> assemble -> self-test -> switch -> confirm -> sweep

Nothing in use changes before the switch, and the switch is one rename. A trial takes the steps up to the self-test, and
lies in a place of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from edgedeploy.board import Board
from edgedeploy.errors import ReleaseError
from edgedeploy.facts import Facts
from edgedeploy.package.archive import read_manifest
from edgedeploy.progress import SILENT, Progress
from edgedeploy.release import board as steps
from edgedeploy.release.gate import AccuracyRule, check_abi, check_space
from edgedeploy.release.health import HealthCheck
from edgedeploy.release.layout import RELEASES, STAGING, TRIALS, Release
from edgedeploy.release.lock import locked
from edgedeploy.release.switching import commit, sweep
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe

DEFAULT_KEEP = 3
ANY_ACCURACY = AccuracyRule()

State = Literal["pushed", "already there", "would be pushed"]


@dataclass(frozen=True, repr=False)
class Pushed:
    """What a push did.

    Attributes:
        model: the model.
        id: the release's name on the board; None if nothing was done.
        state: what became of it.
        uploaded: sizes of the files that were sent, or would be, in bytes, by name in the package.
        sent: bytes that were sent altogether, commands among them.
        seconds: how long it took.
        facts: what the board is.
        test: what the agent said of the self-test.
        health: what the health check printed; None if there is none.
        compiled_up_to: if the network has a tail, which is not computed on the board: the outputs that are.
    """

    model: str
    id: str | None
    state: State
    uploaded: dict[str, int]
    sent: int
    seconds: float
    facts: Facts
    test: dict[str, Any] = field(default_factory=dict)
    health: str | None = None
    compiled_up_to: tuple[str, ...] = ()

    def __repr__(self) -> str:
        release = f" {self.id}" if self.id else ""
        return (
            f"<edgedeploy.Pushed {self.model}{release}: {self.state}, {self.sent:,} bytes sent, {self.seconds:.1f} s>"
        )

    @property
    def current(self) -> bool:
        """Whether it is in use now."""
        return self.id is not None

    def to_dict(self) -> dict[str, Any]:
        """The object that `push --json` prints, but for where it was."""
        return {
            "model": self.model,
            "state": self.state,
            "release": self.id,
            "current": self.current,
            "uploaded": self.uploaded,
            "sent_bytes": self.sent,
            "seconds": self.seconds,
            "machine": self.facts.line(),
            "selftest": self.test,
            "health_check": self.health,
            "compiled_up_to": list(self.compiled_up_to),
        }


@dataclass(frozen=True)
class Trial:
    """A release that lies on a board and passed its self-test.

    Attributes:
        folder: where it lies, in `BASE`.
        facts: what the board is.
        test: what the agent said of the self-test.
    """

    folder: str
    facts: Facts
    test: dict[str, Any]

    @property
    def name(self) -> str:
        """What it is called on the board."""
        return self.folder.rpartition("/")[2]

    @property
    def preliminary(self) -> bool:
        """Whether it goes with the lock."""
        return self.name.startswith(STAGING)


def push(
    connection: Connection,
    release: Release,
    *,
    dry_run: bool = False,
    keep: int = DEFAULT_KEEP,
    health: HealthCheck | None = None,
    accuracy: AccuracyRule = ANY_ACCURACY,
    progress: Progress = SILENT,
) -> Pushed:
    """Put a release on a board, have it test itself there, switch to it, and confirm it.

    Args:
        release: what is to be put there.
        dry_run: send nothing; say what would be sent.
        keep: how many releases of the model to keep, the one in use always among them.
        health: the user's own check of the release in use.
        accuracy: how accurate the network must be.
    """
    started, sent_before = perf_counter(), connection.sent
    accuracy.check(release.manifest)
    facts = _suitable(connection, release, progress)
    cut_off = [entry for entry in release.manifest.entries if entry.tail]
    compiled_up_to = tuple(dict.fromkeys(spec.name for entry in cut_off for spec in entry.outputs))

    def outcome(identity: str | None, state: State, uploaded: dict[str, int], **said: Any) -> Pushed:
        sent, seconds = connection.sent - sent_before, perf_counter() - started
        return Pushed(
            release.model, identity, state, uploaded, sent, seconds, facts, compiled_up_to=compiled_up_to, **said
        )

    if dry_run:
        absent = _absent(connection, release, facts)
        return outcome(None, "would be pushed" if absent else "already there", _sizes(release, absent))
    with locked(connection) as check:
        absent = _supply(connection, release, facts, progress)
        present = steps.inventory(connection, release.model).releases
        area = f"{RELEASES}/{release.model}"
        known = None if absent else _sound(connection, release, facts, [f"{area}/{each}" for each in present])
        if known:
            identity = known.name
        else:
            identity = release.new_id(present)
            staged = _assembled(connection, release, facts, area, identity, progress)
            check()
            steps.publish(connection, area, staged.name, identity)
        confirmed = commit(connection, release.model, identity, check, health=health, progress=progress)
        with progress.stage("sweep"):
            sweep(connection, keep=keep, model=release.model)
    state: State = "already there" if known else "pushed"
    return outcome(identity, state, _sizes(release, absent), test=confirmed.test, health=confirmed.health)


def bring(connection: Connection, release: Release, *, temporarily: bool, progress: Progress = SILENT) -> Trial:
    """Put a release on a board to be tried, and have it test itself there; the lock is held.

    Nothing is put where an equal release or trial lies already.

    Args:
        release: what is to be tried.
        temporarily: what is put there is preliminary: it goes with the lock, and a program that has loaded it by then
            runs on. Otherwise it stays as the only trial of the model, so that nothing is sent the next time.
    """
    facts = _suitable(connection, release, progress)
    absent = _supply(connection, release, facts, progress)
    stock, area = steps.inventory(connection, release.model), f"{TRIALS}/{release.model}"
    trials = [f"{area}/{identity}" for identity in stock.trials]
    places = [*(f"{RELEASES}/{release.model}/{identity}" for identity in stock.releases), *trials]
    if not absent and (known := _sound(connection, release, facts, places)):
        return known
    identity = release.new_id([*stock.releases, *stock.trials])
    staged = _assembled(connection, release, facts, area, identity, progress)
    if temporarily:
        return staged
    steps.publish(connection, area, staged.name, identity)
    steps.sweep(connection, trials)
    return replace(staged, folder=f"{area}/{identity}")


def release_for(package: Path, board: Board, progress: Progress = SILENT) -> Release:
    """The release of a package for a board, with the agent of that board."""
    from edgedeploy.agent.build import agent_for

    read_manifest(package)  # an agent that is not there yet takes minutes
    return Release.of(package, agent_for(board, progress=progress).path, board)


def _suitable(connection: Connection, release: Release, progress: Progress) -> Facts:
    """What the board is, if it can run a release."""
    where = str(connection.address)
    with progress.stage(f"probe {where}"):
        facts = probe(connection)
        check_abi(f"{release.model} for board {release.manifest.board!r}", release.manifest.abi, facts, where)
        check_abi("the agent", release.agent_abi, facts, where)
    return facts


def _absent(connection: Connection, release: Release, facts: Facts) -> dict[str, bytes]:
    """The blobs that the board lacks, if it has room for them."""
    wanted = {blob: release.contents[name] for name, blob in release.blobs.items()}
    absent = steps.missing(connection, wanted)
    check_space(sum(map(len, absent.values())), facts, str(connection.address))
    return absent


def _supply(connection: Connection, release: Release, facts: Facts, progress: Progress) -> dict[str, bytes]:
    """Send the blobs that the board lacks; gives them."""
    with progress.stage("take stock"):
        absent = _absent(connection, release, facts)
    if absent:
        with progress.transfer(f"upload {len(absent)} files", sum(map(len, absent.values()))) as advance:
            for blob, content in absent.items():
                steps.upload(connection, blob, content, advance)
    return absent


def _tested(connection: Connection, release: Release, facts: Facts, folder: str) -> Trial:
    """Test what lies in a folder of `BASE`."""
    return Trial(folder, facts, steps.self_test(connection, release.model, folder))


def _assembled(
    connection: Connection, release: Release, facts: Facts, area: str, identity: str, progress: Progress
) -> Trial:
    """Put a release together whose files are all there, under a preliminary name, and test it."""
    with progress.stage("assemble"):
        staged = steps.assemble(connection, release, area, identity)
    with progress.stage("self-test on the board"):
        return _tested(connection, release, facts, f"{area}/{staged}")


def _sound(connection: Connection, release: Release, facts: Facts, places: Sequence[str]) -> Trial | None:
    """The last of some folders that has the content of a release and passes its self-test."""
    for folder in reversed(places):
        if release.is_called(folder.rpartition("/")[2]):
            with contextlib.suppress(ReleaseError):
                return _tested(connection, release, facts, folder)
    return None


def _sizes(release: Release, absent: dict[str, bytes]) -> dict[str, int]:
    return {name: len(release.contents[name]) for name, blob in release.blobs.items() if blob in absent}

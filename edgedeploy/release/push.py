"""Put releases on boards, step by step; a second push continues where the first one was cut off.

    probe -> gate -> lock -> take stock -> upload -> assemble -> self-test -> switch -> confirm -> sweep

The release in use does not change before the switch, which is one rename. A trial takes the steps up to the self-test,
in another folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, TypeAlias

from edgedeploy.base.attempts import attempted
from edgedeploy.base.progress import SILENT, Notes, Progress
from edgedeploy.errors import EdgedeployError, ReleaseError
from edgedeploy.package.archive import read_manifest
from edgedeploy.release import steps
from edgedeploy.release.gate import AccuracyRule, check_abi, check_space
from edgedeploy.release.layout import RELEASES, TRIALS, Release
from edgedeploy.release.lock import locked
from edgedeploy.release.switching import HealthCheck, commit, sweep
from edgedeploy.remote.address import Address
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe
from edgedeploy.target.board import Board
from edgedeploy.target.facts import Facts

DEFAULT_KEEP = 3
ANY_ACCURACY = AccuracyRule()

State = Literal["pushed", "already there", "would be pushed"]


@dataclass(frozen=True, repr=False)
class Pushed:
    """The result of a push."""

    model: str
    id: str | None  # the release's name on the board; None for a dry run
    state: State
    uploaded: dict[str, int]  # sizes in bytes of the files that were sent, or would be, by name in the package
    sent: int  # bytes sent altogether, with commands
    seconds: float
    facts: Facts
    test: dict[str, Any] = field(default_factory=dict)  # the agent's report of the self-test
    health: str | None = None  # the health check's output; None without one
    compiled_up_to: tuple[str, ...] = ()  # of a network with a tail, which boards do not compute: the outputs before it

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
        """The object that `push --json` prints, without the address."""
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
    """A release on a board that passed its self-test: its folder in `BASE`, and the agent's report of the test."""

    folder: str
    facts: Facts
    test: dict[str, Any]

    @property
    def name(self) -> str:
        """Its name on the board."""
        return self.folder.rpartition("/")[2]


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
    """Put a release on a board, have it test itself there, switch to it, confirm it, and sweep as `keep` says.

    `dry_run` only reports what would be sent.
    """
    started, sent_before = perf_counter(), connection.sent
    accuracy.check(release.manifest)
    facts = _suitable(connection, release, progress)
    cut_off = [entry for entry in release.manifest.entries if entry.tail]
    compiled_up_to = tuple(dict.fromkeys(spec.name for entry in cut_off for spec in entry.outputs))

    def outcome(identity: str | None, state: State, absent: dict[str, bytes], **checks: Any) -> Pushed:
        sizes = {name: len(release.contents[name]) for name, blob in release.blobs.items() if blob in absent}
        sent, seconds = connection.sent - sent_before, perf_counter() - started
        return Pushed(
            release.model, identity, state, sizes, sent, seconds, facts, compiled_up_to=compiled_up_to, **checks
        )

    if dry_run:
        absent = _absent(connection, release, facts)
        return outcome(None, "would be pushed" if absent else "already there", absent)
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
        test, printed = commit(connection, release.model, identity, check, health=health, progress=progress)
        with progress.stage("sweep"):
            sweep(connection, keep=keep, model=release.model)
    state: State = "already there" if known else "pushed"
    return outcome(identity, state, absent, test=test, health=printed)


def bring(connection: Connection, release: Release, *, temporarily: bool, progress: Progress = SILENT) -> Trial:
    """Put a release on a board as a trial, and have it test itself there; the lock is held.

    An equal release or trial on the board is used instead. `temporarily` removes the trial with the lock; a program
    that has loaded it runs on. Otherwise it stays as the only trial of the model: nothing is sent the next time.
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
    """The release of a package, with the agent for a board."""
    from edgedeploy.agent.build import agent_for

    read_manifest(package)  # before building an agent, which takes minutes
    return Release.of(package, agent_for(board, progress=progress).path, board)


def _suitable(connection: Connection, release: Release, progress: Progress) -> Facts:
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
    """Send the blobs that the board lacks, and return them."""
    with progress.stage("take stock"):
        absent = _absent(connection, release, facts)
    if absent:
        with progress.transfer(f"upload {len(absent)} files", sum(map(len, absent.values()))) as advance:
            for blob, content in absent.items():
                steps.upload(connection, blob, content, advance)
    return absent


def _assembled(
    connection: Connection, release: Release, facts: Facts, area: str, identity: str, progress: Progress
) -> Trial:
    """Assemble a release whose files are all there, under a temporary name, and test it."""
    with progress.stage("assemble"):
        staged = steps.assemble(connection, release, area, identity)
    with progress.stage("self-test on the board"):
        folder = f"{area}/{staged}"
        return Trial(folder, facts, steps.self_test(connection, release.model, folder))


def _sound(connection: Connection, release: Release, facts: Facts, places: Sequence[str]) -> Trial | None:
    """The last of some folders with the content of a release that passes its self-test."""
    for folder in reversed(places):
        if release.is_called(folder.rpartition("/")[2]):
            with contextlib.suppress(ReleaseError):
                return Trial(folder, facts, steps.self_test(connection, release.model, folder))
    return None


# The board, the model if it is known, and the outcome.
Result: TypeAlias = tuple[Address, str | None, Pushed | EdgedeployError]


def push_all(
    targets: Sequence[Address],
    releases_for_them: Callable[[], Mapping[str, Release | EdgedeployError]],
    options: dict[str, Any],
    *,
    strict: bool = False,
    progress: Progress = SILENT,
) -> list[Result]:
    """Push to all boards at the same time, to each one release after another.

    Logs in to all boards first: releases may take minutes to build, and are built only if a board answers. Connections
    that ended during the build are opened again. `releases_for_them` gives the release of each requested name, or the
    error of its build; `options` are those of `push`. With several boards, `progress` receives only notes.
    """
    alone = len(targets) == 1
    shown = progress if alone else Notes(progress)

    def logged_in(address: Address) -> Connection | EdgedeployError:
        found = attempted(partial(Connection, address, strict=strict, progress=shown))
        return stack.enter_context(found) if isinstance(found, Connection) else found

    def serve(address: Address, place: Connection | EdgedeployError) -> list[Result]:
        if isinstance(place, Connection) and not place.alive:
            place = logged_in(address)
        if isinstance(place, EdgedeployError):
            return [(address, name, place) for name in names]
        return [
            (address, name, each)
            if isinstance(each, EdgedeployError)
            else (address, each.model, attempted(partial(push, place, each, progress=shown, **options)))
            for name, each in releases.items()
        ]

    # Connections are closed before the pool waits for its threads, which would go on after Ctrl-C.
    with ThreadPoolExecutor(len(targets)) as pool, ExitStack() as stack:
        at_once = map if alone else pool.map
        places = list(at_once(logged_in, targets))
        reached = any(isinstance(place, Connection) for place in places)
        releases = releases_for_them() if reached else {}
        names: list[str | None] = [each.model if isinstance(each, Release) else name for name, each in releases.items()]
        names = names or [None]
        return [result for results in at_once(serve, targets, places) for result in results]

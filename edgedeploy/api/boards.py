"""Boards over SSH: listing, pushing and switching releases, and running networks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from edgedeploy.api.networks import Network
from edgedeploy.api.packages import AnyBoard, AnyNetwork, AnyShapes, Package, package_of, resolved
from edgedeploy.base.closing import Closing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.release.gate import AccuracyRule
from edgedeploy.release.layout import Release, check_id, check_model, made_at
from edgedeploy.release.lock import locked
from edgedeploy.release.push import DEFAULT_KEEP, Pushed, bring, push, release_for
from edgedeploy.release.record import Entry
from edgedeploy.release.steps import Inventory, inventories
from edgedeploy.release.switching import HealthCheck, activate, previous, sweep
from edgedeploy.remote.address import addresses, parse_address
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe
from edgedeploy.runtime.opening import open_on
from edgedeploy.target.facts import Facts
from edgedeploy.target.resolved import ResolvedBoard


@dataclass(frozen=True)
class OnBoard:
    """A release, or a trial, on a board."""

    model: str
    id: str
    made: datetime  # when it was created, in UTC
    kibibytes: int  # its size on disk; files shared by several releases count for each
    trial: bool  # whether it is a trial, which is never in use
    current: bool  # whether it is in use
    state: str  # its state, in a word
    history: tuple[Entry, ...] = field(repr=False)  # its events, oldest first

    @classmethod
    def of(cls, model: str, stock: Inventory) -> list[OnBoard]:
        """All releases and trials of one model: releases first, the oldest of each first."""
        record = stock.record
        return [
            cls(
                model=model,
                id=identity,
                made=made_at(identity),
                kibibytes=kibibytes,
                trial=trial,
                current=not trial and identity == record.current,
                state="trial" if trial else record.state(identity),
                history=() if trial else tuple(entry for entry in record.entries if entry.id == identity),
            )
            for trial, present in ((False, stock.releases), (True, stock.trials))
            for identity, kibibytes in present.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """The object that `releases list --json` prints."""
        return {**vars(self), "made": self.made.isoformat(), "history": [entry.to_dict() for entry in self.history]}


class Board(Closing):
    """A board that is connected over SSH; a context manager.

        with ed.connect("rpi4", host="pi@10.0.0.7") as board:
            board.push(package)
            board.open("retinaface").detect("party.jpg")

    Attributes:
        address: its address.
    """

    def __init__(self, board: ResolvedBoard | None, connection: Connection, progress: Progress = SILENT) -> None:
        """Take a connection; without a profile, releases can be listed and switched."""
        self.address = str(connection.address)
        self._board, self._connection, self._progress = board, connection, progress
        self._networks = ExitStack()

    def __repr__(self) -> str:
        return f"<edgedeploy.Board {self._board.label if self._board else ''} {self.address}>"

    @property
    def profile(self) -> ResolvedBoard:
        """The board's profile.

        Raises:
            InputError: none was named.
        """
        if self._board is None:
            raise InputError(
                f"the kind of board at {self.address} is unknown",
                hints=['name its profile: edgedeploy.connect("rpi4", host=...)'],
            )
        return self._board

    @cached_property
    def facts(self) -> Facts:
        """Facts about the board: machine, kernel, system, hardware, glibc, features, cores, memory."""
        return probe(self._connection)

    def push(
        self,
        network: AnyNetwork,
        *,
        dry_run: bool = False,
        keep: int = DEFAULT_KEEP,
        health_check: str | None = None,
        health_check_timeout: int | None = None,
        min_accuracy: float | None = None,
    ) -> Pushed:
        """Put a network on the board as a release, which is tested there, switched to, and confirmed.

        Args:
            network: a package, or a network to build unless it is up to date: a name of the zoo or a network's file.
            dry_run: report what would be sent, and send nothing.
            keep: how many releases of the model to keep.
            health_check: a shell command that checks, on the board, whether the release in use works; the profile's
                unless given, none if empty.
            health_check_timeout: its time limit in seconds.
            min_accuracy: the least accuracy of a quantised network, from 0 to 1.
        """
        release = release_of(network, self.profile, self._progress)
        health = self._health(health_check, health_check_timeout)
        rule = AccuracyRule(min_accuracy, self.profile.profile.max_accuracy_loss)
        return push(
            self._connection, release, dry_run=dry_run, keep=keep, health=health, accuracy=rule, progress=self._progress
        )

    def open(
        self,
        network: AnyNetwork,
        *,
        threads: int | None = None,
        shapes: AnyShapes | None = None,
        options: ImportOptions = AS_THE_FILE_SAYS,
        demo: str | None = None,
    ) -> Network:
        """Open a network on the board, as a trial, until it or the board is closed.

        Args:
            network: a package, or a network to build unless it is up to date: a name of the zoo or a network's file.
            threads: threads to use; as in the package unless given.
            shapes: shapes of inputs that a network's file leaves open, by name.
            options: what else it leaves open.
            demo: the demo that defines preprocessing and decoding; the network's own unless given.
        """
        board, progress = self.profile, self._progress
        package = package_of(network, board, shapes=shapes, options=options, demo=demo, progress=progress)
        with ExitStack() as stack:
            [opened] = open_on(self._connection, board.profile, [package.path], stack, threads, progress)
            return self._networks.enter_context(Network(package, opened, stack.pop_all()))

    def test(self, package: Package) -> float:
        """Have the board test a package, as a trial; returns the largest difference as a fraction of the tolerance."""
        release = release_for(package.path, self.profile.profile, self._progress)
        with locked(self._connection):
            trial = bring(self._connection, release, temporarily=False, progress=self._progress)
        return max((float(output["fraction"]) for output in trial.test["outputs"]), default=0.0)

    def releases(self, model: str | None = None) -> list[OnBoard]:
        """The releases and trials on the board, of one model or of all."""
        found = inventories(self._connection)
        return [each for name, stock in found.items() if model in (None, name) for each in OnBoard.of(name, stock)]

    def history(self) -> list[tuple[str, Entry]]:
        """The history of releases in use: models and their events, oldest first for each."""
        found = inventories(self._connection)
        return [(model, entry) for model, stock in found.items() for entry in stock.record.entries]

    def activate(
        self, model: str, release: str, *, health_check: str | None = None, health_check_timeout: int | None = None
    ) -> str:
        """Switch to a release on the board, after a self-test; returns its name.

        If a check fails, the board goes back. The health check is given as for `push`.
        """
        check_id(release)
        return self._switch(model, release, self._health(health_check, health_check_timeout))

    def rollback(self, model: str, *, health_check: str | None = None, health_check_timeout: int | None = None) -> str:
        """Switch to the previous release in use, as by `activate`; returns its name."""
        return self._switch(model, None, self._health(health_check, health_check_timeout))

    def remove_old(self, keep: int = DEFAULT_KEEP) -> list[str]:
        """Remove old releases, all trials, and files that belong to neither; returns the removed ones."""
        with locked(self._connection):
            return sweep(self._connection, keep=keep)

    def to_dict(self) -> dict[str, Any]:
        """Its profile, address, and facts."""
        label = self._board.label if self._board else None
        return {"board": label, "address": self.address, "facts": self.facts.model_dump(mode="json")}

    def close(self) -> None:
        """Close its networks and the connection."""
        try:
            self._networks.close()
        finally:
            self._connection.close()

    def _health(self, command: str | None, limit_s: int | None) -> HealthCheck | None:
        if self._board is not None or command:
            return HealthCheck.chosen(self.profile.profile, command, limit_s)
        return None

    def _switch(self, model: str, release: str | None, health: HealthCheck | None) -> str:
        check_model(model)
        with locked(self._connection) as check:
            to = release or previous(self._connection, model)
            activate(
                self._connection, model, to, check, returning=release is None, health=health, progress=self._progress
            )
        return to


def connect(
    board: AnyBoard | None = None,
    *,
    host: str | None = None,
    virtual: bool | None = None,
    strict_host_key: bool = False,
    progress: Progress = SILENT,
) -> Board:
    """Connect to a board over SSH, with the user's own keys.

    Args:
        board: its profile, by name or by the path of a YAML file. Without one, `host` says where the board is; releases
            can be listed and switched, but nothing can be built.
        host: its address, as `USER@HOST`, if not the profile's.
        virtual: whether to use the profile's virtual board, and start it if it is not running; as configured if None.
        strict_host_key: whether to refuse boards with unknown host keys.

    Raises:
        InputError: neither a profile nor a host says where the board is.
        BoardConnectionError, HostKeyError: it cannot be reached, or refuses the login.
        VirtualBoardError: this machine does not support the virtual board.
    """
    profile = None if board is None else resolved(board)
    if profile is None:
        if host is None or virtual:
            raise InputError("no board is named", hints=['name one: edgedeploy.connect("rpi4")'])
        address = parse_address(host)
    else:
        [address] = addresses(profile, [host] if host else [], virtual=virtual, progress=progress)
    return Board(profile, Connection(address, strict=strict_host_key, progress=progress), progress)


def release_of(network: AnyNetwork, board: ResolvedBoard, progress: Progress = SILENT) -> Release:
    """The release of a package, or of a network, which is built unless it is up to date."""
    return release_for(package_of(network, board, progress=progress).path, board.profile, progress)

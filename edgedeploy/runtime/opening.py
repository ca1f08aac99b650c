"""Where a package runs: in this process, or on a board over SSH."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.errors import InputError
from edgedeploy.extras import is_installed
from edgedeploy.progress import SILENT, Progress
from edgedeploy.runtime.interface import Runner

if TYPE_CHECKING:
    from edgedeploy.board import Board
    from edgedeploy.facts import Facts
    from edgedeploy.remote.connection import Connection
    from edgedeploy.resolved import ResolvedBoard


@dataclass(frozen=True)
class Place:
    """Where networks run.

    Attributes:
        board: the board.
        host: the board's address if it is not the profile's; `local` for this machine.
        virtual: whether the profile's virtual board is meant; what was set once unless given.
        strict: whether host keys must be known.

    Raises:
        InputError: both an address and the virtual board are given.
    """

    board: ResolvedBoard
    host: str | None = None
    virtual: bool | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if self.virtual and self.host:
            raise InputError("--virtual does not go with --host", hints=["give --host virtual:NAME"])

    @property
    def hosts(self) -> tuple[str, ...]:
        """The address, if one is given."""
        return (self.host,) if self.host else ()

    @property
    def remote(self) -> bool:
        """Whether that is reached over SSH."""
        from edgedeploy.facts import HERE

        if self.host == HERE:
            return False
        return bool(self.virtual) or self.host is not None or not self.board.profile.runs_here

    def emulated(self, machine: str | None) -> bool:
        """Whether that is a virtual board whose `machine` this one cannot be itself."""
        from edgedeploy.facts import VIRTUAL
        from edgedeploy.settings import whereabouts

        virtual, host = bool(self.virtual), self.host
        if not virtual and host is None and (found := whereabouts(self.board.label, virtual=self.virtual)):
            virtual, host = found.host is None, found.host
        return (virtual or (host or "").startswith(VIRTUAL)) and machine != platform.machine()


@dataclass(frozen=True)
class Opened:
    """A package that is ready to run.

    Attributes:
        runner: it.
        facts: what the board is, or None for this machine.
        agent_memory: what the agent takes of the board's memory at that moment, in bytes; None for this machine,
            where the process is Python's.
    """

    runner: Runner
    facts: Facts | None = None
    agent_memory: Callable[[], dict[str, int | None]] | None = None

    @property
    def machine(self) -> str | None:
        """The board in one line, or None for this machine."""
        return self.facts.line() if self.facts else None


@contextmanager
def opened(package: Path, place: Place, threads: int | None = None, progress: Progress = SILENT) -> Iterator[Opened]:
    """A package, ready to run where `place` says. On a board it lies afterwards as a trial, which is never in use.

    Raises:
        EdgedeployError: any of the errors of loading it here, or of bringing it to the board.
    """
    with opened_together([package], place, threads, progress) as [network]:
        yield network


@contextmanager
def opened_together(
    packages: Sequence[Path],
    place: Place,
    threads: int | None = None,
    progress: Progress = SILENT,
    *,
    temporarily: bool = False,
) -> Iterator[list[Opened]]:
    """As `opened`, for several packages at a time; on a board they share one connection.

    Args:
        packages, place, threads, progress: as for `opened`.
        temporarily: nothing of what was not on the board before stays there.
    """
    with opening(place, threads, progress, temporarily=temporarily) as open_all:
        yield open_all(packages)


@contextmanager
def opening(
    place: Place, threads: int | None = None, progress: Progress = SILENT, *, temporarily: bool = False
) -> Iterator[Callable[[Sequence[Path]], list[Opened]]]:
    """What opens packages, as often as it is called, until the block ends; on a board they share one connection.

    Args:
        place, threads, progress, temporarily: as for `opened_together`.

    Raises:
        EdgedeployError: the board cannot be reached. What it gives raises the errors of `opened`.
    """
    if not place.remote:
        with ExitStack() as stack:
            yield lambda packages: [Opened(_open_here(package, stack, threads, progress)) for package in packages]
        return
    from edgedeploy.remote.address import addresses
    from edgedeploy.remote.connection import Connection

    [address] = addresses(place.board, place.hosts, virtual=place.virtual, progress=progress)
    with ExitStack() as stack:
        connection = stack.enter_context(Connection(address, strict=place.strict, progress=progress))
        yield lambda packages: open_on(
            connection, place.board.profile, packages, stack, threads, progress, temporarily=temporarily
        )


def _open_here(package: Path, stack: ExitStack, threads: int | None, progress: Progress) -> Runner:
    """A package in this process by TVM; where that is not installed, in an agent's process, which ends with `stack`."""
    if is_installed("tvm"):
        from edgedeploy.runtime.session import Session

        return Session.open(package, threads)
    from edgedeploy.runtime.child import ChildSession

    return stack.enter_context(ChildSession(package, threads, progress))


def open_on(
    connection: Connection,
    board: Board,
    packages: Sequence[Path],
    stack: ExitStack,
    threads: int | None = None,
    progress: Progress = SILENT,
    *,
    temporarily: bool = False,
) -> list[Opened]:
    """Packages, ready to run on a board that is connected; their agents end with `stack`.

    Args:
        connection: the board.
        board: its profile.
        packages, threads, progress, temporarily: as for `opened_together`.
        stack: is given the networks.
    """
    from edgedeploy.package.members import read_tails
    from edgedeploy.release.board import sweep
    from edgedeploy.release.lock import locked
    from edgedeploy.release.push import bring, release_for
    from edgedeploy.remote.facts import BASE
    from edgedeploy.runtime.remote import RemoteSession

    releases = [release_for(package, board, progress) for package in packages]
    tails = [read_tails(package) for package in packages]
    networks, trials = [], {}
    with locked(connection):
        for release, its_tails in zip(releases, tails, strict=True):
            if release.content not in trials:  # equal packages are one trial
                trials[release.content] = bring(connection, release, temporarily=temporarily, progress=progress)
            trial = trials[release.content]
            session = RemoteSession(connection, f"{BASE}/{trial.folder}", threads, its_tails)
            stack.enter_context(session)
            networks.append(Opened(session, trial.facts, session.memory))
        # The agents have loaded them: they run on without their files.
        sweep(connection, [trial.folder for trial in trials.values() if trial.preliminary])
    return networks

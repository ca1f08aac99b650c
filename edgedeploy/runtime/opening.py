"""Open packages: in this process, or on a board over SSH."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgedeploy.base.extras import is_installed
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.runtime.timing import Timing

if TYPE_CHECKING:
    from edgedeploy.remote.connection import Connection
    from edgedeploy.target.board import Board
    from edgedeploy.target.facts import Facts
    from edgedeploy.target.resolved import ResolvedBoard


class Runner(Protocol):
    """A network that is ready to run; inputs and outputs are in the network's order."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    threads: int

    def fitting(self, tensors: Tensors) -> Runner:
        """The network for the shapes of these arrays if it was built for several shapes; `run` does this itself."""
        ...

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        """One inference: arrays by input name, to arrays by output name."""
        ...

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        """Run `warmup` times, then time `repeat` groups of `number` inferences; one time per group."""
        ...

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        """For each function of the network, by name, the time of its calls in each of `repeat` inferences, in ms."""
        ...


@dataclass(frozen=True)
class Place:
    """Where networks run."""

    board: ResolvedBoard
    host: str | None = None  # the board's address if it is not the profile's; `local` for this machine
    virtual: bool | None = None  # use the profile's virtual board; the user's setting if None
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
        """Whether this is another machine, over SSH."""
        from edgedeploy.target.facts import HERE

        if self.host == HERE:
            return False
        return bool(self.virtual) or self.host is not None or not self.board.profile.runs_here

    @property
    def is_virtual(self) -> bool:
        """Whether this is a virtual board."""
        from edgedeploy.base.settings import whereabouts
        from edgedeploy.target.facts import VIRTUAL

        host = self.host
        if not self.virtual and host is None and self.board.profile.ssh:
            found = whereabouts(self.board.label, virtual=self.virtual)
            host = (found.host or VIRTUAL) if found else None
        return bool(self.virtual) or (host or "").startswith(VIRTUAL)

    def emulated(self, machine: str | None) -> bool:
        """Whether this is a virtual board with another architecture (`machine`) than this computer's."""
        return self.is_virtual and machine != platform.machine()


@dataclass(frozen=True)
class Opened:
    """A package that is ready to run, on a board with facts or on this machine."""

    runner: Runner
    facts: Facts | None = None
    agent_memory: Callable[[], dict[str, int | None]] | None = None  # of the board's agent now, in bytes

    @property
    def machine(self) -> str | None:
        """The board in one line, or None for this machine."""
        return self.facts.line() if self.facts else None


@contextmanager
def opened(package: Path, place: Place, threads: int | None = None, progress: Progress = SILENT) -> Iterator[Opened]:
    """Open one package. On a board it stays as a trial, which is never in use."""
    with opening(place, threads, progress) as open_all:
        [network] = open_all([package])
        yield network


@contextmanager
def opening(
    place: Place, threads: int | None = None, progress: Progress = SILENT, *, temporarily: bool = False
) -> Iterator[Callable[[Sequence[Path]], list[Opened]]]:
    """A function that opens packages until the block ends; on a board they share one connection.

    `temporarily` leaves no new files on the board.
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
    """Open a package here with TVM or, if that is not installed, in an agent, which ends with `stack`."""
    if is_installed("tvm"):
        from edgedeploy.runtime.session import Session

        return Session.open(package, threads)
    from edgedeploy.runtime.served import ChildSession

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
    """Open packages on a connected board; their agents end with `stack`."""
    from edgedeploy.package.archive import read_tails
    from edgedeploy.release.layout import STAGING
    from edgedeploy.release.lock import locked
    from edgedeploy.release.push import bring, release_for
    from edgedeploy.release.steps import sweep
    from edgedeploy.remote.facts import BASE
    from edgedeploy.runtime.served import RemoteSession

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
        # The agents have loaded the temporary ones, and run on without their files.
        sweep(connection, [trial.folder for trial in trials.values() if trial.name.startswith(STAGING)])
    return networks

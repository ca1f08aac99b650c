"""What is examined: this machine, the board, and what checks found out that others build upon."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.board import Board
from edgedeploy.errors import LoginError, VirtualBoardError
from edgedeploy.facts import Facts
from edgedeploy.progress import SILENT, Progress
from edgedeploy.remote.address import Address, addresses
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.place import OnBoard, Place, ThisMachine
from edgedeploy.resolved import ResolvedBoard


@dataclass
class Case:
    """A board to examine, and this machine with it.

    Attributes:
        name, board: the profile.
        address: where the board is; None if it is this machine, or there is no virtual one.
        strict: refuse a host key that is not known.
        folder: for files that checks make; it goes when the examination ends.
        no_virtual: why there is no virtual board, where one was asked for.
        connection: once we are logged in.
        not_let_in: why we are not, though the board was reached.
        facts: what the board said of itself.
    """

    name: str
    board: Board
    address: Address | None
    strict: bool
    folder: Path
    no_virtual: VirtualBoardError | None = None
    connection: Connection | None = None
    not_let_in: LoginError | None = None
    facts: Facts | None = None

    @property
    def is_here(self) -> bool:
        """Whether the board is this machine."""
        return self.address is None and self.no_virtual is None

    @property
    def place(self) -> Place:
        """Where programs of the board run; a remote board must be logged in to."""
        return ThisMachine() if self.is_here else OnBoard(self.line)

    @property
    def line(self) -> Connection:
        """The connection to a remote board; only for checks that need `login`."""
        if self.connection is None:
            raise RuntimeError("there is no connection: the check does not say that it needs one")
        return self.connection

    @property
    def program(self) -> Path:
        """Where the check of the toolchain puts the program that it made."""
        return self.folder / "program"


@contextlib.contextmanager
def case_of(
    board: ResolvedBoard,
    hosts: Sequence[str] = (),
    *,
    virtual: bool | None = None,
    strict: bool = False,
    progress: Progress = SILENT,
) -> Iterator[Case]:
    """The case of a board; a virtual one that does not run is started."""
    address = no_virtual = None
    if hosts or virtual or board.profile.ssh:
        try:
            [address] = addresses(board, hosts, virtual=virtual, progress=progress)
        except VirtualBoardError as error:
            no_virtual = error
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgedeploy-", ignore_cleanup_errors=True))
        case = Case(board.label, board.profile, address, strict, Path(folder), no_virtual)
        try:
            yield case
        finally:
            if case.connection:
                case.connection.close()


def is_remote(case: Case) -> bool:
    """Whether the board is another machine than this one."""
    return not case.is_here

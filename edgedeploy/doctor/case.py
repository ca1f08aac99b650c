"""The case to examine: this machine, the board, and results of checks that other checks use."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import LoginError, VirtualBoardError
from edgedeploy.remote.address import Address, addresses
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.place import Place
from edgedeploy.target.board import Board
from edgedeploy.target.facts import Facts
from edgedeploy.target.resolved import ResolvedBoard


@dataclass
class Case:
    """A board to examine (`name` and `board` are its profile), and this machine with it."""

    name: str
    board: Board
    address: Address | None  # None for this machine, or without a virtual board
    strict: bool  # refuse unknown host keys
    folder: Path  # for the checks' files, removed at the end
    no_virtual: VirtualBoardError | None = None  # why there is no virtual board
    connection: Connection | None = None
    not_let_in: LoginError | None = None  # why the login failed, if the board was reached
    facts: Facts | None = None

    @property
    def is_here(self) -> bool:
        """Whether the board is this machine."""
        return self.address is None and self.no_virtual is None

    @property
    def place(self) -> Place:
        """Where the board's programs run; a remote board needs a connection."""
        return Place(None if self.is_here else self.line)

    @property
    def line(self) -> Connection:
        """The connection to a remote board, for checks that need `login`."""
        assert self.connection is not None, "there is no connection: the check does not need `login`"
        return self.connection

    @property
    def program(self) -> Path:
        """The program that the toolchain's check builds."""
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
    """The case of a board; a virtual board is started if it does not run yet."""
    address = no_virtual = None
    if hosts or virtual or board.profile.ssh:
        try:
            [address] = addresses(board, hosts, virtual=virtual, progress=progress)
        except VirtualBoardError as error:
            no_virtual = error
    with tempfile.TemporaryDirectory(prefix="edgedeploy-", ignore_cleanup_errors=True) as folder:
        case = Case(board.label, board.profile, address, strict, Path(folder), no_virtual)
        try:
            yield case
        finally:
            if case.connection:
                case.connection.close()

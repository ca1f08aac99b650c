"""Where a server of TVM's RPC runs: on this machine, or on a board over SSH. Programs are started there in one way.

A program that was started ends when its input does: when it is closed, when this process ends, or when the connection
breaks. That is all that ends it; nothing is looked up by name or number.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import paramiko

from edgedeploy.agent.build import Agent
from edgedeploy.board import Board
from edgedeploy.errors import BoardConnectionError
from edgedeploy.package.abi import read_abi
from edgedeploy.progress import Progress
from edgedeploy.release.board import present, upload
from edgedeploy.release.gate import check_abi, check_space
from edgedeploy.release.lock import locked
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address
from edgedeploy.remote.connection import Connection, close_channel
from edgedeploy.remote.facts import BASE, probe
from edgedeploy.remote.login import BROKEN
from edgedeploy.remote.tunnel import backward, forward
from edgedeploy.rpc.tracker import Endpoint

_COMMAND_S = 60
_END_S = 10


class Program(Protocol):
    """A shell script that runs: its output line by line, its input, and its end."""

    @property
    def ended(self) -> bool:
        """Whether it has ended, as far as is known."""

    def lines(self) -> Iterator[str]:
        """What it prints, until it ends."""

    def beat(self) -> None:
        """Send it a sign of life; one that has ended does not mind."""

    def close(self) -> None:
        """End its input, and wait until it has ended."""


class Place(Protocol):
    """A machine that a server may run on."""

    @property
    def alive(self) -> bool:
        """Whether it is in reach, as far as is known."""

    @property
    def base(self) -> str:
        """The folder for all that is written there, absolute or relative to the home folder."""

    def put_agent(self, agent: Agent, board: Board) -> str:
        """See to it that the agent of a board is there and can run; gives a path, or the name of its blob in `base`."""

    def start(self, script: str, *arguments: str) -> Program:
        """Start a POSIX shell script with arguments `$1`, `$2`, ..."""

    def run(self, script: str) -> str:
        """What a POSIX shell script prints, whatever its exit code."""

    def forward(self, port_there: Callable[[], int], port: int) -> AbstractContextManager[int | None]:
        """A port here, the given one if it is free, that leads to one there; None if nothing lies between."""

    def backward(self, endpoint: Endpoint) -> AbstractContextManager[Endpoint]:
        """Where programs there reach what listens at an endpoint."""

    def abandon(self) -> None:
        """Give up what may not answer any more, so that nothing that is still to be closed waits for it."""


class ThisMachine:
    """This machine."""

    alive = True

    @property
    def base(self) -> str:
        """The user's own folder."""
        import platformdirs

        return str(Path(platformdirs.user_data_dir("edgedeploy")).absolute())

    def put_agent(self, agent: Agent, board: Board) -> str:
        """The agent runs where it was built."""
        return str(agent.path)

    def start(self, script: str, *arguments: str) -> Program:
        """Start a script, in a session of its own: Ctrl-C in a terminal reaches only who ends it."""
        return _Child(
            subprocess.Popen(
                ["sh", "-c", script, "sh", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

    def run(self, script: str) -> str:
        """What a script prints.

        Raises:
            BoardConnectionError: it does not end.
        """
        command = ["sh", "-c", script]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BoardConnectionError(f"a command did not end within {_COMMAND_S} s", why=script.strip()) from error
        return done.stdout.decode(errors="replace").strip()

    def forward(self, port_there: Callable[[], int], port: int) -> AbstractContextManager[int | None]:
        """Nothing lies between."""
        return nullcontext(None)

    def backward(self, endpoint: Endpoint) -> AbstractContextManager[Endpoint]:
        """Nothing lies between."""
        return nullcontext(endpoint)

    def abandon(self) -> None:
        """Programs here end with their input, at once."""


class OnBoard:
    """A board that we are logged in to."""

    base = BASE

    def __init__(self, connection: Connection, progress: Progress) -> None:
        self._connection = connection
        self._progress = progress

    @property
    def alive(self) -> bool:
        """Whether the connection stands."""
        return self._connection.alive

    def put_agent(self, agent: Agent, board: Board) -> str:
        """Send the agent as a blob, as pushing does, unless it is there: one that is found need not be sent again.

        Raises:
            UnsuitableBoardError: the board cannot run it, or has no room for it.
            BoardBusyError, ReleaseError, BoardConnectionError: as `push`.
        """
        where = str(self._connection.address)
        facts = probe(self._connection)
        check_abi(f"the agent for {board.triple}", read_abi(agent.path, board), facts, where)
        content = agent.path.read_bytes()
        blob = hashlib.sha256(content).hexdigest()
        if blob not in present(self._connection, [blob]):
            check_space(len(content), facts, where)
            title = f"send the agent to {where}"
            with locked(self._connection), self._progress.transfer(title, len(content)) as advance:
                upload(self._connection, blob, content, advance)
        return blob

    def start(self, script: str, *arguments: str) -> Program:
        """Start a script over SSH."""
        return _Remote(self._connection, self._connection.open(script, *arguments))

    def run(self, script: str) -> str:
        """What a script prints.

        Raises:
            BoardConnectionError: the connection broke, or it says nothing for long.
        """
        return self._connection.run(script, timeout_s=_COMMAND_S).text

    def forward(self, port_there: Callable[[], int], port: int) -> AbstractContextManager[int | None]:
        """Through the SSH connection."""
        return forward(self._connection, port_there, port)

    @contextlib.contextmanager
    def backward(self, endpoint: Endpoint) -> Iterator[Endpoint]:
        """Through the SSH connection."""
        with backward(self._connection, endpoint.port, endpoint.host) as port:
            yield Endpoint(LOOPBACK, port)

    def abandon(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextlib.contextmanager
def opened(address: Address | None, *, strict: bool, progress: Progress) -> Iterator[Place]:
    """The place at an address, or this machine if it is None, while the block runs.

    Raises:
        BoardConnectionError, HostKeyError: as `Connection`.
    """
    if address is None:
        yield ThisMachine()
        return
    with Connection(address, strict=strict, progress=progress) as connection:
        yield OnBoard(connection, progress)


class _Child:
    """A program on this machine."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def lines(self) -> Iterator[str]:
        with self._output:
            for line in self._output:
                yield line.decode(errors="replace").rstrip("\n")

    def beat(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._input.write(b"\n")
            self._input.flush()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._input.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            # Without the shell, its agent gets no more signs of life, and ends.
            self._process.kill()
            self._process.wait()


class _Remote:
    """A program on a board."""

    def __init__(self, connection: Connection, channel: paramiko.Channel) -> None:
        self._connection, self._channel = connection, channel
        channel.settimeout(None)

    @property
    def ended(self) -> bool:
        return self._channel.exit_status_ready() or self._channel.closed or not self._connection.alive

    def lines(self) -> Iterator[str]:
        with contextlib.suppress(*BROKEN), self._channel.makefile("r") as stream:
            for line in stream:
                yield line.rstrip("\n")

    def beat(self) -> None:
        with contextlib.suppress(*BROKEN):
            self._channel.sendall(b"\n")

    def close(self) -> None:
        with contextlib.suppress(*BROKEN):
            self._channel.shutdown_write()
        deadline = time.monotonic() + _END_S
        while not self.ended and time.monotonic() < deadline:
            time.sleep(0.01)
        close_channel(self._channel)

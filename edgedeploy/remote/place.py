"""Run scripts and start programs on this machine or on a board, through one interface.

A started program ends when its input does: when it is closed, when this process ends, or when the connection breaks.
Nothing else ends it; no program is looked up by name or number.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import paramiko

from edgedeploy.base.progress import Progress
from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address
from edgedeploy.remote.connection import COMMAND_S, Completed, Connection, close_channel
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.login import BROKEN
from edgedeploy.remote.tunnel import backward, forward

_END_S = 10


class ThisMachine:
    """This machine, without a connection."""

    connection: Connection | None = None
    alive = True

    @property
    def base(self) -> str:
        """The folder for all files: the user's data folder."""
        import platformdirs

        return str(Path(platformdirs.user_data_dir("edgedeploy")).absolute())

    def run(
        self, script: str, *arguments: str, content: Iterable[bytes] = (), timeout_s: float = COMMAND_S
    ) -> Completed:
        """Run a script as `Connection.run` does; after the timeout it is ended with all that it started."""
        process = _started(script, arguments, subprocess.PIPE)
        try:
            output, messages = process.communicate(b"".join(content), timeout_s)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise BoardConnectionError(f"a command did not end within {timeout_s:g} s") from error
        return Completed(process.returncode, output, messages.decode(errors="replace").strip())

    def start(self, script: str, *arguments: str) -> Program:
        """Start a script with arguments `$1`, `$2`, ..."""
        return _Child(_started(script, arguments, subprocess.STDOUT))

    def forward(self, port_there: Callable[[], int], port: int) -> AbstractContextManager[int | None]:
        """As `OnBoard.forward`: None, since ports are the same."""
        return nullcontext(None)

    def backward(self, host: str, port: int) -> AbstractContextManager[tuple[str, int]]:
        """As `OnBoard.backward`: the same host and port."""
        return nullcontext((host, port))

    def abandon(self) -> None:
        """Do nothing: programs here end with their input."""


class OnBoard:
    """A connected board; `base` is the folder for all files, relative to the home folder."""

    base = BASE

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.run = connection.run

    @property
    def alive(self) -> bool:
        """Whether the connection exists."""
        return self.connection.alive

    def start(self, script: str, *arguments: str) -> Program:
        """Start a script over SSH."""
        return _Remote(self.connection, self.connection.open(script, *arguments))

    def forward(self, port_there: Callable[[], int], port: int) -> AbstractContextManager[int | None]:
        """A local port, `port` if it is free, that leads to one on the board through the SSH connection."""
        return forward(self.connection, port_there, port)

    @contextlib.contextmanager
    def backward(self, host: str, port: int) -> Iterator[tuple[str, int]]:
        """Host and port on the board that lead to `host` and `port` here, through the SSH connection."""
        with backward(self.connection, port, host) as there:
            yield LOOPBACK, there

    def abandon(self) -> None:
        """Close the connection, so that no later step waits for a board that does not answer."""
        self.connection.close()


Place = ThisMachine | OnBoard


@contextlib.contextmanager
def opened(address: Address | None, *, strict: bool, progress: Progress) -> Iterator[Place]:
    """The place at an address, or this machine if it is None."""
    if address is None:
        yield ThisMachine()
        return
    with Connection(address, strict=strict, progress=progress) as connection:
        yield OnBoard(connection)


def _started(script: str, arguments: Iterable[str], messages: int) -> subprocess.Popen[bytes]:
    """Start a script in its own session: Ctrl-C in a terminal reaches only this process, which ends the script."""
    command = ["sh", "-c", script, "sh", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=messages, start_new_session=True)


def end_child(process: subprocess.Popen[bytes]) -> None:
    """Close a process's input, and wait for its end; kill it if that takes too long."""
    with contextlib.suppress(OSError):  # it has ended
        if process.stdin:
            process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Child:
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
        end_child(self._process)  # without the shell, its agent gets no more signs of life and ends


class _Remote:
    """A script that runs on a board, as `_Child`."""

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


Program = _Child | _Remote

"""Run scripts and start programs on this machine or on a board, through one interface.

A started program ends when its input does: when it is closed, when this process ends, or when the connection breaks.
Nothing else ends it; no program is looked up by name or number.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator

from edgedeploy.base.closing import beside
from edgedeploy.base.programs import end_child, wait_until
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import BoardConnectionError, EdgedeployError, ending
from edgedeploy.remote.connection import COMMAND_S, Completed, Connection, close_channel
from edgedeploy.remote.facts import BASE
from edgedeploy.remote.failures import agent_ended, failure
from edgedeploy.remote.login import BROKEN

_END_S = 10


class Place:
    """A connected board, or this machine without a connection."""

    def __init__(self, connection: Connection | None = None) -> None:
        self.connection = connection

    @property
    def base(self) -> str:
        """The folder for all files, relative to the home folder on a board."""
        return BASE if self.connection else str(user_folder("data").absolute())

    @property
    def alive(self) -> bool:
        """Whether it can be reached, as far as is known."""
        return self.connection is None or self.connection.alive

    def run(
        self, script: str, *arguments: str, content: Iterable[bytes] = (), timeout_s: float = COMMAND_S
    ) -> Completed:
        """Run a script as `Connection.run` does; here it is ended after the timeout, with all that it started."""
        if self.connection:
            return self.connection.run(script, *arguments, content=content, timeout_s=timeout_s)
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
        if self.connection:
            return RemoteProgram(self.connection, script, *arguments)
        return ChildProgram(script, *arguments)


def _started(script: str, arguments: Iterable[str], messages: int) -> subprocess.Popen[bytes]:
    """Start a script in its own session: Ctrl-C in a terminal reaches only this process, which ends the script."""
    command = ["sh", "-c", script, "sh", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=messages, start_new_session=True)


class ChildProgram:
    """A script that runs on this machine; `stream` is its standard output."""

    def __init__(self, script: str, *arguments: str) -> None:
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the program
        self._process = _started(script, arguments, self._messages.fileno())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self.stream = self._process.stdin, self._process.stdout

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def lines(self) -> Iterator[str]:
        """The lines that it prints."""
        with self.stream:
            for line in self.stream:
                yield line.decode(errors="replace").rstrip("\n")

    def send(self, content: bytes) -> None:
        """Write to its standard input; an OSError if it has ended."""
        self._input.write(content)
        self._input.flush()

    def failure(self, what: str) -> EdgedeployError:
        """The error, with message `what`, for an agent that ended."""
        code = self._process.wait()
        self._messages.seek(0)
        return failure(code, what, self._messages.read().decode(errors="replace").strip() or ending(code))

    def close(self) -> None:
        """End its input, and wait for its end; its output can still be read."""
        end_child(self._process)  # without the shell, its agent gets no more signs of life and ends
        self._messages.close()


class RemoteProgram:
    """A script that runs on a board, as `ChildProgram`; reading may take `timeout_s`, or forever."""

    def __init__(self, connection: Connection, script: str, *arguments: str, timeout_s: float | None = None) -> None:
        self._connection, self._channel = connection, connection.open(script, *arguments)
        self._channel.settimeout(timeout_s)
        self.stream = self._channel.makefile("rb")

    @property
    def ended(self) -> bool:
        """Whether it has ended, or its connection."""
        return self._channel.exit_status_ready() or self._channel.closed or not self._connection.alive

    def lines(self) -> Iterator[str]:
        """The lines that it prints."""
        with contextlib.suppress(*BROKEN), self.stream:
            for line in self.stream:
                yield line.decode(errors="replace").rstrip("\n")

    def send(self, content: bytes) -> None:
        """Write to its standard input; an OSError if it has ended."""
        try:
            self._channel.sendall(content)
        except BROKEN as error:
            raise OSError(str(error)) from error

    def failure(self, what: str) -> EdgedeployError:
        """The error, with message `what`, for an agent that ended, or for a broken connection."""
        return agent_ended(self._connection, self._channel, what)

    def messages(self) -> str:
        """Everything that it writes to standard error until its end."""
        return self._channel.makefile_stderr("rb").read().decode(errors="replace").strip()

    def close(self) -> None:
        """End its input, and wait for its end."""
        with contextlib.suppress(*BROKEN):
            self._channel.shutdown_write()
            wait_until(lambda: self.ended, _END_S)
        close_channel(self._channel)


Program = ChildProgram | RemoteProgram


@contextlib.contextmanager
def attended(program: Program, interval_s: float) -> Iterator[None]:
    """Send a program a line as a heartbeat every `interval_s` while the block runs, and close it then."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(interval_s):
            with contextlib.suppress(OSError, ValueError):  # it has ended
                program.send(b"\n")

    def end() -> None:
        done.set()
        program.close()

    with beside(beat, end):
        yield

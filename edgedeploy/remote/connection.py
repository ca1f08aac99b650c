"""Commands on a board over SSH: with input and output, or channels that stay open.

`login` makes the connection. The board needs only sshd and a POSIX shell.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import paramiko

from edgedeploy.base.closing import Closing
from edgedeploy.base.programs import wait_until
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import BoardConnectionError, last_line
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address
from edgedeploy.remote.login import BROKEN, CONNECT_S, SILENCE_S, Login

COMMAND_S = 120

_BLOCK = 1 << 15

# RFC 4254, section 5.1. OpenSSH answers with the second one above its MaxSessions.
_PROHIBITED, _FAILED = 1, 2
_FORWARDING = ("forwards no ports", "AllowTcpForwarding, DisableForwarding, PermitOpen and PermitListen")


@dataclass(frozen=True)
class Completed:
    """A command that ran on a board: its exit code, standard output and standard error."""

    code: int
    output: bytes
    messages: str

    @property
    def text(self) -> str:
        """The output as text, without white space at its ends."""
        return self.output.decode(errors="replace").strip()


class Connection(Closing):
    """A board that we are logged in to; a context manager.

    Counts the bytes `sent` so far, and says where the board's host key is `known_from`.
    """

    def __init__(self, address: Address, *, strict: bool = False, progress: Progress = SILENT) -> None:
        """Log in; `strict` refuses unknown host keys, `progress` gets a note when one is recorded."""
        self.address = address
        self.sent = 0
        self._strict = strict
        self._logins = [Login(address, strict=strict, progress=progress)]
        self.known_from = self._logins[0].known_from
        self._transport = self._logins[0].transport

    def close(self) -> None:
        """Log out; programs that still run in channels of this connection lose their input."""
        for login in self._logins:
            with contextlib.suppress(Exception):
                login.close()

    def run(
        self,
        script: str,
        *arguments: str,  # `$1`, `$2`, ... in it, with any characters
        content: Iterable[bytes] = (),  # its standard input
        timeout_s: float = COMMAND_S,  # how long it may print nothing once it has its input
        advance: Callable[[int], None] = lambda count: None,  # called with the size of each part that was sent
    ) -> Completed:
        """Run a POSIX shell script on the board and wait for its end."""
        mark = secrets.token_hex(8)
        # Without content there is no input to end: paramiko might do that after the script has closed the channel, and
        # then OpenSSH ends the whole connection.
        source = "" if content else " </dev/null"
        with _closing(self._start(f"echo {mark}; echo {mark} >&2\n{script}", arguments, source)) as channel:
            for block in content:
                view = memoryview(block)
                for start in range(0, len(view), _BLOCK):
                    part = bytes(view[start : start + _BLOCK])
                    if not self._send(channel, part):
                        break
                    advance(len(part))
            if content:
                with contextlib.suppress(*BROKEN):
                    channel.shutdown_write()
            return self._completed(channel, mark, timeout_s)

    def open(self, script: str, *arguments: str) -> paramiko.Channel:
        """Start a POSIX shell script on the board; the channel is its input and output."""
        mark = secrets.token_hex(8)
        channel = self._start(f"echo {mark}\n{script}", arguments)
        before, ending = b"", f"{mark}\n".encode()
        try:
            channel.settimeout(COMMAND_S)
            while not before.endswith(ending) and (byte := channel.recv(1)):
                before = before[-len(ending) :] + byte
            channel.settimeout(SILENCE_S)
        except BROKEN as error:
            raise self.lost(error) from error
        return channel

    def _start(self, script: str, arguments: Iterable[str], source: str = "") -> paramiko.Channel:
        """Start a script. Output of `~/.ssh/rc` and the login shell's start-up files may come before the mark."""
        command = shlex.join(["exec", "sh", "-c", script, "sh", *arguments]) + source
        try:
            channel = self._session()
            channel.settimeout(SILENCE_S)
            channel.exec_command(command)
        except BROKEN as error:
            raise self.lost(error) from error
        self.sent += len(command)
        return channel

    def _session(self) -> paramiko.Channel:
        """A new session, on a further connection if the SSH server allows no more sessions on the present ones."""
        # OpenSSH counts a closed session until it has looked for another message.
        for known in reversed(self._logins):
            for _ in range(2):
                try:
                    return known.transport.open_session(timeout=CONNECT_S)
                except paramiko.ChannelException as error:
                    if error.code != _FAILED:
                        raise
        login = Login(self.address, strict=self._strict, progress=SILENT)
        try:
            channel = login.transport.open_session(timeout=CONNECT_S)
        except BaseException as error:
            login.close()
            if isinstance(error, paramiko.ChannelException) and error.code == _FAILED:
                raise self._forbidden("allows no session", "MaxSessions") from error
            raise
        self._logins.append(login)
        return channel

    def reach(self, port: int) -> paramiko.Channel:
        """A TCP connection to a port of the board's loopback interface."""
        try:
            return self._transport.open_channel("direct-tcpip", (LOOPBACK, port), (LOOPBACK, 0), timeout=CONNECT_S)
        except paramiko.ChannelException as error:
            if error.code == _PROHIBITED:
                raise self._forbidden(*_FORWARDING) from error
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens on port {port} there") from error
        except BROKEN as error:
            raise self.lost(error) from error

    def listen(self, handler: Callable[[paramiko.Channel], None]) -> int:
        """Have the board's SSH server listen on a free port of its loopback interface, which is returned.

        One port per connection at a time. `handler` is called with each TCP connection, and must not block.
        """
        try:
            return int(self._transport.request_port_forward(LOOPBACK, 0, lambda channel, *ends: handler(channel)))
        except BROKEN as error:
            raise (self._forbidden(*_FORWARDING) if self.alive else self.lost(error)) from error

    def listen_no_more(self, port: int) -> None:
        """End what `listen` began, without waiting for the answer."""
        with contextlib.suppress(*BROKEN):
            self._transport.global_request("cancel-tcpip-forward", (LOOPBACK, port), wait=False)

    def _forbidden(self, what: str, settings: str) -> BoardConnectionError:
        return BoardConnectionError(
            f"the SSH server on {self.address} {what}", hints=[f"look for {settings} in its sshd_config"]
        )

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source`, both relative to the home folder, atomically as rename(2) does.

        Plain `mv` would move it into the folder that a link at `target` leads to, and some boards lack `mv -T`. Raises
        OSError if the board refuses.
        """
        try:
            with _closing(self._session()) as channel:
                channel.settimeout(SILENCE_S)
                channel.invoke_subsystem("sftp")
                paramiko.SFTPClient(_AfterText(channel)).posix_rename(source, target)  # type: ignore[arg-type]
        except (*BROKEN, paramiko.SFTPError) as error:
            if not self.alive:
                raise self.lost(error) from error
            if isinstance(error, OSError):
                raise
            raise BoardConnectionError(
                f"{self.address} has no SFTP", why=last_line(error), hints=["apt-get install openssh-sftp-server there"]
            ) from error

    def lost(self, error: BaseException | None = None) -> BoardConnectionError:
        """The error for a connection that broke."""
        return BoardConnectionError(
            f"the connection to {self.address} broke",
            why=(last_line(error) if error and str(error) else "the board does not answer any more"),
            hints=["check that the board has power and network, and try again: files that were sent stay there"],
        )

    @property
    def alive(self) -> bool:
        """Whether the connection still exists, as far as is known."""
        return all(login.transport.is_active() for login in self._logins)

    def _send(self, channel: paramiko.Channel, part: bytes) -> bool:
        """Send a part; False if the command has ended without reading it."""
        try:
            channel.sendall(part)
        except BROKEN as error:
            if isinstance(error, (TimeoutError, EOFError)) or not self.alive:
                raise self.lost(error) from error
            return False
        self.sent += len(part)
        return True

    def _completed(self, channel: paramiko.Channel, mark: str, timeout_s: float) -> Completed:
        channel.settimeout(timeout_s)
        try:
            output = b"".join(iter(lambda: channel.recv(_BLOCK), b""))
            messages = b"".join(iter(lambda: channel.recv_stderr(_BLOCK), b""))
        except TimeoutError as error:
            raise BoardConnectionError(
                f"a command on {self.address} printed nothing for {timeout_s:g} s",
                hints=["look at the board: it may be out of memory"],
            ) from error
        wait_until(lambda: channel.exit_status_ready() or not self.alive, CONNECT_S, 0.005)
        code = channel.recv_exit_status() if channel.exit_status_ready() else -1
        if code < 0 and not self.alive:
            raise self.lost()
        ending = f"{mark}\n".encode()
        output, messages = output.rpartition(ending)[2], messages.rpartition(ending)[2]
        return Completed(code, output, messages.decode(errors="replace").strip())


class _AfterText:
    """A channel for SFTP without text before its first packet, whose length begins with a zero byte."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._begun = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def recv(self, count: int) -> bytes:
        content = self._channel.recv(count if self._begun else 1)
        while content and not self._begun:
            self._begun = content == b"\0"
            if not self._begun:
                content = self._channel.recv(1)
        return content


def close_channel(channel: paramiko.Channel) -> None:
    """Close a channel, even of a lost connection, for which paramiko would raise an error."""
    with contextlib.suppress(*BROKEN):
        channel.close()


@contextlib.contextmanager
def _closing(channel: paramiko.Channel) -> Iterator[paramiko.Channel]:
    try:
        yield channel
    finally:
        close_channel(channel)

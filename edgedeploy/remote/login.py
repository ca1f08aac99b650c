"""Log in to a board, through jump hosts or a proxy command if one is configured."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
from paramiko.common import MSG_CHANNEL_REQUEST

from edgedeploy.base.closing import Closing, on_failure
from edgedeploy.base.programs import end_child
from edgedeploy.base.progress import Progress
from edgedeploy.errors import BoardConnectionError, LoginError, last_line
from edgedeploy.remote.address import Address
from edgedeploy.remote.hostkeys import HostKeys, key_blob, known_hosts_file
from edgedeploy.remote.openssh import Settings, route

# Errors that paramiko logs also raise an exception, which we report.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

CONNECT_S = 15

# A connection that is silent for so long is broken; TCP alone would wait for a quarter of an hour.
SILENCE_S = 30
_KEEPALIVE_S = 5
_END_S = 2

# paramiko's exceptions for a broken connection, depending on the moment.
BROKEN = (paramiko.SSHException, OSError, EOFError)

_ALTERNATIVES = ("say where the board is: --host USER@ADDRESS", "do without a board: --virtual")


def _on_request(channel: paramiko.Channel, message: paramiko.Message) -> None:
    """Handle the end of a command by a signal (RFC 4254, section 6.10), which paramiko ignores."""
    if message.get_text() == "exit-signal":
        message.get_boolean()
        named = getattr(signal, f"SIG{message.get_text().partition('@')[0].removeprefix('SIG')}", None)
        channel.exit_status = 128 + named if isinstance(named, signal.Signals) else -1
        channel.status_event.set()
    else:
        message.rewind()
        message.get_int()
        paramiko.Channel._handle_request(channel, message)  # type: ignore[attr-defined]


class _Transport(paramiko.Transport):
    """A connection whose commands have a shell's exit codes for signals: 128 plus the number."""

    _channel_handler_table = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: _on_request,
    }


class Login(Closing):
    """A board that we are logged in to; a context manager. `known_from` is the source of its known host key."""

    transport: paramiko.Transport
    known_from: str

    def __init__(self, address: Address, *, strict: bool, progress: Progress) -> None:
        """Log in as `Connection` does. If that fails, nothing stays open."""
        self._source = f"; {address.said_by} names this host" if address.said_by else ""
        hops = route(address, progress)
        record = None if address.known_hosts else known_hosts_file()
        self._opened = contextlib.ExitStack()
        with on_failure(self.close):
            before = None
            for hop in hops:
                who = str(address) if hop is hops[-1] else f"jump host {hop.name}"
                keys = HostKeys(hop, record=record, strict=strict, progress=progress)
                before = self._reach(hop, who, keys, before)
                self.known_from = _let_in(before, hop, who, keys)
                before.set_keepalive(_KEEPALIVE_S)
                self.transport = before

    def close(self) -> None:
        """Log out, also from jump hosts."""
        self._opened.close()

    def _reach(self, hop: Settings, who: str, keys: HostKeys, before: paramiko.Transport | None) -> paramiko.Transport:
        """An SSH connection to a host, whose key is not checked yet."""
        last_message: Callable[[], str | None] = str
        try:
            stream: socket.socket | paramiko.Channel
            if before is not None:
                stream = before.open_channel("direct-tcpip", (hop.host, hop.port), ("", 0), timeout=CONNECT_S)
                self._opened.callback(stream.close)
            elif hop.command is not None:
                stream, last_message = self._opened.enter_context(_program(hop.command))
            else:
                stream = self._opened.enter_context(socket.create_connection((hop.host, hop.port), CONNECT_S))
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)
                # Requests and replies are small and wait for each other.
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport = _Transport(stream)
            self._opened.callback(transport.close)
            transport.banner_timeout = transport.auth_timeout = CONNECT_S
            transport.handshake_timeout = 2 * CONNECT_S  # at its end paramiko raises a bare EOFError
            algorithms = transport.get_security_options()
            algorithms.key_types = keys.ordered(algorithms.key_types)
            transport.start_client(timeout=CONNECT_S)
            if not transport.initial_kex_done:  # paramiko continues after the timeout
                raise TimeoutError(f"its SSH server did not answer within {CONNECT_S} s")
        except (socket.gaierror, UnicodeError) as error:  # UnicodeError: an impossible host name
            raise BoardConnectionError(
                f"unknown host {hop.host}",
                why=f"{getattr(error, 'strerror', None) or error}{self._source}",
                hints=[*hints_for_name(hop.host), *_ALTERNATIVES],
            ) from error
        except BROKEN as error:
            why = last_message() or getattr(error, "strerror", None) or getattr(error, "text", None) or last_line(error)
            raise BoardConnectionError(
                f"{who} cannot be reached",
                why=f"{why}{self._source}",
                hints=["check that it is switched on and runs an SSH server", *_ALTERNATIVES],
            ) from error
        return transport


def hints_for_name(host: str) -> list[str]:
    """Hints for a host name without an address."""
    if not host.endswith(".local"):
        return []
    return [f"for names in .local: sudo apt install libnss-mdns; then try `getent hosts {host}`"]


def destination(address: Address) -> tuple[str, int] | None:
    """The host and port of a login; None through jump hosts or a command."""
    [first, *others] = route(address)
    return None if others or first.command else (first.host, first.port)


@contextlib.contextmanager
def _program(command: str) -> Iterator[tuple[socket.socket, Callable[[], str | None]]]:
    """Run a ProxyCommand in the user's shell: its input and output as one stream, and its last error message."""
    near, far = socket.socketpair()
    with near, tempfile.TemporaryFile() as messages:
        with far:
            shell = os.environ.get("SHELL", "/bin/sh")
            process = subprocess.Popen(
                [shell, "-c", f"exec {command}"], stdin=far.fileno(), stdout=far.fileno(), stderr=messages.fileno()
            )

        def last_message() -> str | None:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), None)

        try:
            yield near, last_message
        finally:
            near.close()
            process.terminate()
            end_child(process, _END_S)


def _let_in(transport: paramiko.Transport, hop: Settings, who: str, keys: HostKeys) -> str:
    """Check the host's key, then offer ours one by one. Returns where the host's key is known from."""
    known_from = keys.check(transport.get_remote_server_key())
    why, locked = "no key to offer", []
    with contextlib.ExitStack() as agents:
        for offer in _offers(hop, agents):
            try:
                key = paramiko.PKey.from_path(offer) if isinstance(offer, Path) else offer
            except (paramiko.PasswordRequiredException, TypeError):  # TypeError is cryptography's
                locked.append(offer)
                continue
            except Exception:  # any error of two libraries' parsers for a file that is not a private key
                continue
            try:
                further = transport.auth_publickey(hop.user, key)
            except paramiko.BadAuthenticationType as error:
                why = f"it does not accept keys, but {' or '.join(error.allowed_types)}"
                break
            except Exception as error:  # also paramiko's for an agent's keys of unknown types
                why = "it accepts none of the keys that were offered"
                if not transport.is_active():
                    why = f"it hung up: {last_line(error)}"
                    break
                continue
            if not further:
                return known_from
            why = f"it asks for more than a key: {', '.join(further)}"
    add = [f"{locked[0]} needs its passphrase; add it to the agent: ssh-add {locked[0]}"] if locked else []
    port = "" if hop.port == 22 else f"-p {hop.port} "
    give = f"copy your key to it: ssh-copy-id {port}{hop.user}@{hop.name}"
    user = "check the user: --host USER@HOST"
    raise LoginError(f"{who} refuses the login", why=why, hints=[*add, give, user])


def _offers(hop: Settings, agents: contextlib.ExitStack) -> Iterator[Path | paramiko.PKey]:
    """Keys in OpenSSH's order, since servers limit their number: the agent's configured ones, its others, files."""
    held: dict[bytes, paramiko.PKey] = {}
    if hop.agent:
        with contextlib.suppress(*BROKEN):
            held = {key.asbytes(): key for key in agents.enter_context(contextlib.closing(paramiko.Agent())).get_keys()}
    public = [_public(path) for path in hop.identities]
    yield from (held.pop(blob) for blob in public if blob in held)
    if not hop.identities_only:
        yield from held.values()
    yield from hop.identities


def _public(identity: Path) -> bytes:
    """The public key of an identity, in its .pub file or in its own; empty without one."""
    for path in (Path(f"{identity}.pub"), identity):
        with contextlib.suppress(OSError, ValueError):  # it is missing, or not a public key
            kind, text = path.read_text(encoding="utf-8").split()[:2]
            return key_blob(kind, text)
    return b""

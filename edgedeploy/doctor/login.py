"""The way to a board: its name, its port, its host key, its login. Each step says what the next one would hide."""

from __future__ import annotations

import socket

from edgedeploy.doctor.case import Case, is_remote
from edgedeploy.doctor.check import Finding, Group, check, failed, failure, ok, warning
from edgedeploy.errors import LoginError
from edgedeploy.progress import Progress
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.login import destination, hints_for_name

_NAME_S, _PORT_S, _LOGIN_S = 5, 5, 15

_WHERE = "say where the board is with --host USER@HOST, or under `ssh` in its profile"
_POWER = "look whether the board has power and network, and has started"


@check(
    "address",
    Group.BOARD,
    applies=is_remote,
    limit_s=_NAME_S,
    if_stuck="look whether this machine has a network, and whether its name servers answer: resolvectl status",
)
def address(case: Case) -> Finding:
    """Whether the board's name means an address."""
    if case.address is None:
        assert case.no_virtual is not None
        return failure(case.no_virtual)
    place = destination(case.address)
    if place is None:
        return ok(f"{case.address}, through a jump host or a command of ~/.ssh/config")
    host, port = place
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError) as error:
        hints = [*hints_for_name(host), _WHERE, "or use a virtual one: --virtual"]
        return failed(f"there is no host {host}: {getattr(error, 'strerror', None) or error}", *hints)
    numbers = ", ".join(sorted(map(str, found)))
    return ok(f"{case.address} is {numbers}" if host not in found else str(case.address))


@check("SSH server", Group.BOARD, needs=("address",), applies=is_remote, limit_s=_PORT_S * 2 + 2, if_stuck=_POWER)
def ssh_server(case: Case) -> Finding:
    """Whether an SSH server answers at the board's port."""
    assert case.address is not None
    place = destination(case.address)
    if place is None:
        return ok("reached through others, so that only logging in tells")
    host, port = place
    try:
        with socket.create_connection((host, port), _PORT_S) as stream:
            stream.settimeout(_PORT_S)
            greeting = stream.recv(255)
    except ConnectionRefusedError:
        return failed(
            f"{host} is there, and nothing listens on its port {port}",
            "on the board: sudo apt install openssh-server; sudo systemctl enable --now ssh",
            f"or name the right port: --host USER@{host}:PORT",
        )
    except TimeoutError:
        return failed(f"{host} does not answer on port {port} within {_PORT_S} s", _POWER, f"ping {host}", _WHERE)
    except OSError as error:
        return failed(f"{host} cannot be reached on port {port}: {error.strerror or error}", _POWER, _WHERE)
    if not greeting.startswith(b"SSH-"):
        return failed(f"what listens on port {port} of {host} is no SSH server", f"name its port: --host {host}:PORT")
    return ok(f"{greeting.splitlines()[0].decode(errors='replace')} on port {port}")


class _Recorded(Progress):
    """Keeps what is said when a host key is recorded."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@check("host key", Group.BOARD, needs=("SSH server",), applies=is_remote, limit_s=_LOGIN_S, if_stuck=_POWER)
def host_key(case: Case) -> Finding:
    """Whether the board shows the host key that is known of it. This logs in: the key is shown then."""
    assert case.address is not None
    said = _Recorded()
    try:
        case.connection = Connection(case.address, strict=case.strict, progress=said)
    except LoginError as error:
        case.not_let_in = error
    if said.notes:
        hint = "compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board"
        return warning("; ".join(said.notes), hint)
    return ok(f"known: {case.line.known_from}" if case.connection else "known")


@check("login", Group.BOARD, needs=("host key",), applies=is_remote)
def login(case: Case) -> Finding:
    """Whether the board lets us in."""
    if case.not_let_in is not None:
        return failure(case.not_let_in)
    return ok(f"as {case.line.run('id -un').text or 'a user without a name'}")

"""Addresses of boards: from the command line, a profile, or a virtual board."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.settings import whereabouts
from edgedeploy.errors import InputError
from edgedeploy.target.facts import HERE, VIRTUAL
from edgedeploy.target.resolved import ResolvedBoard
from edgedeploy.virtual.board import HOST, VirtualBoard, require, up

# No part begins with a dash, or has characters with a meaning for shells and SSH clients.
_ADDRESS = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][\w.-]*)@)?(?P<host>\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[A-Za-z0-9_][\w.-]*)(?::(?P<port>\d{1,5}))?"
)

# What is wrong with an address, by the first form that matches.
_FAULTS = [
    (re.compile(form, re.DOTALL), why)
    for form, why in (
        ("", "it is empty"),
        (r".*\s.*", "it contains a blank"),
        (r".*://.*", "it is a URL"),
        (r".*:.*@.*", "it contains a password"),
        (r"(.*@)?-.*", "a name in it begins with a dash"),
        (r"(.*@)?([\w.-]+|\[.*\]):.*", "its port is not a number from 1 to 65535"),
        (r"@.*|.*@", "its user or its host is empty"),
        (".*", "it contains a character that names of users and hosts cannot have"),
    )
]


@dataclass(frozen=True)
class Address:
    """Where and how to log in to a board; fields that are None are left to `~/.ssh/config` and its defaults."""

    host: str  # a name, a number, or an alias in `~/.ssh/config`
    user: str | None = None
    port: int | None = None
    key: Path | None = None  # the only private key to offer; None for the user's own keys and agent
    known_hosts: Path | None = None  # the only file of trusted host keys; None for edgedeploy's and the user's own
    name: str | None = None  # for messages, if it differs from the address
    # Where the address comes from, if not from the command line
    said_by: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port and self.port != 22 else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.name or f"{user}{host}{port}"


def parse_address(text: str) -> Address:
    """Parse `[USER@]HOST[:PORT]` or `virtual:NAME`, a running virtual board."""
    if text.startswith(VIRTUAL):
        return address_of(require(text.removeprefix(VIRTUAL)))
    if text == HERE:
        raise InputError(
            f"{HERE!r} is this machine, which needs no SSH",
            hints=["`run`, `demo` and `bench` take it as --host; over SSH this machine is localhost"],
        )
    parts = _ADDRESS.fullmatch(text)
    port = int(parts["port"]) if parts and parts["port"] else None
    if parts is None or (port is not None and not 0 < port < 65536):
        why = next(why for form, why in _FAULTS if form.fullmatch(text))
        forms = "write it as HOST, USER@HOST, USER@HOST:PORT or virtual:NAME"
        hints = [forms, "passwords are not supported: use a key"]
        with suppress(ValueError):
            ipaddress.IPv6Address(text.rpartition("@")[2])
            why = "an IPv6 address has no brackets"
            hints.insert(0, "put an IPv6 address in brackets: [fe80::1%eth0], USER@[fe80::1%eth0]:PORT")
        # The text may contain a password: it is not repeated.
        raise InputError("an address does not have the form USER@HOST:PORT", why=why, hints=hints)
    return Address(parts["host"].strip("[]"), parts["user"], port)


def address_of(virtual: VirtualBoard) -> Address:
    """The address of a virtual board."""
    return Address(HOST, virtual.user, virtual.port, virtual.key, virtual.known_hosts, f"{VIRTUAL}{virtual.name}")


def addresses(
    board: ResolvedBoard, hosts: Sequence[str] = (), *, virtual: bool | None = None, progress: Progress = SILENT
) -> list[Address]:
    """The boards to use: those of the command line, the user's setting, or the profile's.

    `virtual` says whether to use the profile's virtual board, which is started if it does not run; None: as configured.
    """
    if virtual and hosts:
        raise InputError("--virtual does not go with --host", hints=["give --host virtual:NAME"])
    if virtual:
        return [address_of(up(board, progress=progress))]
    if hosts:
        return list(dict.fromkeys(parse_address(host) for host in hosts))
    ssh = board.profile.ssh
    if ssh and (found := whereabouts(board.label, virtual=virtual)):
        progress.note(
            f"{board.label} is {f'at {found.host}' if found.host else 'a virtual board'}, as {found.said_by} says"
        )
        if found.host:
            return [replace(parse_address(found.host), said_by=found.said_by)]
        return [address_of(up(board, progress=progress))]
    if ssh is None:
        raise InputError(
            f"board {board.label!r} is this machine",
            why="its profile has no `ssh`",
            hints=["name another board with --board", "say where it is with --host USER@HOST", "give --virtual"],
        )
    return [Address(ssh.host, ssh.user, None if ssh.port == 22 else ssh.port, said_by=f"the profile {board.label}")]

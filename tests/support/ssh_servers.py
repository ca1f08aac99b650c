"""Further SSH servers on a virtual board, with configurations that boards in the field may have."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address, address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.virtual.board import VirtualBoard
from support.listeners import listening
from support.patience import becomes

SSHD = """
cd && umask 077 && mkdir -p own && cd own && cat >host_key &&
printf '%s\\n' "$@" "HostKey $PWD/host_key" "ListenAddress 127.0.0.1" "AuthorizedKeysFile /etc/ssh/authorized_keys" \
    "UsePAM no" "PidFile none" >config && exec /usr/sbin/sshd -D -e -f "$PWD/config"
"""


@contextmanager
def own_servers(virtual: VirtualBoard, folder: Path) -> Iterator[Callable[..., Address]]:
    """Starts SSH servers of the board's user with some lines of configuration, and gives their addresses.

    They have no SFTP unless a line says so.
    """
    with Connection(address_of(virtual)) as connection:
        channels = []

        def start_one(*lines: str) -> Address:
            with socket.create_server((LOOPBACK, 0)) as listener:
                port = int(listener.getsockname()[1])
            # The key that logs in serves as the host's as well.
            public = connection.run("cat /etc/ssh/authorized_keys").text
            channels.append(connection.open(SSHD, *lines, f"Port {port}"))
            channels[-1].sendall(virtual.key.read_bytes())
            channels[-1].shutdown_write()
            assert becomes(lambda: listening(port))
            known_hosts = folder / "known_hosts"
            known_hosts.write_text(f"[{LOOPBACK}]:{port} {public}\n")
            return replace(address_of(virtual), port=port, known_hosts=known_hosts, name=None)

        yield start_one
        connection.run("for id in /proc/[0-9]*; do grep -q own/config $id/cmdline && kill ${id##*/}; done")
        for channel in channels:
            channel.close()


@pytest.fixture
def sshd(virtual: VirtualBoard, tmp_path: Path) -> Iterator[Callable[..., Address]]:
    """Starts further servers on the board of a module's own fixture `virtual`."""
    with own_servers(virtual, tmp_path) as start_one:
        yield start_one

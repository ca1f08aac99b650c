"""TCP through a board's SSH connection, in both directions, and SSH servers that do not allow it."""

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from cable import Cable
from support.commands import becomes
from support.listeners import listening, serving_each
from support.virtual_boards import Start

from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.address import Address, address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.tunnel import backward, forward
from edgedeploy.virtual.board import VirtualBoard

LOOPBACK = "127.0.0.1"
MEBIBYTE = os.urandom(1 << 20)


@pytest.fixture(scope="module")
def virtual(start: Start) -> VirtualBoard:
    return start("local", name="tunnel")


def echo() -> AbstractContextManager[int]:
    """A server of ours that sends back what it gets, to the end of it; boards here share our loopback interface."""
    return serving_each(lambda stream: stream.sendall(received_from(stream)))


def received_from(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(1 << 16), b""))


def echoed(port: int, content: bytes) -> bytes:
    with socket.create_connection((LOOPBACK, port), 20) as stream:
        sender = threading.Thread(target=lambda: (stream.sendall(content), stream.shutdown(socket.SHUT_WR)))
        sender.start()
        received = received_from(stream)
        sender.join()
    return received


def tunnelled(direction: str, connection: Connection, port: int) -> AbstractContextManager[int]:
    return forward(connection, lambda: port) if direction == "forward" else backward(connection, port)


DIRECTIONS = pytest.mark.parametrize("direction", ["forward", "backward"])


@DIRECTIONS
def test_bytes_go_through_and_so_does_their_end(virtual: VirtualBoard, direction: str) -> None:
    with echo() as port, Connection(address_of(virtual)) as connection:
        with tunnelled(direction, connection, port) as near:
            assert near != port
            assert echoed(near, MEBIBYTE) == MEBIBYTE
            results: list[bytes] = []
            threads = [threading.Thread(target=lambda: results.append(echoed(near, b"ab"))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert results == [b"ab"] * 8
        assert becomes(lambda: not listening(near))
        assert connection.run("echo still there").text == "still there"


@DIRECTIONS
def test_nobody_at_the_other_end_is_an_end(virtual: VirtualBoard, direction: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        nobody = int(listener.getsockname()[1])
    with Connection(address_of(virtual)) as connection, tunnelled(direction, connection, nobody) as near:
        for _ in range(2):
            with socket.create_connection((LOOPBACK, near), 20) as stream:
                assert end_of(stream)
        assert connection.alive


@DIRECTIONS
def test_connections_that_stand_end_with_the_tunnel_and_no_thread_stays(virtual: VirtualBoard, direction: str) -> None:
    with echo() as port, Connection(address_of(virtual)) as connection:
        before = threading.active_count()
        with tunnelled(direction, connection, port) as near:
            stream = socket.create_connection((LOOPBACK, near), 20)
            stream.sendall(b"x")
            time.sleep(0.3)
        with stream:  # which ends, after what was on its way back
            assert b"".join(iter(lambda: stream.recv(1), b"")) in (b"", b"x")
        # The echo's thread for that connection ends with it.
        assert becomes(lambda: threading.active_count() <= before)


@DIRECTIONS
def test_a_connection_that_breaks_ends_what_went_through(virtual: VirtualBoard, direction: str, tmp_path: Path) -> None:
    with echo() as port, Cable(virtual, tmp_path) as cable, Connection(cable.address) as connection:
        with tunnelled(direction, connection, port) as near, socket.create_connection((LOOPBACK, near), 20) as stream:
            stream.sendall(b"x")
            time.sleep(0.3)
            cable.cut()
            assert end_of(stream)
        assert becomes(lambda: not listening(near))


def end_of(stream: socket.socket) -> bool:
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def test_a_port_that_is_asked_for_is_had_if_it_is_free(virtual: VirtualBoard) -> None:
    with Connection(address_of(virtual)) as connection, echo() as port:
        with forward(connection, lambda: port) as free:
            pass
        with forward(connection, lambda: port, free) as near:
            assert near == free
            with forward(connection, lambda: port, free) as other:
                assert other != free
                assert echoed(other, b"x") == b"x"


@pytest.mark.parametrize(
    ("setting", "direction", "why"),
    [
        ("AllowTcpForwarding no", "forward", "forwards no ports"),
        ("AllowTcpForwarding no", "backward", "forwards no ports"),
        ("GatewayPorts yes", "backward", "opens forwarded ports"),
    ],
)
def test_unfit_ssh_servers_are_refused(sshd: Callable[..., Address], setting: str, direction: str, why: str) -> None:
    with Connection(sshd(setting)) as connection:
        tunnel = tunnelled(direction, connection, 9)
        with pytest.raises(BoardConnectionError, match=why) as refused, tunnel:
            pass
    assert setting.split()[0] in refused.value.hints[0]

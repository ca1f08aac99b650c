"""TCP through a board's SSH connection, from loopback to loopback: no port is open to a network."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import paramiko

from edgedeploy.base.closing import Closing, beside
from edgedeploy.errors import BoardConnectionError, EdgedeployError
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.login import BROKEN, CONNECT_S

_BLOCK = 1 << 16
_POLL_S = 0.2
_JOIN_S = 5

# Without a server on any machine: TCP Port Service Multiplexer, RFC 1078, historic.
_UNUSED_PORT = 1

# 127.0.0.1 and ::1 in /proc/net: words in the processor's byte order.
_LOOPBACK_ADDRESSES = {"0100007F", "7F000001", f"{1 << 24:032X}", f"{1:032X}"}

End = socket.socket | paramiko.Channel


@contextlib.contextmanager
def forward(connection: Connection, port_on_board: Callable[[], int], port: int = 0) -> Iterator[int]:
    """A port of this machine's loopback interface that leads to one of the board's, while the block runs.

    It is `port` if that is free, else any. `port_on_board` is called for each connection, in its own thread: the tunnel
    can exist before the port is known.
    """
    with contextlib.suppress(ConnectionRefusedError):
        connection.reach(_UNUSED_PORT).close()
    with _listener(port) as listener, _Pairs() as pairs:
        listener.settimeout(_POLL_S)
        done = threading.Event()

        def accept() -> None:
            while not done.is_set():
                with contextlib.suppress(OSError):
                    near, _ = listener.accept()
                    near.settimeout(None)
                    pairs.join(near, lambda: connection.reach(port_on_board()))

        with beside(accept, done.set):
            yield int(listener.getsockname()[1])


@contextlib.contextmanager
def backward(connection: Connection, port_here: int, host: str = LOOPBACK) -> Iterator[int]:
    """A port of the board's loopback interface that leads to `port_here` of this machine's, while the block runs.

    One per connection at a time. `host` may be another machine that this one reaches.
    """
    with _Pairs() as pairs:
        port = connection.listen(
            lambda channel: pairs.join(channel, lambda: socket.create_connection((host, port_here), CONNECT_S))
        )
        try:
            _require_loopback(connection, port)
            yield port
        finally:
            connection.listen_no_more(port)


def _require_loopback(connection: Connection, port: int) -> None:
    """Refuse a board whose SSH server listens on all interfaces in spite of the request."""
    # proc_net_tcp in the kernel's documentation: local address and port in hexadecimal, 0A is LISTEN.
    table = connection.run("cat /proc/net/tcp /proc/net/tcp6 2>/dev/null").text
    for line in table.splitlines():
        fields = line.split()
        address, _, number = fields[1].partition(":") if len(fields) > 3 else ("", "", "")
        if number == f"{port:04X}" and fields[3] == "0A" and address not in _LOOPBACK_ADDRESSES:
            raise BoardConnectionError(
                f"the SSH server on {connection.address} opens forwarded ports to its networks",
                why="GatewayPorts is on there, and TVM's RPC tracker and server run any code that they are sent",
                hints=["set `GatewayPorts no` in its sshd_config"],
            )


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError:
        return socket.create_server((LOOPBACK, 0))


class _Pairs(Closing):
    """Pairs of ends with bytes carried between them; a context manager that ends all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: set[End] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ends, threads = list(self._ends), list(self._threads)
        for end in ends:
            _cut(end)
        for thread in threads:
            thread.join(_JOIN_S)

    def join(self, near: End, reach: Callable[[], End]) -> None:
        """Carry bytes between an end and the one that `reach` returns; it is called in another thread."""
        thread = threading.Thread(target=self._serve, args=(near, reach), daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _serve(self, near: End, reach: Callable[[], End]) -> None:
        with self._tracked(near), contextlib.suppress(EdgedeployError, *BROKEN):
            far = reach()
            with self._tracked(far):
                for end in (near, far):
                    if isinstance(end, socket.socket):
                        end.settimeout(None)
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=_carry, args=(far, near), daemon=True)
                back.start()
                _carry(near, far)
                back.join()
        with self._lock:
            self._threads.discard(threading.current_thread())

    @contextlib.contextmanager
    def _tracked(self, end: End) -> Iterator[None]:
        """`close` knows the end while the block runs, which closes it."""
        with self._lock:
            self._ends.add(end)
            closed = self._closed
        try:
            if closed:
                _cut(end)
            yield
        finally:
            with self._lock:
                self._ends.discard(end)
            with contextlib.suppress(*BROKEN):
                end.close()


def _carry(source: End, target: End) -> None:
    """Carry bytes one way until they end, and pass the end on."""
    try:
        while block := source.recv(_BLOCK):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
    except BROKEN:
        _cut(source)
        _cut(target)


def _cut(end: End) -> None:
    """End both directions, and wake threads that wait for them."""
    with contextlib.suppress(*BROKEN):
        end.close() if isinstance(end, paramiko.Channel) else end.shutdown(socket.SHUT_RDWR)

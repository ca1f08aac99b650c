"""Which ports are listened on, by whom, and who can reach them; servers of the tests' own; and clients of TVM's RPC."""

import ipaddress
import json
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import getpid
from pathlib import Path
from typing import Any

import psutil

from edgedeploy.rpc.tracker import Endpoint
from support.commands import generous, printed

Listener = tuple[str, int]
LISTEN = "0A"


def listening(port: int) -> bool:
    return ("127.0.0.1", port) in sockets()


def sockets() -> dict[Listener, str]:
    """Address and port of everything that listens for TCP in this network namespace, with the socket's inode."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            fields = line.split()
            words, _, port = fields[1].partition(":")
            packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
            if fields[3] == LISTEN:
                family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
                found[socket.inet_ntop(family, packed), int(port, 16)] = fields[9]
    return found


def owner(inode: str) -> int | None:
    """A process that holds a socket open, if one can be found."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()) == f"socket:[{inode}]":
                return int(link.parts[2])
    return None


@contextmanager
def serving_each(handle: Callable[[socket.socket], object]) -> Iterator[int]:
    """The port of a server that does something with each connection, in a thread of its own."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                handle(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def beyond_loopback() -> Iterator[set[Listener]]:
    """Gives a set that in the end holds where this process or a child of it was ever in other machines' reach."""
    seen, done = set[Listener](), threading.Event()

    def watch() -> None:
        known = set(sockets().values())
        while not done.is_set():
            for listener, inode in sockets().items():
                if inode not in known and not _is_loopback(listener[0]) and _is_ours(owner(inode)):
                    seen.add(listener)
                known.add(inode)
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _is_ours(process: int | None) -> bool:
    with suppress(psutil.Error):
        return process is not None and getpid() in (process, *(each.pid for each in psutil.Process(process).parents()))
    return False


# tvm/rpc/base.py
TRACKER_MAGIC = 0x2F271
PUT, UPDATE_INFO = 3, 5

_ASK = """
import sys
import tvm.rpc

host, port, key = sys.argv[1:]
session = tvm.rpc.connect_tracker(host, int(port)).request(key, session_timeout=60)
session.upload(bytearray(bytes(range(256)) * 4096), "content")
assert bytes(session.download("content")) == bytes(range(256)) * 4096
print(session.get_function("edgedeploy.target.facts")())
"""


def facts_from(tracker: Endpoint, key: str) -> Any:
    """What a device says of itself to a client that also sends a MiB there and back."""
    return json.loads(printed(sys.executable, "-c", _ASK, tracker.host, tracker.port, key, timeout=generous(120)))


def told(stream: socket.socket, message: object) -> object:
    """The answer to one message of TVM's protocol for trackers."""
    content = json.dumps(message).encode()
    stream.sendall(struct.pack("<i", len(content)) + content)
    (size,) = struct.unpack("<i", stream.recv(4, socket.MSG_WAITALL))
    return json.loads(stream.recv(size, socket.MSG_WAITALL))


@contextmanager
def device(endpoint: Endpoint, key: str, port: int, secret: str) -> Iterator[None]:
    """A server that is registered, as TVM's own servers do it."""
    with socket.create_connection((endpoint.host, endpoint.port), 10) as stream:
        stream.sendall(struct.pack("<i", TRACKER_MAGIC))
        assert struct.unpack("<i", stream.recv(4, socket.MSG_WAITALL)) == (TRACKER_MAGIC,)
        assert told(stream, [UPDATE_INFO, {"key": f"server:{key}", "addr": ["127.0.0.1", port]}]) == 0
        assert told(stream, [PUT, key, [port, f"{key}:{secret}"], "127.0.0.1"]) == 0
        yield

"""Clients of TVM's RPC as other people write them, each in a process of its own; and what servers tell trackers."""

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edgedeploy.rpc.tracker import Endpoint
from edgedeploy.virtual.board import VirtualBoard
from support.patience import generous
from support.virtual_boards import said

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
    command = [sys.executable, "-c", _ASK, tracker.host, str(tracker.port), key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=generous(120), check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


def left_on(virtual: VirtualBoard) -> str:
    """Agents that serve on a board, and folders of servers there."""
    # The shell that runs this has it in its own command line, but not what the pattern matches.
    return said(virtual, "grep -la '[r]pc.--work-dir' /proc/[0-9]*/cmdline; ls ~/.local/share/edgedeploy/rpc")

"""TVM's RPC tracker, which hands free devices to clients: start one, list its devices, request a device.

The tracker itself is TVM's (`tvm/rpc/tracker.py`), in a worker. Requests go over a socket of our own, with a deadline:
TVM's client waits forever.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import re
import secrets
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edgedeploy.base.closing import beside
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.workers import Worker, WorkerError
from edgedeploy.errors import InputError, NoTrackerError, RpcError
from edgedeploy.remote import LOOPBACK

# tvm/rpc/base.py
_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
# Far more than the summary of any farm.
_MOST_BYTES = 1 << 24

# A first import of TVM from a slow disk takes half a minute.
_START_S = 300
# A tracker that ends is started again, the first time at once, then after longer and longer pauses, until one holds.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 8.0
_HOLDS_S = 60

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][\w.-]*):(?P<port>\d{1,5})")


@dataclass(frozen=True)
class Endpoint:
    """Where a tracker or a server of TVM's RPC listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """The endpoint of `HOST:PORT`."""
        parts = _ADDRESS.fullmatch(text)
        if parts is None or not 0 < int(parts["port"]) < 65536:
            raise InputError(f"{text!r} is not an address of a tracker", hints=["write it as HOST:PORT"])
        return cls(parts["host"].strip("[]"), int(parts["port"]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Devices:
    """The devices of one key: how many exist, are free, and are waited for by clients, and HOST:PORT of each."""

    total: int
    free: int
    pending: int
    addresses: tuple[str, ...] = ()


Summary = Mapping[str, Devices]


@contextlib.contextmanager
def tracker(port: int = 0, *, host: str = LOOPBACK, progress: Progress = SILENT) -> Iterator[Endpoint]:
    """Run a tracker in a separate process while the block runs; port 0 takes any that is free.

    The process ends with this one, however that ends. If the tracker ends by itself it is started again at the same
    port, and servers register again.
    """
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
        log = Path(folder, "log.txt")
        worker, endpoint = _start(Endpoint(host, port), log)
        done = threading.Event()
        lock = threading.Lock()

        def watch() -> None:
            nonlocal worker
            pause_s, began = 0.0, time.monotonic()
            while True:
                with contextlib.suppress(WorkerError):
                    worker.call(_serve, timeout_s=None)
                if time.monotonic() - began > _HOLDS_S:
                    pause_s = 0.0
                if done.wait(pause_s):
                    return
                pause_s, began = min(max(2 * pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S), time.monotonic()
                worker.close()
                progress.note(f"the tracker at {endpoint} ended; it is started again")
                try:
                    started, _ = _start(endpoint, log)
                except RpcError as error:
                    progress.note(error.cause)
                    continue
                with lock:
                    worker = started
                    if done.is_set():
                        worker.close()

        def end() -> None:
            done.set()
            with lock:
                worker.close()

        with beside(watch, end, _START_S):
            yield endpoint


def summary(endpoint: Endpoint, timeout_s: float = 10) -> Summary:
    """The devices of a tracker, by key."""
    answer = _ask(endpoint, [_SUMMARY], timeout_s)
    try:
        queues, servers = answer["queue_info"], answer["server_info"]
        addresses: dict[str, list[str]] = {key: [] for key in queues}
        for server in servers:
            host, port = server["addr"]
            addresses.setdefault(str(server["key"]).partition(":")[2], []).append(f"{host}:{port}")
        nobody = {"free": 0, "pending": 0}
        counts = {key: queues.get(key, nobody) for key in addresses}
        return {
            key: Devices(len(found), int(counts[key]["free"]), int(counts[key]["pending"]), tuple(sorted(found)))
            for key, found in sorted(addresses.items())
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _strange(endpoint) from error


def require_device(endpoint: Endpoint, key: str, timeout_s: float = 15, *, patient: bool = False) -> Devices:
    """The devices of a key; waits up to `timeout_s` for one to register.

    `patient` waits for the tracker as well, which may be about to start again.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        over = time.monotonic() + 0.5 > deadline
        try:
            known = summary(endpoint, max(deadline - time.monotonic(), 0.5))
        except NoTrackerError:
            if over or not patient:
                raise
        else:
            if key in known and known[key].total:
                return known[key]
            if over:
                raise _no_device(endpoint, key, [name for name, devices in known.items() if devices.total])
        time.sleep(0.2)


def request(endpoint: Endpoint, key: str, timeout_s: float) -> tuple[Endpoint, str]:
    """A free device of a key, for one session: its endpoint, and the secret to connect with."""
    answer = _ask(endpoint, [_REQUEST, key, "", 1], timeout_s, nothing=f"no device of key {key!r} was free")
    try:
        host, port, secret = answer
        return Endpoint(str(host), int(port)), str(secret)
    except (TypeError, ValueError) as error:
        raise _strange(endpoint) from error


def _start(wanted: Endpoint, log: Path) -> tuple[Worker, Endpoint]:
    worker = Worker(partial(_listen, wanted), log, restarts=False)
    try:
        return worker, Endpoint(wanted.host, worker.start(_START_S))
    except WorkerError as error:
        if isinstance(error.__cause__, RpcError):
            raise error.__cause__ from None
        raise RpcError(f"the tracker does not start at {wanted}", why=str(error)) from error
    except BaseException:
        worker.close()
        raise


def _ask(endpoint: Endpoint, message: Sequence[Any], timeout_s: float, nothing: str | None = None) -> Any:
    """A tracker's answer to one message, after its code for success."""
    deadline = time.monotonic() + timeout_s
    greeted = False
    try:
        with socket.create_connection((endpoint.host, endpoint.port), timeout_s) as stream:
            stream.sendall(struct.pack("<i", _MAGIC))
            if struct.unpack("<i", _receive(stream, 4, deadline)) != (_MAGIC,):
                raise _strange(endpoint)
            greeted = True
            content = json.dumps(message).encode()
            stream.sendall(struct.pack("<i", len(content)) + content)
            (size,) = struct.unpack("<i", _receive(stream, 4, deadline))
            if not 0 < size <= _MOST_BYTES:
                raise _strange(endpoint)
            code, answer = json.loads(_receive(stream, size, deadline))
    except TimeoutError as error:
        why = f"it did not answer within {timeout_s:.0f} s"
        if greeted and nothing:
            raise RpcError(nothing, why=f"tracker {endpoint} had none within {timeout_s:.0f} s") from error
        raise _unreachable(endpoint, why) from error
    except OSError as error:
        raise _unreachable(endpoint, error.strerror or str(error)) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise _strange(endpoint) from error
    if code != _SUCCESS:
        raise _strange(endpoint)
    return answer


def _receive(stream: socket.socket, count: int, deadline: float) -> bytes:
    """Exactly `count` bytes, before the deadline."""
    content = bytearray()
    while len(content) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        stream.settimeout(left)
        block = stream.recv(min(count - len(content), 1 << 16))
        if not block:
            raise ConnectionResetError("the other side closed the connection")
        content += block
    return bytes(content)


def _unreachable(endpoint: Endpoint, why: str) -> RpcError:
    return NoTrackerError(
        f"no tracker answers at {endpoint}",
        why=why,
        hints=["start one with `edgedeploy rpc tracker`", "list those that run here with `edgedeploy rpc status`"],
    )


def _strange(endpoint: Endpoint) -> RpcError:
    return RpcError(
        f"no tracker answers at {endpoint}",
        why="the program that listens there has another protocol",
        hints=["check the port: a server's is not its tracker's"],
    )


def _no_device(endpoint: Endpoint, key: str, keys: Sequence[str]) -> RpcError:
    return RpcError(
        f"tracker {endpoint} has no device for key {key!r}",
        why=f"it has devices for {', '.join(map(repr, sorted(keys)))}" if keys else "it has no devices",
        hints=[
            "name another key" if keys else f"start a server: edgedeploy rpc server --tracker {endpoint} --key {key}",
            "look at `edgedeploy rpc status`",
        ],
    )


# In a worker: TVM's tracker.
_tracker: Any = None


def _listen(wanted: Endpoint) -> int:
    """In a worker: have TVM's tracker listen; returns its port."""
    global _tracker
    try:
        from tvm.rpc.tracker import TrackerServerHandler

        place = (wanted.host, wanted.port)
        family, *_, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=128)
        # Connections inherit this. TVM writes an answer in two parts, and the second would wait for the client's kernel
        # to acknowledge the first: 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (ImportError, OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise RpcError(f"the tracker does not start at {wanted}", why=why, hints=[_remedy(error)]) from error
    asyncio.set_event_loop(asyncio.new_event_loop())
    logging.disable()  # whoever connects decides what is logged
    # Everyone who knows the second argument can end the tracker.
    _tracker = TrackerServerHandler(listener, secrets.token_hex(16))
    return int(listener.getsockname()[1])


def _serve() -> None:
    """In a worker that listens: run until its process ends."""
    _tracker.run()


def _remedy(error: Exception) -> str:
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
        return "listen on this machine alone: leave out --host"
    if isinstance(error, OSError):
        return "choose another port; 0 takes any that is free"
    return "pip install 'edgedeploy[tune]'"

"""Which ports are listened on, as the kernel says, and by whom they can be reached."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Listener = tuple[str, int]
LISTEN = "0A"


def listeners() -> set[Listener]:
    """Address and port of everything that listens for TCP in this network namespace."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            words, _, port = local.partition(":")
            packed = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
            if state == LISTEN:
                family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def beyond_loopback() -> set[Listener]:
    """Those that other machines can reach."""
    return {each for each in listeners() if not _is_loopback(each[0])}


def _is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


@contextmanager
def watched() -> Iterator[set[Listener]]:
    """Gives a set that in the end holds what listened beyond loopback at any time during the block, and not before."""
    before, seen, done = beyond_loopback(), set[Listener](), threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.update(beyond_loopback() - before)
            time.sleep(0.01)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()

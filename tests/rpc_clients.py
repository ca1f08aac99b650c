"""Clients of TVM's RPC as other people write them, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from edgedeploy.rpc.tracker import Endpoint

_ASK = """
import sys
import tvm.rpc

host, port, key = sys.argv[1:]
session = tvm.rpc.connect_tracker(host, int(port)).request(key, session_timeout=60)
session.upload(bytearray(bytes(range(256)) * 4096), "content")
assert bytes(session.download("content")) == bytes(range(256)) * 4096
print(session.get_function("edgedeploy.facts")())
"""


def facts_from(tracker: Endpoint, key: str) -> Any:
    """What a device says of itself to a client that also sends a MiB there and back."""
    command = [sys.executable, "-c", _ASK, tracker.host, str(tracker.port), key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def becomes(state: Callable[[], object], limit_s: float = 20) -> bool:
    """Whether something becomes true in time."""
    deadline = time.monotonic() + limit_s
    while not state():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True

"""The process of a tracker: `python -m edgedeploy.rpc.tracker_process HOST PORT`.

Prints one line of JSON when it listens, `{"port": 9190}`, or `{"error": "...", "hints": [...]}`, and ends when
its standard input does: so it never outlives the process that started it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import socket
import sys
import threading

_BACKLOG = 128


def main(host: str, port: int) -> None:
    """Serve until standard input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        from tvm.rpc.tracker import TrackerServerHandler

        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
        # Connections take this from it. TVM writes an answer in two parts, and each answer would wait for the kernel of
        # who asked to acknowledge the first: 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (ImportError, OSError, RuntimeError) as error:
        said = getattr(error, "strerror", None) or str(error)
        print(json.dumps({"error": said, "hints": [_remedy(error)]}), flush=True)
        return
    asyncio.set_event_loop(asyncio.new_event_loop())
    # Whoever names the second can end it.
    handler = TrackerServerHandler(listener, secrets.token_hex(16))
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    handler.run()


def _remedy(error: Exception) -> str:
    if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.EADDRNOTAVAIL:
        return "listen on this machine alone: leave out --host"
    if isinstance(error, OSError):
        return "choose another port; 0 takes any that is free"
    return "pip install 'edgedeploy[tune]'"


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

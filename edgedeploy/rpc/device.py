"""Check that the devices of a tracker fit a board, before work is sent there.

A worker asks one of them, in a session, since nothing can interrupt TVM's client.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.workers import Worker, WorkerError, WorkerTimeoutError
from edgedeploy.errors import RpcError, UnsuitableBoardError, last_line
from edgedeploy.package.abi import misfits, needs_of
from edgedeploy.remote.facts import of_agent
from edgedeploy.rpc.tracker import Endpoint, request, require_device
from edgedeploy.target.board import Board
from edgedeploy.target.triples import architecture_of

# Besides the time for the question itself: the process imports TVM, on a slow and busy machine.
_IMPORT_S = 120


def require_fitting_device(
    endpoint: Endpoint, key: str, board: Board, *, timeout_s: float = 15, progress: Progress = SILENT
) -> None:
    """Require that a tracker has a device for a key, and that code for a board runs on it.

    Our own servers report their facts; TVM's servers in Python name their LLVM's triple. For others, and if all are
    busy, that is unknown: the user gets a note, and they are used anyway.
    """
    require_device(endpoint, key, timeout_s / 3)
    answer = _asked(endpoint, key, timeout_s * 2 / 3)
    reasons: list[str] = []
    if "facts" in answer:
        try:
            reasons = misfits(needs_of(board), of_agent(answer["facts"]), "the device")
        except (ValueError, KeyError, TypeError):
            answer = {"error": "its server describes it in an unknown form"}
    elif "triple" in answer and architecture_of(answer["triple"]).name != board.family:
        reasons = [f"code for the board is {board.architecture}, the device's triple is {answer['triple']}"]
    if reasons:
        raise UnsuitableBoardError(
            f"the device of key {key!r} at tracker {endpoint} does not run code for {board.triple}",
            why="; ".join(reasons),
            hints=["name the device's board with --board", "name another key"],
        )
    if "error" in answer:
        progress.note(f"whether the devices of key {key!r} fit the board could not be checked: {answer['error']}")


def _asked(endpoint: Endpoint, key: str, timeout_s: float) -> dict[str, Any]:
    ask = partial(_ask, endpoint, key, timeout_s)
    with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder, Worker(ask, Path(folder, "log.txt")) as worker:
        try:
            return dict(worker.start(timeout_s + _IMPORT_S))
        except WorkerTimeoutError:
            return {"error": f"none answered within {timeout_s:.0f} s"}
        except WorkerError:
            return {"error": "its server broke the connection"}


def _ask(endpoint: Endpoint, key: str, timeout_s: float) -> dict[str, Any]:
    """In a worker: a device's description of itself."""
    import tvm.rpc

    try:
        server, secret = request(endpoint, key, timeout_s)
        session = tvm.rpc.connect(server.host, server.port, secret, session_timeout=timeout_s)
    except (RpcError, RuntimeError, OSError) as error:
        return {"error": last_line(error)}
    for name, function, convert in (
        ("facts", "edgedeploy.target.facts", json.loads),
        ("triple", "target.llvm_get_system_triple", str),
    ):
        try:
            return {name: convert(str(session.get_function(function)()))}
        except (AttributeError, RuntimeError, ValueError):
            continue  # it has no such function
    return {"error": "its server cannot describe itself"}

"""A server of TVM's RPC on a board or on this machine: the agent, under a tracker, reached through SSH alone.

    client -> 127.0.0.1 here -> SSH -> agent, 127.0.0.1 there
    tracker, 127.0.0.1 here <- SSH <- 127.0.0.1 there <- agent

The agent reads heartbeats from its standard input, and ends with all its sessions when they stop.

Clients have to be other processes: TVM holds the interpreter's lock while it frees objects of RPC, and waits for an
answer that the tunnel's threads would have to bring.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial

from edgedeploy import errors
from edgedeploy.agent.build import Agent, agent_for
from edgedeploy.base.closing import Closing, beside
from edgedeploy.base.programs import script
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.package.abi import read_abi
from edgedeploy.release.gate import check_abi, check_space
from edgedeploy.release.lock import locked
from edgedeploy.release.steps import missing, upload
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import probe
from edgedeploy.remote.place import Place, Program, attended
from edgedeploy.remote.tunnel import backward, forward
from edgedeploy.rpc.tracker import Endpoint
from edgedeploy.target.board import Board

_BEAT_S = 5
_COMMAND_S = 60
_SILENCE_S = 30
# An emulated board on a busy machine.
_READY_S = 300
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 8.0
_KEPT_LINES = 20

# A server's protocol ends a key at a blank, and the agent's command line takes a dash for an option.
_KEY = re.compile(r"[^\s-]\S{0,99}")

# Waiting does not help against these.
_LASTING = (errors.HostKeyError, errors.OutputError, errors.ToolchainError, errors.UnsuitableBoardError)

_SERVE = script(__package__, "serve.sh")


class BoardServer(Closing):
    """A running server; a context manager.

    Its `name` is the board's address, or `local`. Its `port` is one of this machine's loopback interface, for clients:
    the same after a revival, if it is free.
    """

    def __init__(
        self,
        place: Address | None,  # the board's address; None for this machine
        board: Board,
        tracker: Endpoint | None,  # the tracker with which it registers; None if clients name the key themselves
        key: str,  # the name of its devices
        progress: Progress = SILENT,
        *,
        threads: int | None = None,  # of sessions; None for all processors
        strict: bool = False,
    ) -> None:
        """Send the agent, start it, and wait until it listens."""
        if not _KEY.fullmatch(key):
            raise errors.InputError(f"{key!r} cannot be a key", hints=["use letters, digits and no blanks"])
        self.name = str(place) if place else "local"
        self._address, self._board, self._tracker, self._key = place, board, tracker, key
        self._progress, self._threads, self._strict = progress, threads, strict
        self._running = contextlib.ExitStack()
        self.port = 0
        self._start()

    def close(self) -> None:
        """End the server, its sessions, and the connection; only the agent's file stays there."""
        self._running.close()

    @property
    def alive(self) -> bool:
        """Whether it runs and can be reached, as far as is known."""
        return self._place.alive and not self._program.ended

    def run(self, script: str) -> str:
        """The output of a POSIX shell script that runs there, with any exit code."""
        return self._place.run(script, timeout_s=_COMMAND_S).text

    def revive(self, deadline_s: float = 60) -> None:
        """Start it again, over a new connection, as often as needed: it may have been cut off anywhere."""
        if connection := self._place.connection:
            connection.close()  # so that nothing waits for a board that does not answer
        self.close()
        deadline, wait, told = time.monotonic() + deadline_s, _FIRST_WAIT_S, ""
        while True:
            try:
                self._start()
            except _LASTING:
                raise
            except errors.EdgedeployError as error:
                if time.monotonic() + wait > deadline:
                    raise errors.BoardConnectionError(
                        f"the server on {self.name} did not come back within {deadline_s:.0f} s",
                        why=error.cause,
                        hints=["check that the board has power and network, and try again"],
                    ) from error
                if error.cause != told:
                    told = error.cause
                    self._progress.note(f"waiting for {self.name} for up to {deadline_s:.0f} s: {told}")
            else:
                self._progress.note(f"the server on {self.name} runs again")
                return
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)

    def _start(self) -> None:
        with contextlib.ExitStack() as stack:
            place = Place()
            if self._address:
                connection = Connection(self._address, strict=self._strict, progress=self._progress)
                place = Place(stack.enter_context(connection))
            # After the board answered: building an agent takes minutes.
            agent = _put_agent(agent_for(self._board, progress=self._progress), self._board, place, self._progress)
            listening: Future[int] = Future()
            near, tracker = None, self._tracker
            if place.connection:
                ready = partial(listening.result, _READY_S)
                near = stack.enter_context(forward(place.connection, ready, self.port))
                if tracker:
                    there = stack.enter_context(backward(place.connection, tracker.port, tracker.host))
                    tracker = Endpoint(LOOPBACK, there)
            options = ["--key", self._key, "--port", "0" if near else str(self.port), "--heartbeat", str(_SILENCE_S)]
            if self._threads:
                options += ["--threads", str(self._threads)]
            if tracker:
                options += ["--tracker", f"{tracker.host}:{tracker.port}", "--custom-address", LOOPBACK]
                options += ["--announce-port", str(near)] if near else []
            program = stack.enter_context(_serving(place, [place.base, agent, *options], listening, self.name))
            self.port = near or listening.result()
            self._place, self._program = place, program
            self._running = stack.pop_all()


def _put_agent(agent: Agent, board: Board, place: Place, progress: Progress) -> str:
    """Send the agent to a board, unless it is there, and check that it can run.

    Returns its path on this machine, or the name of its blob in `place.base` on a board.
    """
    connection = place.connection
    if connection is None:
        return str(agent.path)
    where, facts = str(connection.address), probe(connection)
    check_abi(f"the agent for {board.triple}", read_abi(agent.path, board), facts, where)
    content = agent.path.read_bytes()
    blob = hashlib.sha256(content).hexdigest()
    if missing(connection, {blob: content}):
        check_space(len(content), facts, where)
        title = f"send the agent to {where}"
        with locked(connection), progress.transfer(title, len(content)) as advance:
            upload(connection, blob, content, advance)
    return blob


@contextlib.contextmanager
def _serving(place: Place, arguments: list[str], listening: Future[int], name: str) -> Iterator[Program]:
    """An agent that listens, and gets heartbeats while the block runs."""
    program = place.start(_SERVE, *arguments)
    lines: deque[str] = deque(maxlen=_KEPT_LINES)

    def listen() -> None:
        for line in program.lines():
            lines.append(line.removeprefix("agent: "))
            if not listening.done() and line.startswith("{"):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    listening.set_result(int(json.loads(line)["port"]))
        if not listening.done():
            listening.set_exception(errors.RpcError(f"the server on {name} ended", why="; ".join(lines) or None))

    with beside(listen, lambda: None, _BEAT_S), attended(program, _BEAT_S):  # its lines end with the program
        try:
            listening.result(_READY_S)
        except TimeoutError as error:
            why = "; ".join(lines) or None
            raise errors.RpcError(f"the server on {name} did not answer in {_READY_S} s", why=why) from error
        yield program

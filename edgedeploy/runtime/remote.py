"""A package that runs on a board: the agent there answers requests over the SSH connection."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from edgedeploy.errors import EdgedeployError
from edgedeploy.remote.connection import Connection, close_channel
from edgedeploy.remote.failures import agent_ended
from edgedeploy.remote.login import BROKEN
from edgedeploy.runtime.served import REPLY_S, ServedSession
from edgedeploy.tail.program import Tail

_SERVE = """
cd && cd "$1" && shift && exec ./agent serve . "$@"
"""


class RemoteSession(ServedSession):
    """A `Runner` on a board; a context manager."""

    def __init__(
        self, connection: Connection, folder: str, threads: int | None = None, tails: Sequence[Tail | None] = ()
    ) -> None:
        """Load a release that lies on a board.

        Args:
            connection: the board.
            folder: the release, relative to the home folder.
            threads: how many threads to run with; what the package says if None.
            tails: as for `ServedSession`.
        """
        self._connection = connection
        options = ["--threads", str(threads)] if threads else []
        self._channel = connection.open(_SERVE, folder, *options)
        self._channel.settimeout(REPLY_S)
        super().__init__(f"the agent on {connection.address}", self._channel.makefile("rb"), tails)

    def close(self) -> None:
        """Let the agent end."""
        with contextlib.suppress(*BROKEN):
            self._channel.shutdown_write()
        close_channel(self._channel)

    def _send(self, content: bytes) -> None:
        try:
            self._channel.sendall(content)
        except BROKEN as error:
            raise OSError(str(error)) from error

    def _ended(self) -> EdgedeployError:
        """The error for an agent that ended."""
        return agent_ended(self._connection, self._channel, f"{self._agent} ended")

"""A package that the agent runs on this machine, in a process of its own: for where TVM is not installed."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path

from edgedeploy.board import load_board
from edgedeploy.errors import EdgedeployError, ending
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.members import read_tails
from edgedeploy.progress import SILENT, Progress
from edgedeploy.remote.failures import failure
from edgedeploy.runtime.here import unpacked
from edgedeploy.runtime.served import ServedSession
from edgedeploy.runtime.session import check_machine

_END_S = 10


class ChildSession(ServedSession):
    """A `Runner` in a process of this machine; a context manager."""

    def __init__(self, package: Path, threads: int | None = None, progress: Progress = SILENT) -> None:
        """Load a package from its archive.

        Raises:
            PackageError: the package is damaged, or was built for another kind of machine.
            ToolchainError: there is no agent for this machine, and none can be built.
            EdgedeployError: as `ServedSession`.
        """
        from edgedeploy.agent.build import agent_for

        manifest = read_manifest(package)
        check_machine(package, manifest)
        board = load_board("local" if manifest.device is None else "local-opencl")
        folder, agent = unpacked(package), agent_for(board, progress=progress).path
        options = ["--threads", str(threads)] if threads else []
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  # it is closed with the session
        self._process = subprocess.Popen(
            [str(agent), "serve", str(folder), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,  # Ctrl-C reaches only who ends it
        )
        assert self._process.stdout
        try:
            super().__init__("the agent on this machine", self._process.stdout, read_tails(package))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the agent end."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(OSError):  # it has ended
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._messages.close()

    def _send(self, content: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(content)
        self._process.stdin.flush()

    def _ended(self) -> EdgedeployError:
        """The error for an agent that ended."""
        code = self._process.wait()
        self._messages.seek(0)
        said = self._messages.read().decode(errors="replace").strip()
        return failure(code, f"{self._agent} ended", said or ending(code))

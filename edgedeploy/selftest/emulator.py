"""Runs a board's own code on this machine: its agent, under qemu's user-mode emulator. It needs no root."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgedeploy.base.programs import capture
from edgedeploy.errors import NumericalError, UnsupportedError, VirtualBoardError, ending
from edgedeploy.package.abi import misfits
from edgedeploy.package.archive import write_members
from edgedeploy.package.manifest import Manifest
from edgedeploy.selftest.tolerance import other_outputs
from edgedeploy.target.board import Board
from edgedeploy.target.facts import Facts
from edgedeploy.target.triples import architecture_of, multiarch
from edgedeploy.virtual.emulation import emulation_of, emulator

if TYPE_CHECKING:
    from edgedeploy.agent.build import Agent

_DIFFERENT = 6  # the agent's exit code (agent/failure.h)
_FACTS_S, _SELF_TEST_S = 60, 3600


@dataclass(frozen=True)
class Emulator:
    """qemu, its options for the board's core and C library, and the board's agent."""

    program: str
    options: tuple[str, ...]
    agent: Path

    @classmethod
    def of(cls, board: Board, agent: Callable[[], Agent | None]) -> Emulator:
        """The emulator for a board's agent, which is requested last: building it may take minutes."""
        try:
            emulation = emulation_of(board)
        except VirtualBoardError as error:
            raise UnsupportedError(error.what, why=error.why) from error
        program = emulator(emulation.qemu) if emulation.qemu else None
        loader = architecture_of(board.triple).loader
        if program is None or loader is None:
            raise UnsupportedError(f"nothing here emulates {board.architecture}")
        places = (board.sysroot, Path("/usr", multiarch(board.triple)), Path("/"))
        roots = [root for root in places if root and (root / loader).exists()]
        if not roots:
            package = f"libc6-{emulation.debian}-cross"
            raise UnsupportedError(f"there is no C library for {board.architecture} here: apt-get install {package}")
        built = agent()
        if built is None:
            raise UnsupportedError("the agent for it, which would run it, was not built yet")
        core = ("-cpu", emulation.cpu) if emulation.cpu else ()
        return cls(program, (*core, "-L", str(roots[0])), built.path)

    @cached_property
    def name(self) -> str:
        """The program and its version, such as `qemu-aarch64 7.2.9`."""
        words = capture([self.program, "--version"]).stdout.split()
        version = words[words.index("version") + 1] if "version" in words[:-1] else ""
        return f"{Path(self.program).name.removesuffix('-static')} {version}".strip()

    def self_test(self, manifest: Manifest, contents: Mapping[str, bytes], threads: int) -> float:
        """Run a package's self-test; returns the largest difference as a fraction of the tolerance."""
        done = self._run("facts", timeout_s=_FACTS_S)
        if done.returncode != 0:
            raise UnsupportedError(f"the agent does not start under {self.name}", why=done.stderr.strip() or None)
        glibc = json.loads(done.stdout)["glibc"]
        if reasons := misfits(manifest.abi, Facts(glibc=glibc), f"the C library for {self.name}"):
            raise UnsupportedError("; ".join(reasons))
        with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
            write_members(Path(folder), manifest, contents)
            done = self._run("selftest", folder, "--threads", str(threads), timeout_s=_SELF_TEST_S)
        what = other_outputs(manifest)
        if done.returncode in (0, _DIFFERENT) and done.stdout:
            outputs: list[dict[str, Any]] = json.loads(done.stdout)["outputs"]
            worst = max(outputs, key=_fraction)
            if done.returncode == 0:
                return _fraction(worst)
            raise NumericalError(
                what,
                why=f"output {worst['name']!r} differs by {_fraction(worst):.3g} times what is allowed, for "
                f"{worst['case']} inputs, under {self.name}",
            )
        if done.returncode == -signal.SIGKILL:
            raise UnsupportedError(f"{self.name} did not run to its end", why=ending(done.returncode))
        why = done.stderr.strip().rpartition("\n")[2].removeprefix("agent: ") or ending(done.returncode)
        raise NumericalError(f"the code for {manifest.model} fails under {self.name}", why=why)

    def _run(self, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        command = [self.program, *self.options, str(self.agent), *arguments]
        try:
            return capture(command, timeout_s=timeout_s)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnsupportedError(f"{self.name} does not run the agent", why=str(error)) from error


def _fraction(output: dict[str, Any]) -> float:
    """The difference of an output as a fraction of the tolerance; infinite if an output is not finite."""
    return float("inf") if output["fraction"] is None else float(output["fraction"])

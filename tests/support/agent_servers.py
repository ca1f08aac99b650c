"""This machine's agent as a fixture; agents that serve TVM's RPC, and what clients send them first."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgedeploy.agent.build import agent_for
from edgedeploy.target.board import load_board
from support.agents import TOOLCHAINS, build_probe, known_toolchain
from support.commands import started

# tvm/rpc/base.py
MAGIC = struct.pack("<i", 0xFF271)


@pytest.fixture(scope="session")
def agent(_own_user_folders: None) -> Path:
    return agent_for(load_board("local")).path


@dataclass(frozen=True)
class Server:
    """A server that listens for clients of key `k`, and its folder for sessions."""

    process: subprocess.Popen[str]
    port: int
    work: Path

    def beat(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end_input(self) -> None:
        self.process.stdin.close()


@contextmanager
def serving(agent: Path | Sequence[str], work: Path, *options: str, stderr: int | None = None) -> Iterator[Server]:
    called = [agent] if isinstance(agent, Path) else agent
    ending_with_us = ("setpriv", "--pdeathsig", "TERM")  # also where the tests are killed
    command = [*ending_with_us, *called, "rpc", "--port", "0", "--key", "k", "--work-dir", work, *options]
    pipe = subprocess.PIPE
    with started(*command, stdin=pipe, stdout=pipe, stderr=stderr, text=True) as process:
        yield Server(process, json.loads(process.stdout.readline())["port"], work)


def greeting(text: bytes) -> bytes:
    return MAGIC + struct.pack("<i", len(text)) + text


@pytest.fixture(scope="module", params=TOOLCHAINS)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The agent's parts as a program, which tests call one by one."""
    with known_toolchain(request.param, tmp_path_factory.mktemp("probe")):
        yield build_probe(request.param).path

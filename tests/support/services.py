"""Services of an agent for tests: a home folder with releases, and clients of the socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedeploy.base.closing import Closing
from support.agents import need_what_it_lacks, request, unpack
from support.patience import generous

BASE = Path(".local", "share", "edgedeploy")

# Two releases of digits that differ in a weight.
FIRST, SECOND = "20260102T030405Z-00000001", "20260102T030406Z-00000002"


class Client(Closing):
    """A program that is connected to a service.

    Attributes:
        greeting: what the service said first.
    """

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(generous(30))
        self.socket.connect(str(path))
        self._stream = self.socket.makefile("rb")
        self.greeting = self.reply()[0]

    def close(self) -> None:
        self._stream.close()
        self.socket.close()

    def reply(self) -> tuple[dict[str, Any], bytes]:
        try:
            line = self._stream.readline()
        except ConnectionResetError:  # what was sent was not read to its end
            line = b""
        need_what_it_lacks(line.decode())
        said = json.loads(line) if line else {}
        return said, self._stream.read(said.get("bytes", 0))

    def share(self, descriptor: int, size: int) -> tuple[dict[str, Any], bytes]:
        socket.send_fds(self.socket, [request("share", size=size)], [descriptor])
        return self.reply()

    def ask(self, command: str, content: bytes = b"", **fields: object) -> tuple[dict[str, Any], bytes]:
        self.socket.sendall(request(command, content, **fields))
        return self.reply()


@dataclass
class Home:
    """A user's home folder with releases of digits.

    Attributes:
        folder: it.
        agent: how the agent is called.
        inputs, outputs: of each release, by its name, recorded ones.
    """

    folder: Path
    agent: list[str]
    inputs: dict[str, bytes] = field(default_factory=dict)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.socket = self.folder / "socket"

    @property
    def releases(self) -> Path:
        return self.folder / BASE / "releases" / "digits"

    def add(self, package: Path, name: str) -> None:
        folder = unpack(package, self.releases / name)
        (folder / "agent").symlink_to(self.agent[-1])
        self.inputs[name] = (folder / "selftest" / "input-0.bin").read_bytes()
        self.outputs[name] = np.fromfile(folder / "selftest" / "output-0.bin", np.float32)

    def switch(self, name: str) -> None:
        """Put a release in use, as a push does: by one rename."""
        link = self.releases / "next"
        link.symlink_to(name)
        link.replace(self.releases / "current")

    def called(self, *options: object) -> list[str]:
        return [*self.agent, "service", "digits", "--socket", str(self.socket), *map(str, options)]

    @contextmanager
    def running(self, *options: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """The service, once it is ready; its log is its standard output."""
        with subprocess.Popen(
            self.called(*options),
            env={**os.environ, "HOME": str(self.folder), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                until(lambda: is_listening(self.socket) or process.poll() is not None)
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def client(self) -> Client:
        return Client(self.socket)

    def assert_right(self, release: str, said: dict[str, Any], content: bytes) -> None:
        """Whether a reply has the outputs of a release."""
        assert said["ok"], said
        assert said["release"] == release
        np.testing.assert_allclose(np.frombuffer(content, np.float32), self.outputs[release], atol=1e-4)


@pytest.fixture
def home(agent: Path, _packages: tuple[Path, Path], tmp_path: Path) -> Home:
    """Two releases, of which the first is in use."""
    made = Home(tmp_path, [str(agent)])
    for name, package in zip((FIRST, SECOND), _packages, strict=True):
        made.add(package, name)
    made.switch(FIRST)
    return made


def is_listening(path: Path) -> bool:
    """Whether clients can connect to a socket; what was killed left one to which none can."""
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return any(words[-1] == str(path) and words[3] == "00010000" for words in lines)


def events(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def until(is_so: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + generous(seconds)
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)

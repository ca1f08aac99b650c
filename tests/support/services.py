"""Services of an agent for tests: a home folder with releases, and clients of the socket."""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgedeploy.base.closing import Closing
from edgedeploy.remote.connection import Completed
from support.agents import need_what_it_lacks, request, unpack
from support.commands import generous, started, until

BASE = Path(".local", "share", "edgedeploy")

# Two releases of digits that differ in a weight.
FIRST, SECOND = "20260102T030405Z-00000001", "20260102T030406Z-00000002"


class Client(Closing):
    """A program that is connected to a service, which said `greeting` first."""

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
    """A user's home folder with releases of digits, and by name the recorded inputs and outputs of each."""

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
        given, pipe = {**os.environ, "HOME": str(self.folder), **environment}, subprocess.PIPE
        with started(*self.called(*options), env=given, stdout=pipe, stderr=pipe, text=True) as process:
            until(lambda: is_listening(self.socket) or process.poll() is not None)
            yield process

    def client(self) -> Client:
        return Client(self.socket)

    def assert_right(self, release: str, said: dict[str, Any], content: bytes) -> None:
        """Whether a reply has the outputs of a release."""
        assert said["ok"], said
        assert said["release"] == release
        np.testing.assert_allclose(np.frombuffer(content, np.float32), self.outputs[release], atol=1e-4)


@pytest.fixture
def home(agent: Path, _packages: tuple[Path, Path], tmp_path: Path) -> Home:
    return home_of(tmp_path, [str(agent)], _packages)


def home_of(folder: Path, agent: list[str], packages: Sequence[Path]) -> Home:
    """Two releases, of which the first is in use."""
    made = Home(folder, agent)
    for name, package in zip((FIRST, SECOND), packages, strict=True):
        made.add(package, name)
    made.switch(FIRST)
    return made


def is_listening(path: Path) -> bool:
    """Whether clients can connect to a socket; what was killed left one to which none can."""
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return any(words[-1] == str(path) and words[3] == "00010000" for words in lines)


def events(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


SYSTEMD = Path("/lib/systemd/systemd")

# systemd looks for the folder by which it knows that it runs the system; here it is the user's alone. It would take
# itself for the system's if it were the first process.
_BEGIN = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user/0 || exit
export XDG_RUNTIME_DIR=/run/user/0 HOME="$1"
/lib/systemd/systemd --user --log-target=console &
wait
"""


class UserSystemd:
    """A user's systemd that runs; `runtime` is `$XDG_RUNTIME_DIR` as it is seen from outside."""

    def __init__(self, home: Path, pid: int) -> None:
        self.home, self._pid = home, pid
        self.runtime = Path(f"/proc/{pid}/root/run/user/0")

    def run(self, script: str, *arguments: str, content: Iterable[bytes] = (), timeout_s: float = 120) -> Completed:
        """Run a script there, as `Connection.run` does on a board."""
        command = ["nsenter", "-t", str(self._pid), "-m", "-p", "sh", "-c", script, "sh", *arguments]
        done = subprocess.run(
            command,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            input=b"".join(content),
            capture_output=True,
            timeout=generous(timeout_s),
            check=False,
        )
        return Completed(done.returncode, done.stdout, done.stderr.decode(errors="replace").strip())

    def kill(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process by the number that it has there."""
        assert self.run('kill -s "$1" "$2"', number.name.removeprefix("SIG"), str(pid)).code == 0


@contextmanager
def user_systemd(home: Path) -> Iterator[UserSystemd]:
    """Skips the test where there is no systemd, or no right to namespaces."""
    if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("nsenter") is None:
        pytest.skip("needs root, systemd and nsenter: apt install systemd util-linux")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _BEGIN, "sh", home]
    environment = {"PATH": os.environ["PATH"]}
    log = home / "systemd.log"
    with log.open("wb") as said, started(*command, stdout=said, stderr=said, env=environment) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: children.read_text().split() or process.poll() is not None)
        if process.poll() is not None:
            pytest.skip(f"no namespaces: {log.read_text().strip()}")
        made = UserSystemd(home, int(children.read_text().split()[0]))
        until(lambda: (made.runtime / "systemd" / "private").exists() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        yield made

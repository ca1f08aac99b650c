"""Virtual boards as fixtures (real sshd, real files, no hardware), other SSH servers there, and packages to push."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import paramiko
import platformdirs
import pytest
from conftest import Command, run_command
from onnx import numpy_helper

from edgedeploy.base.closing import Closing
from edgedeploy.building import build
from edgedeploy.errors import VirtualBoardError
from edgedeploy.package.archive import read_package, write_package
from edgedeploy.release.layout import Release
from edgedeploy.release.lock import locked
from edgedeploy.release.push import Pushed, Trial, bring, push
from edgedeploy.release.steps import Inventory, inventory
from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address, address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.remote.facts import BASE
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.virtual.board import VirtualBoard, up
from edgedeploy.zoo.source import Source, find_source
from support.commands import becomes, executable, need, printed, put
from support.listeners import listening

# Looked up before tests get folders of their own: root file systems take long to make and never change.
ROOT_FILE_SYSTEMS = Path(platformdirs.user_cache_dir("edgedeploy")) / "rootfs"

END_ALL = """
import sys
from edgedeploy.virtual.board import down, running

sys.stdin.read()
for virtual in running():
    down(virtual)
"""

Start = Callable[..., VirtualBoard]


@pytest.fixture(scope="session")
def _needs_virtual_boards(_own_user_folders: None) -> Iterator[None]:
    """Skip where virtual boards cannot be had, and leave none behind."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("virtual boards need root on Linux")
    if shutil.which("mmdebstrap") is None:
        pytest.skip("virtual boards need mmdebstrap, which is not installed")
    mounting = ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    refused = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if refused.returncode != 0:
        pytest.skip(f"virtual boards need mounts in a namespace: {refused.stderr.strip()}")
    ROOT_FILE_SYSTEMS.mkdir(parents=True, exist_ok=True)
    own = Path(platformdirs.user_cache_dir("edgedeploy"))
    own.mkdir(parents=True, exist_ok=True)
    (own / "rootfs").symlink_to(ROOT_FILE_SYSTEMS)
    # Its input ends when the tests do, be it that they are killed.
    with subprocess.Popen([sys.executable, "-c", END_ALL], stdin=subprocess.PIPE, start_new_session=True):
        yield


@pytest.fixture(scope="session")
def start(_needs_virtual_boards: None) -> Start:
    """Starts a virtual board, as `virtual.board.up`; skips where its packages cannot be had."""

    def start_or_skip(board: str, **options: object) -> VirtualBoard:
        try:
            return up(resolve(board), **options)  # type: ignore[arg-type]
        except VirtualBoardError as error:
            if "qemu" in str(error) or "mmdebstrap" in str(error):
                pytest.skip(f"no virtual {board}: {error}")
            raise

    return start_or_skip


@pytest.fixture
def own(start: Start) -> VirtualBoard:
    """One of this machine's architecture, for tests that leave nothing on it."""
    return start("local", name="own")


def said(virtual: VirtualBoard, script: str) -> str:
    """What a script prints there."""
    with Connection(address_of(virtual)) as connection:
        return connection.run(script).text


def left_on(virtual: VirtualBoard) -> str:
    """Agents that serve on a board, and folders of servers there."""
    # The shell that runs this has it in its own command line, but not what the pattern matches.
    return said(virtual, "grep -la '[r]pc.--work-dir' /proc/[0-9]*/cmdline; ls ~/.local/share/edgedeploy/rpc")


def emptied(virtual: VirtualBoard) -> VirtualBoard:
    """A virtual board without the releases that other tests pushed to it."""
    said(virtual, f"rm -rf {BASE}")
    return virtual


def root_of(virtual: VirtualBoard) -> Path:
    """The root file system of a virtual board, as its own root sees it."""
    pid = virtual.process.pid
    [first] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return Path(f"/proc/{first}/root")


@pytest.fixture
def board_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, start: Start
) -> Command:
    """The command line in an empty folder, with the session's user folders, where the virtual boards are."""
    monkeypatch.chdir(tmp_path)
    return run_command(monkeypatch, capsys)


@contextmanager
def rpicam(board: VirtualBoard, image: np.ndarray, size: tuple[int, int]) -> Iterator[np.ndarray]:
    """Within the block the board's camera shows an image, of a width and height; that as OpenCV sees it."""
    planes = cv2.cvtColor(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), cv2.COLOR_BGR2YUV_I420)
    root = root_of(board)
    put(root / "opt" / "frame", planes.tobytes())
    program = executable(root / "usr" / "bin" / "rpicam-vid", "while cat /opt/frame; do sleep 0.05; done")
    try:
        yield cv2.cvtColor(planes, cv2.COLOR_YUV2BGR_I420)
    finally:
        program.unlink()


# Of a Raspberry Pi 5 that does little, in both forms that its firmware has; the supply and the battery have no current.
RAILS = """\
   3V3_SYS_A current(1)=0.10000000A
   VDD_CORE_A current(7)=1.50000000A
   3V3_SYS_V volt(9)=3.30000000V
   VDD_CORE_V volt(15)=0.80000000V
   EXT5V_V volt(24)=5.14000000V
   BATT_V volt(25)=0.00683760V
"""
EARLIER = "3V3_SYS_A=0.1A\nVDD_CORE_A=1.5A\n3V3_SYS_V=3.3V\nVDD_CORE_V=0.8V\nEXT5V_V=5.14V\n"


def vcgencmd(folder: Path, said: str = RAILS) -> None:
    """Put the firmware's program into a folder, which says this of the power chip, and nothing of all else."""
    executable(folder / "vcgencmd", f'[ "$*" = pmic_read_adc ] && cat <<"END"\n{said}END')


SSHD = """
cd && umask 077 && mkdir -p own && cd own && cat >host_key &&
printf '%s\\n' "$@" "HostKey $PWD/host_key" "ListenAddress 127.0.0.1" "AuthorizedKeysFile /etc/ssh/authorized_keys" \
    "UsePAM no" "PidFile none" >config && exec /usr/sbin/sshd -D -e -f "$PWD/config"
"""


@contextmanager
def own_servers(virtual: VirtualBoard, folder: Path) -> Iterator[Callable[..., Address]]:
    """Starts SSH servers of the board's user with lines of configuration, without SFTP unless one says so."""
    with Connection(address_of(virtual)) as connection:
        channels = []

        def start_one(*lines: str) -> Address:
            with socket.create_server((LOOPBACK, 0)) as listener:
                port = int(listener.getsockname()[1])
            # The key that logs in serves as the host's as well.
            public = connection.run("cat /etc/ssh/authorized_keys").text
            channels.append(connection.open(SSHD, *lines, f"Port {port}"))
            channels[-1].sendall(virtual.key.read_bytes())
            channels[-1].shutdown_write()
            assert becomes(lambda: listening(port))
            known_hosts = put(folder / "known_hosts", f"[{LOOPBACK}]:{port} {public}\n")
            return replace(address_of(virtual), port=port, known_hosts=known_hosts, name=None)

        yield start_one
        connection.run("for id in /proc/[0-9]*; do grep -q own/config $id/cmdline && kill ${id##*/}; done")
        for channel in channels:
            channel.close()


@pytest.fixture
def sshd(virtual: VirtualBoard, tmp_path: Path) -> Iterator[Callable[..., Address]]:
    """Starts further servers on the board of a module's own fixture `virtual`."""
    with own_servers(virtual, tmp_path) as start_one:
        yield start_one


# What a user's configuration leaves open is as OpenSSH has it, with another home folder.
SSH = """
{
    cat "$HOME/.ssh/config" 2>/dev/null
    printf '\\nMatch all\\nUserKnownHostsFile "%s"\\nGlobalKnownHostsFile none\\n' "$HOME/.ssh/known_hosts"
} >"$HOME/.ssh/config.all"
exec REAL -F "$HOME/.ssh/config.all" "$@"
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process, and each `ssh` that it starts, has an empty home without configuration, of which this is `.ssh`."""
    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(ssh.parent))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if real := shutil.which("ssh"):
        program = executable(tmp_path / "bin" / "ssh", SSH.replace("REAL", real))
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return ssh


def write_config(ssh: Path, *stanzas: str) -> None:
    """Configure OpenSSH's client, without which the test is skipped."""
    need("ssh", "openssh-client")
    (ssh / "config").write_text("\n".join(stanzas))


def stanza(alias: str, board: VirtualBoard, *, key: bool = True, more: str = "") -> str:
    """What is configured for a virtual board under another name, with its key or without one."""
    identity = f"IdentityFile {board.key}" if key else ""
    return f"Host {alias}\n HostName 127.0.0.1\n Port {board.port}\n User {board.user}\n {identity}\n {more}\n"


def new_key() -> str:
    """A public key that nobody has, as files of known hosts have it."""
    key = paramiko.ECDSAKey.generate()
    return f"{key.get_name()} {key.get_base64()}"


def made_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A private key of OpenSSH's; its public one lies beside it."""
    printed("ssh-keygen", "-q", "-N", passphrase, "-t", kind, "-f", path)
    return path


def sleep_after_greeting(stream: socket.socket) -> None:
    """What a server does that says what it is, and then nothing more."""
    stream.sendall(b"SSH-2.0-Sleepy\r\n")
    while stream.recv(4096):
        pass


def with_manifest(package: Path, name: str, **fields: object) -> Path:
    """A package beside another one, with other fields in its manifest."""
    manifest, contents = read_package(package)
    path = package.with_name(name)
    write_package(path, manifest.model_copy(update=fields), contents)
    return path


def two_packages(board: str, folder: Path) -> tuple[Path, Path]:
    source, target = find_source("digits"), resolve(board)
    network = onnx.load(source.file)
    weights = network.graph.initializer[0]
    changed = numpy_helper.to_array(weights).copy()
    changed.flat[0] += 1
    weights.CopyFrom(numpy_helper.from_array(changed, weights.name))
    onnx.save(network, folder / "digits.onnx")
    first = build(source, target, folder / "first.tar.gz").path
    return first, build(Source.of(folder / "digits.onnx", source.shapes), target, folder / "second.tar.gz").path


@dataclass(frozen=True)
class Bench(Closing):
    """A virtual board, and packages for a profile of two networks of one name that differ in a weight."""

    virtual: VirtualBoard
    agent: Path
    first: Path
    second: Path
    start: Start
    board: str = "local"

    def close(self) -> None:
        self._line.close()

    @property
    def host(self) -> str:
        return f"virtual:{self.virtual.name}"

    @property
    def at(self) -> tuple[str, ...]:
        return ("--board", self.board, "--host", self.host)

    @cached_property
    def _line(self) -> Connection:
        """A connection for looking: logging in takes longer than most of what is looked for."""
        return self.connected()

    def connected(self) -> Connection:
        return Connection(address_of(self.virtual))

    def release(self, package: Path) -> Release:
        return Release.of(package, self.agent, load_board(self.board))

    def push(self, package: Path, **options: Any) -> Pushed:
        with self.connected() as connection:
            return push(connection, self.release(package), **options)

    def variant(self, number: int) -> Path:
        return with_manifest(self.first, f"variant-{number}.tar.gz", build_key=f"{number:064x}")

    def other(self) -> VirtualBoard:
        return self.start("local", name="second")

    def say(self, script: str) -> str:
        return self._line.run(script).text

    def releases(self, model: str = "digits") -> list[str]:
        return list(self.stock(model).releases)

    def trials(self, model: str = "digits") -> list[str]:
        return list(self.stock(model).trials)

    def stock(self, model: str = "digits") -> Inventory:
        return inventory(self._line, model)

    def events(self, model: str = "digits") -> list[tuple[str, str]]:
        """The board's record of a model: what happened to which release."""
        return [(entry.event.value, entry.id) for entry in self.stock(model).record.entries]

    def bring(self, package: Path, *, temporarily: bool = False) -> Trial:
        with self.connected() as connection, locked(connection):
            return bring(connection, self.release(package), temporarily=temporarily)

    def current(self, model: str = "digits") -> str:
        return self.say(f"readlink {BASE}/releases/{model}/current")

    def current_works(self, model: str = "digits") -> bool:
        """Whether the release in use passes its self-test, run as a program on the board would run it."""
        script = f"cd {BASE}/releases/{model}/current/ && ./agent verify . && ./agent selftest ."
        return self._line.run(script).code == 0


@pytest.fixture(scope="session")
def _packages(_own_user_folders: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_packages("local", tmp_path_factory.mktemp("packages"))


@pytest.fixture
def bench(start: Start, agent: Path, _packages: tuple[Path, Path]) -> Iterator[Bench]:
    with Bench(start("local", name="bench"), agent, *_packages, start) as made:
        made.say(f"rm -rf {BASE}")
        yield made
        made.say(f"rm -rf {BASE}")

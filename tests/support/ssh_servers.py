"""Further SSH servers on a virtual board, with configurations that boards in the field may have."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from edgedeploy.remote import LOOPBACK
from edgedeploy.remote.address import Address, address_of
from edgedeploy.remote.connection import Connection
from edgedeploy.virtual.board import VirtualBoard
from support.commands import executable, need, printed
from support.listeners import listening
from support.patience import becomes

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
            known_hosts = folder / "known_hosts"
            known_hosts.write_text(f"[{LOOPBACK}]:{port} {public}\n")
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

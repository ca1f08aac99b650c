"""A home folder for OpenSSH's client, which takes the one of /etc/passwd whatever $HOME says; and keys."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import paramiko
import pytest

from edgedeploy.virtual.board import VirtualBoard
from support.commands import need

# What a user's configuration leaves open is as OpenSSH has it, with another home folder.
SSH = """#!/bin/sh
{
    cat "$HOME/.ssh/config" 2>/dev/null
    printf '\\nMatch all\\nUserKnownHostsFile "%s"\\nGlobalKnownHostsFile none\\n' "$HOME/.ssh/known_hosts"
} >"$HOME/.ssh/config.all"
exec REAL -F "$HOME/.ssh/config.all" "$@"
"""


def own_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give this process, and each `ssh` that it starts, an empty home without configuration. Returns its `.ssh`."""
    ssh = folder / "home" / ".ssh"
    ssh.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(ssh.parent))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if real := shutil.which("ssh"):
        program = folder / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(SSH.replace("REAL", real))
        program.chmod(0o755)
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
    command = ["ssh-keygen", "-q", "-N", passphrase, "-t", kind, "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path

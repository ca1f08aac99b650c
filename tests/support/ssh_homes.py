"""A home folder for OpenSSH's client, which takes the one of /etc/passwd whatever $HOME says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

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

"""OpenSSH's settings for a host, from `ssh -G`; without OpenSSH's client they are ignored, with a note."""

from __future__ import annotations

import getpass
import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import BoardConnectionError
from edgedeploy.remote.address import Address

# `Match exec` may run programs that ask the network.
_ANSWER_S = 15
_MOST_JUMPS = 8

_SSH_FOLDER = Path("~/.ssh")
_IDENTITIES = ("id_rsa", "id_ecdsa", "id_ed25519")
_KNOWN_HOSTS = ("known_hosts", "known_hosts2")
_JUMP = re.compile(r"(?:(?P<user>.+)@)?(?P<host>\[[^]]+\]|[^:]+)(?::(?P<port>\d+))?")


@dataclass(frozen=True)
class Settings:
    """How to log in to one host, as ssh_config(5) describes."""

    name: str  # the requested name, number or alias
    host: str
    port: int
    user: str
    identities: tuple[Path, ...] = ()  # the files of IdentityFile that exist
    identities_only: bool = False  # offer only the agent's keys that `identities` names
    agent: bool = True  # offer keys of ssh-agent; false for `IdentityAgent none`
    alias: str | None = None  # HostKeyAlias, another name for its host key
    known_hosts: tuple[Path, ...] = ()  # UserKnownHostsFile and GlobalKnownHostsFile
    revoked: Path | None = None
    strict: bool = False  # StrictHostKeyChecking is `yes`
    jump: str | None = None  # ProxyJump: `[USER@]HOST[:PORT],...` in order
    command: str | None = None  # ProxyCommand, with its tokens replaced


def route(address: Address, progress: Progress = SILENT) -> list[Settings]:
    """The hosts on the way to an address, each reached through the one before; the last is the board.

    As in OpenSSH, the first host of a ProxyJump is reached by its own configuration.
    """
    hops = [_of_address(address, progress)]
    while (jump := hops[0].jump) is not None:
        if len(hops) > _MOST_JUMPS:
            raise BoardConnectionError(
                f"the jump hosts of {address} go round in a circle",
                why=" is reached through ".join(hop.name for hop in reversed(hops[-3:])),
                hints=["`ssh -G HOST` shows the ProxyJump of each; give the first one `ProxyJump none`"],
            )
        before, _, last = jump.rpartition(",")
        parts = _JUMP.fullmatch(last)
        if parts is None:
            raise BoardConnectionError(f"invalid jump host {last!r}", hints=["correct ProxyJump in ~/.ssh/config"])
        port = int(parts["port"]) if parts["port"] else None
        hops.insert(0, _resolved(parts["host"].strip("[]"), parts["user"], port, before))
    return hops


def _of_address(address: Address, progress: Progress) -> Settings:
    folder = _SSH_FOLDER.expanduser()
    plain = Settings(
        address.host,
        address.host,
        address.port or 22,
        address.user or getpass.getuser(),
        identities=_present(folder / name for name in _IDENTITIES),
        known_hosts=tuple(folder / name for name in _KNOWN_HOSTS),
    )
    if address.known_hosts:
        plain = replace(plain, known_hosts=(address.known_hosts,))
    if address.key:
        # A virtual board is not a host of the user's network: settings for 127.0.0.1 do not apply.
        return replace(plain, identities=(address.key,), agent=False)
    if shutil.which("ssh"):
        return _resolved(address.host, address.user, address.port)
    if (folder / "config").exists():
        progress.note(f"{folder / 'config'} is ignored: OpenSSH is not installed here (apt install openssh-client)")
    return plain


def _resolved(host: str, user: str | None, port: int | None, jump: str = "") -> Settings:
    """The settings from `ssh -G`; these arguments override the configuration."""
    options = [*(["-l", user] if user else []), *(["-p", str(port)] if port else []), *(["-J", jump] if jump else [])]
    command = ["ssh", "-T", "-G", *options, "--", host]
    try:
        done = capture(command, timeout_s=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BoardConnectionError(f"OpenSSH does not state how {host} is reached", why=str(error)) from error
    if done.returncode != 0:
        raise BoardConnectionError(
            f"OpenSSH refuses to state how {host} is reached",
            why=done.stderr.rstrip("\n") or f"it ended with {done.returncode}",
            hints=[f"correct ~/.ssh/config until `ssh -G {host}` prints settings"],
        )
    values: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name, []).append(value)
    return _settings(host, values)


def _settings(original: str, values: Mapping[str, Sequence[str]]) -> Settings:
    def one(name: str) -> str | None:
        return next((value for value in values.get(name, ()) if value != "none"), None)

    host, port, user = one("hostname") or original, one("port") or "22", one("user") or ""
    alias, revoked, command = one("hostkeyalias"), one("revokedhostkeys"), one("proxycommand")
    tokens = {"%": "%", "h": host, "n": original, "p": port, "r": user}
    entry = pwd.getpwuid(os.getuid())
    here = socket.gethostname()
    everywhere = tokens | {
        **{"d": entry.pw_dir, "i": str(entry.pw_uid), "u": entry.pw_name, "k": alias or original},
        **{"j": one("proxyjump") or "", "l": here, "L": here.partition(".")[0]},
    }
    files = (one(name) or "" for name in ("userknownhostsfile", "globalknownhostsfile"))
    return Settings(
        original,
        host,
        int(port),
        user,
        identities=_present(_file(path, everywhere) for path in values.get("identityfile", ())),
        identities_only=one("identitiesonly") == "yes",
        agent=values.get("identityagent") != ["none"],
        alias=alias,
        known_hosts=tuple(path for stated in files for path in _files(stated)),
        revoked=_file(revoked, everywhere) if revoked else None,
        strict=one("stricthostkeychecking") in ("yes", "true"),
        jump=one("proxyjump"),
        command=_replaced(command, tokens) if command else None,
    )


def _files(stated: str) -> list[Path]:
    """The files of a list. Spaces separate them and may be in names: a part that starts no path continues one."""
    return [Path(part).expanduser() for part in re.split(r" (?=[/~])", stated) if part not in ("", "none")]


def _file(stated: str, tokens: Mapping[str, str]) -> Path:
    named = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], ""), stated)
    return Path(_replaced(named, tokens)).expanduser()


def _replaced(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub("%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _present(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if os.access(path, os.R_OK) and path.is_file())

"""Which host keys are trusted: those of the user's OpenSSH, and those that were shown once and recorded."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path

import paramiko

from edgedeploy.catalog import user_folder
from edgedeploy.errors import HostKeyError
from edgedeploy.files import cannot_write
from edgedeploy.progress import Progress


def known_hosts_file() -> Path:
    """Where edgedeploy records host keys, in OpenSSH's form."""
    return user_folder() / "known_hosts"


def openssh_known_hosts() -> Path:
    """The user's own file, which is read and never written."""
    return Path("~/.ssh/known_hosts").expanduser()


class FirstUse(paramiko.MissingHostKeyPolicy):
    """Records an unknown host key and shows its fingerprint; a key that changed never comes here.

    With `strict`, or where there is no file to record in, it is refused.
    """

    def __init__(self, record: Path | None, *, strict: bool, progress: Progress) -> None:
        self._record = record
        self._strict = strict
        self._progress = progress

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Take or refuse the key of a host of which none is known.

        Raises:
            HostKeyError: it is refused.
            OutputError: it cannot be recorded.
        """
        shown = f"{key.get_name()} {key.fingerprint}"
        if self._strict or self._record is None:
            raise HostKeyError(
                f"the host key of {hostname} is not known",
                why=f"it shows {shown}",
                hints=[
                    "compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board",
                    "if it is right, leave out --strict-host-key once: the key is then recorded",
                ],
            )
        line = f"{hostname} {key.get_name()} {key.get_base64()}\n"
        try:
            self._record.parent.mkdir(parents=True, exist_ok=True)
            with self._record.open("a", encoding="ascii") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                stream.write(line)
        except OSError as error:
            raise cannot_write(self._record, error) from error
        client.get_host_keys().add(hostname, key.get_name(), key)
        self._progress.note(f"{hostname} is new here; its host key, {shown}, is recorded in {self._record}")


def known_as(host: str, port: int) -> str:
    """The name under which files of known hosts have a host."""
    return host if port == 22 else f"[{host}]:{port}"


def changed(error: paramiko.BadHostKeyException, names: Sequence[str], files: Sequence[Path]) -> HostKeyError:
    """The error for a host that shows another key than the one that is known.

    Args:
        error: what paramiko says of it.
        names: the hosts that may be meant, the board and its jump hosts.
        files: where trusted keys are.
    """
    places = [(path, name) for path in files for name in names if _trusts(path, name, error.expected_key)]
    shown = places[0][1] if places else error.hostname
    return HostKeyError(
        f"the host key of {shown} has changed",
        why=f"known is {error.expected_key.get_name()} {error.expected_key.fingerprint}, "
        f"it shows {error.key.get_name()} {error.key.fingerprint}; nothing was sent",
        hints=[
            "find out why: the board was set up anew, another one has its address, or somebody is in between",
            *(f"if it is right, forget the known key: ssh-keygen -f {path} -R '{name}'" for path, name in places),
        ],
    )


def _trusts(path: Path, name: str, key: paramiko.PKey) -> bool:
    keys = paramiko.HostKeys()
    if path.is_file():
        keys.load(str(path))
    return key in (keys.lookup(name) or {}).values()

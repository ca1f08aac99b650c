"""Which host keys are trusted: those of the user's OpenSSH, and those that were shown once and recorded."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import paramiko

from edgedeploy.errors import HostKeyError
from edgedeploy.files import cannot_write
from edgedeploy.progress import Progress
from edgedeploy.remote.certificates import authority_of, objection
from edgedeploy.remote.known_hosts import Entry, Marker, key_blob, name_of, read
from edgedeploy.remote.openssh import Settings
from edgedeploy.settings import user_folder

_CERTIFICATE = "-cert-v01@openssh.com"
# What an RSA key signs with; SHA-1 is not taken.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# Names that mean nothing else in a file of known hosts.
_PLAIN_NAME = re.compile(r"[\w.:%\[\]-]+")

# The beginning of a key revocation list, PROTOCOL.krl of OpenSSH.
_KRL = b"SSHKRL\n\0"

_COMPARE = "compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board"


def known_hosts_file() -> Path:
    """Where edgedeploy records host keys, in OpenSSH's form."""
    return user_folder() / "known_hosts"


class HostKeys:
    """What is known of the host keys of one host, and what becomes of the key that it shows.

    Attributes:
        name: of the host, as files of known hosts have it.
    """

    def __init__(self, settings: Settings, *, record: Path | None, strict: bool, progress: Progress) -> None:
        """Read the files.

        Args:
            settings: the host, and its files of known hosts, which are never written.
            record: where an unknown key is recorded; it is trusted as the others are. None refuses unknown keys.
            strict: refuse unknown keys.
            progress: is told when one is recorded.
        """
        self.name = settings.alias or name_of(settings.host, settings.port)
        self._host = settings.alias or settings.host
        self._settings, self._record, self._progress = settings, record, progress
        self._strict = strict or settings.strict
        entries = [entry for path in [*settings.known_hosts, *([record] if record else [])] for entry in read(path)]
        self._known = [entry for entry in entries if entry.is_of(self.name.lower())]
        # As in OpenSSH, what is known of the host without its port counts, but does not speak against another key.
        further = [] if settings.alias else [entry for entry in entries if entry.is_of(settings.host.lower())]
        self._all = [*self._known, *(entry for entry in further if entry not in self._known)]

    def ordered(self, algorithms: Sequence[str]) -> list[str]:
        """Algorithms of host keys, those first with which the host can show what is known of it."""
        known = self._of(Marker.NONE, self._known) or self._of(Marker.NONE)
        first = [name for entry in known for name in _ALGORITHMS.get(entry.type, (entry.type,))]
        plain = sorted(algorithms, key=lambda name: name not in first)
        return [*(name + _CERTIFICATE for name in plain), *plain] if self._of(Marker.AUTHORITY) else plain

    def check(self, key: paramiko.PKey) -> str:
        """Where the key that the host shows is known from; a key of a host of which none is known is recorded."""
        blob = key.asbytes()
        certificate = key.public_blob.key_blob if key.public_blob else None
        shown = f"{key.get_name()} {key.fingerprint}"
        self._refuse_revoked(blob, certificate, shown)
        authorities = self._of(Marker.AUTHORITY)
        why = "it shows no certificate"
        if certificate and authorities:
            refused = objection(certificate, self._host, {entry.blob for entry in authorities})
            if refused is None:
                [authority, *_] = [entry for entry in authorities if entry.blob == authority_of(certificate)]
                return f"certified by {authority}"
            why = refused
        for entry in self._of(Marker.NONE):
            if entry.blob == blob:
                return str(entry)
        if others := self._of(Marker.NONE, self._known):
            raise self._changed(others, shown)
        if authorities:
            raise HostKeyError(
                f"no trusted certificate covers the host key of {self.name}",
                why=f"{authorities[0]} wants one of its authority, and {why}; nothing was sent",
                hints=[
                    "have the authority sign the board's host key: ssh-keygen -s CA -h -n NAME, and HostCertificate",
                    f"or trust the key itself: {_COMPARE}, and add a line with {self.name} to ~/.ssh/known_hosts",
                ],
            )
        return self._first_use(key, shown)

    def _of(self, marker: Marker, entries: Sequence[Entry] | None = None) -> list[Entry]:
        return [entry for entry in (self._all if entries is None else entries) if entry.marker is marker]

    def _refuse_revoked(self, blob: bytes, certificate: bytes | None, shown: str) -> None:
        blobs = {blob, certificate and authority_of(certificate)}
        places = [str(entry) for entry in self._of(Marker.REVOKED) if entry.blob in blobs]
        if self._settings.revoked and not places:
            places = _revoked_by(self._settings.revoked, [each for each in (blob, certificate) if each], blobs)
        if places:
            raise HostKeyError(
                f"the host key of {self.name} is revoked",
                why=f"it shows {shown}, and {places[0]} says that this key is not to be trusted; nothing was sent",
                hints=["give the board another host key: whoever has the revoked one can impersonate it"],
            )

    def _changed(self, known: Sequence[Entry], shown: str) -> HostKeyError:
        forget = [
            f"ssh-keygen -f {entry.path} -R '{self.name}'" if entry.is_removed_with(self.name) else f"correct {entry}"
            for entry in known
        ]
        expected = ", ".join(dict.fromkeys(f"{entry.type} {fingerprint(entry.blob)}" for entry in known))
        return HostKeyError(
            f"the host key of {self.name} has changed",
            why=f"known is {expected}, it shows {shown}; nothing was sent",
            hints=[
                "find out why: the board was set up anew, another one has its address, or somebody is in between",
                *(f"if it is right, forget the known key: {command}" for command in dict.fromkeys(forget)),
            ],
        )

    def _first_use(self, key: paramiko.PKey, shown: str) -> str:
        if self._strict or self._record is None:
            raise HostKeyError(
                f"the host key of {self.name} is not known",
                why=f"it shows {shown}",
                hints=[
                    _COMPARE,
                    "if it is right, let it be recorded: once without --strict-host-key and StrictHostKeyChecking",
                ],
            )
        if not _PLAIN_NAME.fullmatch(self.name):
            raise HostKeyError(f"the host key of {self.name!r} cannot be recorded", why="its name would be a pattern")
        line = f"{self.name.lower()} {key.get_name()} {key.get_base64()}\n"
        try:
            self._record.parent.mkdir(parents=True, exist_ok=True)
            with self._record.open("ab+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(0, size - 1))
                torn = stream.read(1) not in (b"", b"\n")  # a disk may have been full
                stream.write(("\n" * torn + line).encode())
        except OSError as error:
            raise cannot_write(self._record, error) from error
        self._progress.note(f"{self.name} is new here; its host key, {shown}, is recorded in {self._record}")
        return str(self._record)


def fingerprint(blob: bytes) -> str:
    """A public key's fingerprint as OpenSSH shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _revoked_by(path: Path, shown: Sequence[bytes], keys: set[bytes | None]) -> list[str]:
    """The file of RevokedHostKeys, if it names one of some keys."""
    try:
        content = path.read_bytes()
        if not content.startswith(_KRL):
            return [str(path)] if keys & set(_public_keys(content)) else []
        with tempfile.TemporaryDirectory(prefix="edgedeploy-") as folder:
            for number, blob in enumerate(shown):
                kind = paramiko.Message(blob).get_text()
                (Path(folder) / str(number)).write_text(f"{kind} {base64.b64encode(blob).decode()}\n")
            command = ["ssh-keygen", "-Q", "-f", str(path), *map(str, sorted(Path(folder).iterdir()))]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except (OSError, ValueError) as error:
        raise HostKeyError(
            "it is not known which host keys are revoked",
            why=f"{path} of RevokedHostKeys: {getattr(error, 'strerror', None) or error}",
            hints=["correct RevokedHostKeys in ~/.ssh/config, or that file"],
        ) from error
    return [str(path)] if done.returncode else []


def _public_keys(content: bytes) -> Iterator[bytes]:
    """The keys of a file with one on each line."""
    for line in content.decode(errors="replace").split("\n"):
        if fields := line.partition("#")[0].split():
            yield key_blob(fields[0], "".join(fields[1:2]))

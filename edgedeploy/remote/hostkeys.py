"""The trusted host keys: the keys that the user's OpenSSH knows, and the keys that were recorded when first seen.

Files of known hosts have OpenSSH's form (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT), certificates that of PROTOCOL.certkeys.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from edgedeploy.base.files import append_line
from edgedeploy.base.progress import Progress
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import HostKeyError
from edgedeploy.remote.openssh import Settings

_LOG = logging.getLogger(__name__)

_CERTIFICATE = "-cert-v01@openssh.com"
# The signature algorithms of RSA keys, without SHA-1.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# Names without a special meaning in a file of known hosts.
_PLAIN_NAME = re.compile(r"[\w.:%\[\]-]+")

# The first bytes of a key revocation list, PROTOCOL.krl of OpenSSH.
_KRL = b"SSHKRL\n\0"

_COMPARE = "compare that with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board"


class Marker(Enum):
    """The kind of key on a line of a file of known hosts."""

    NONE = ""
    AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


@dataclass(frozen=True)
class Entry:
    """A line of a file of known hosts."""

    path: Path
    line: int
    marker: Marker
    names: str  # the hosts: patterns, or one hashed name
    type: str  # of the key, such as `ssh-ed25519`
    blob: bytes  # the public key in SSH's wire format

    def is_of(self, name: str) -> bool:
        """Whether the line is about a host, by its name as `name_of` writes it."""
        if self.names.startswith("|"):
            return _is_hash_of(self.names, name)
        found = False
        for pattern in self.names.lower().split(","):
            # Brackets have no special meaning in these patterns.
            if fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
                if pattern.startswith("!"):
                    return False
                found = True
        return found

    def is_removed_with(self, name: str) -> bool:
        """Whether `ssh-keygen -R` removes the line for a name: it keeps markers and patterns."""
        named = _is_hash_of(self.names, name) or name in self.names.lower().split(",")
        return self.marker is Marker.NONE and named

    def __str__(self) -> str:
        return f"line {self.line} of {self.path}"


def _is_hash_of(names: str, name: str) -> bool:
    """HMAC-SHA1 of the name with a random salt: `|1|SALT|HASH`."""
    parts = names.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    try:
        salt, expected = (base64.b64decode(part, validate=True) for part in parts[2:])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), expected)


def name_of(host: str, port: int) -> str:
    """A host's name in files of known hosts."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def read_known_hosts(path: Path) -> Iterator[Entry]:
    """The lines of a file if it exists; invalid lines are skipped, as in OpenSSH."""
    try:
        content = path.read_bytes()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _LOG.info("%s is left out: %s", path, error.strerror)
        return
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        try:
            marker = Marker(fields.pop(0)) if fields[0].startswith("@") else Marker.NONE
            names, kind, key = fields[:3]
            yield Entry(path, number, marker, names, kind, key_blob(kind, key))
        except ValueError:
            _LOG.info("line %d of %s is left out: it has no valid host key", number, path)


def key_blob(kind: str, text: str) -> bytes:
    """A public key in SSH's wire format, from its type and its base64 form; ValueError if it has another type."""
    blob = base64.b64decode(text, validate=True)
    if blob[:4] + blob[4 : 4 + len(kind)] != len(kind).to_bytes(4, "big") + kind.encode():
        raise ValueError(f"it is not a {kind} key")
    return blob


def fingerprint(blob: bytes) -> str:
    """A public key's fingerprint as OpenSSH shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def known_hosts_file() -> Path:
    """Where edgedeploy records host keys, in OpenSSH's form."""
    return user_folder() / "known_hosts"


class HostKeys:
    """The known host keys of one host, and the check of the key that it shows."""

    def __init__(self, settings: Settings, *, record: Path | None, strict: bool, progress: Progress) -> None:
        """Read the files of known hosts, which are never written.

        An unknown key is recorded in another file, `record`, which is trusted like them; None refuses unknown keys.
        """
        self.name = settings.alias or name_of(settings.host, settings.port)
        self._host = settings.alias or settings.host
        self._settings, self._record, self._progress = settings, record, progress
        self._strict = strict or settings.strict
        paths = [*settings.known_hosts, *([record] if record else [])]
        entries = [entry for path in paths for entry in read_known_hosts(path)]
        self._known = [entry for entry in entries if entry.is_of(self.name.lower())]
        # As in OpenSSH, keys known for the host without its port count, but do not speak against another key.
        further = [] if settings.alias else [entry for entry in entries if entry.is_of(settings.host.lower())]
        self._all = [*self._known, *(entry for entry in further if entry not in self._known)]

    def ordered(self, algorithms: Sequence[str]) -> list[str]:
        """Algorithms of host keys, those of known keys first."""
        known = self._of(Marker.NONE, self._known) or self._of(Marker.NONE)
        first = [name for entry in known for name in _ALGORITHMS.get(entry.type, (entry.type,))]
        plain = sorted(algorithms, key=lambda name: name not in first)
        return [*(name + _CERTIFICATE for name in plain), *plain] if self._of(Marker.AUTHORITY) else plain

    def check(self, key: paramiko.PKey) -> str:
        """Where the host's key is known from; a host without any known key has it recorded, others are refused."""
        blob = key.asbytes()
        certificate = key.public_blob.key_blob if key.public_blob else None
        shown = f"{key.get_name()} {key.fingerprint}"
        self._refuse_revoked(blob, certificate, shown)
        authorities = self._of(Marker.AUTHORITY)
        why = "it shows no certificate"
        if certificate and authorities:
            refused = _objection(certificate, self._host, {entry.blob for entry in authorities})
            if refused is None:
                [authority, *_] = [entry for entry in authorities if entry.blob == _authority_of(certificate)]
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
        blobs = {blob, certificate and _authority_of(certificate)}
        places = [str(entry) for entry in self._of(Marker.REVOKED) if entry.blob in blobs]
        if self._settings.revoked and not places:
            places = _revoked_by(self._settings.revoked, [each for each in (blob, certificate) if each], blobs)
        if places:
            raise HostKeyError(
                f"the host key of {self.name} is revoked",
                why=f"it shows {shown}, which {places[0]} revokes; nothing was sent",
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
                "find out why: the board was reinstalled, another one has its address, or somebody is in between",
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
        append_line(self._record, f"{self.name.lower()} {key.get_name()} {key.get_base64()}")
        self._progress.note(f"{self.name} is new here; its host key, {shown}, is recorded in {self._record}")
        return str(self._record)


def _revoked_by(path: Path, shown: Sequence[bytes], keys: set[bytes | None]) -> list[str]:
    """The file of RevokedHostKeys, if it names one of some keys."""
    try:
        content = path.read_bytes()
        if not content.startswith(_KRL):
            lines = [line.partition("#")[0].split() for line in content.decode(errors="replace").split("\n")]
            return [str(path)] if keys & {key_blob(line[0], "".join(line[1:2])) for line in lines if line} else []
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


def _authority_of(blob: bytes) -> bytes | None:
    """The public key of the authority that a certificate names; None if the certificate cannot be read."""
    certificate = _certificate(blob)
    if certificate is None:
        return None
    text = certificate.signature_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return base64.b64decode(text.split()[1])


def _objection(blob: bytes, host: str, authorities: Collection[bytes]) -> str | None:
    """Why a host certificate is not valid for a host; None if it is.

    Stricter than OpenSSH in one point: a certificate without names, which some versions take for any host, is invalid.
    The host is the requested name or alias, without a port; keys and certificate are in SSH's wire format.
    """
    certificate = _certificate(blob)
    if certificate is None:
        return "its certificate cannot be read"
    if _authority_of(blob) not in authorities:
        return "its certificate is signed by another authority"
    try:
        certificate.verify_cert_signature()
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return "the signature of its certificate is wrong"
    if _signature_algorithm(blob) == "ssh-rsa":
        return "its certificate is signed with SHA-1"
    if certificate.type is not serialization.SSHCertificateType.HOST:
        return "its certificate is a user's"
    if host.lower().encode() not in certificate.valid_principals:
        names = ", ".join(name.decode(errors="replace") for name in certificate.valid_principals)
        return f"its certificate names {names or 'no host'}, not {host}"
    if certificate.critical_options:
        return "its certificate has critical options"
    now = time.time()
    if now < certificate.valid_after:
        return "its certificate is not valid yet"
    return "its certificate has expired" if now >= certificate.valid_before else None


def _certificate(blob: bytes) -> serialization.SSHCertificate | None:
    kind = paramiko.Message(blob).get_string()
    try:
        found = serialization.load_ssh_public_identity(kind + b" " + base64.b64encode(blob))
    except (ValueError, UnsupportedAlgorithm):
        return None
    return found if isinstance(found, serialization.SSHCertificate) else None


def _signature_algorithm(blob: bytes) -> str:
    """The algorithm of the signature, which is a certificate's last field."""
    message = paramiko.Message(blob)
    kind = message.get_text()
    # The nonce and the key's own fields; mpints have the form of strings.
    for _ in range(1 + (1 if "ed25519" in kind else 2)):
        message.get_string()
    message.get_bytes(8 + 4)  # serial number, type
    for _ in ("key id", "principals"):
        message.get_string()
    message.get_bytes(8 + 8)  # valid after, valid before
    for _ in ("critical options", "extensions", "reserved", "authority"):
        message.get_string()
    return paramiko.Message(message.get_string()).get_text()

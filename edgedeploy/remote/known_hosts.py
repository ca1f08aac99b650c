"""OpenSSH's files of known hosts, as sshd(8) describes them under SSH_KNOWN_HOSTS FILE FORMAT."""

from __future__ import annotations

import base64
import hmac
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

_LOG = logging.getLogger(__name__)


class Marker(Enum):
    """What a line says of its key."""

    NONE = ""
    AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


@dataclass(frozen=True)
class Entry:
    """A line of such a file.

    Attributes:
        path, line: where it stands; lines count from 1.
        marker: what it says of its key.
        names: the hosts that it is about: patterns, or one hashed name.
        type: of the key, such as `ssh-ed25519`.
        blob: the public key in SSH's wire format.
    """

    path: Path
    line: int
    marker: Marker
    names: str
    type: str
    blob: bytes

    def is_of(self, name: str) -> bool:
        """Whether the line is about a host, whose name is as `name_of` writes it."""
        if self.names.startswith("|"):
            return _is_hash_of(self.names, name)
        found = False
        for pattern in self.names.lower().split(","):
            if _matches(pattern.removeprefix("!"), name):
                if pattern.startswith("!"):
                    return False
                found = True
        return found

    def is_removed_with(self, name: str) -> bool:
        """Whether `ssh-keygen -R` takes the line away for a name: it leaves markers and patterns."""
        named = _is_hash_of(self.names, name) or name in self.names.lower().split(",")
        return self.marker is Marker.NONE and named

    def __str__(self) -> str:
        return f"line {self.line} of {self.path}"


def name_of(host: str, port: int) -> str:
    """The name under which these files have a host."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def read(path: Path) -> Iterator[Entry]:
    """The lines of a file, if it is there. As OpenSSH does, those that cannot be understood are left out."""
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
        marker = Marker.NONE
        try:
            if fields[0].startswith("@"):
                marker = Marker(fields.pop(0))
            names, kind, key = fields[:3]
            yield Entry(path, number, marker, names, kind, key_blob(kind, key))
        except ValueError:
            _LOG.info("line %d of %s is left out: it states no host key", number, path)


def key_blob(kind: str, text: str) -> bytes:
    """A public key in SSH's wire format, from its type and its base64 form."""
    blob = base64.b64decode(text, validate=True)
    if blob[:4] + blob[4 : 4 + len(kind)] != len(kind).to_bytes(4, "big") + kind.encode():
        raise ValueError(f"it is no {kind} key")
    return blob


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


def _matches(pattern: str, name: str) -> bool:
    """Whether a name is one that a pattern with `*` and `?` means, in which brackets mean themselves."""
    return fnmatchcase(name, pattern.replace("[", "[[]"))

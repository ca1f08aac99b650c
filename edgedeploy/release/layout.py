"""The files on a board, and the contents of a release.

Below the home folder, in `.local/share/edgedeploy`:

    agent                           the agent that was pushed last
    lock                            held while releases are changed
    blobs/SHA256                    each file that was sent, by its content
    releases/MODEL/ID/...           one release: hard links to blobs, under the names of the package
    releases/MODEL/current          a symbolic link to the release in use
    releases/MODEL/history          the releases in use: see `record`
    trials/MODEL/ID/...             a release that `run`, `demo` or `bench` brought; it is never in use
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edgedeploy.errors import InputError
from edgedeploy.package.abi import read_abi
from edgedeploy.package.archive import manifest_bytes, read_package
from edgedeploy.package.manifest import AGENT_NAME, MANIFEST_NAME, MODEL_NAME, Abi, Manifest
from edgedeploy.remote.facts import BASE
from edgedeploy.target.board import Board

CURRENT = "current"
RELEASES, TRIALS = "releases", "trials"
# Prefix of a release that is not complete yet; no release's name begins with it.
STAGING = "staging-"

_TIME = "%Y%m%dT%H%M%SZ"
_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


@dataclass(frozen=True)
class Release:
    """A release to put on a board."""

    manifest: Manifest
    contents: Mapping[str, bytes]  # files by name, with the manifest and the agent
    blobs: Mapping[str, str]  # the SHA-256 of each file, by name
    content: str  # SHA-256 over names and blobs: equal for equal releases
    agent_abi: Abi

    @classmethod
    def of(cls, package: Path, agent: Path, board: Board) -> Release:
        """The release of a package, with the agent for a board."""
        manifest, members = read_package(package)
        program, agent_abi = agent.read_bytes(), read_abi(agent, board)
        contents = {**members, MANIFEST_NAME: manifest_bytes(manifest), AGENT_NAME: program}
        blobs = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}
        content = hashlib.sha256("".join(f"{name} {blob}\n" for name, blob in blobs.items()).encode()).hexdigest()
        return cls(manifest, contents, blobs, content, agent_abi)

    @property
    def model(self) -> str:
        """The name of its model."""
        return self.manifest.model

    def new_id(self, present: Iterable[str]) -> str:
        """A name for this release: the time, and a part of its content's hash.

        It sorts after all that are `present`, even if they were named by a clock ahead of ours.
        """
        later = (made_at(identity) + timedelta(seconds=1) for identity in present)
        return f"{max([datetime.now(timezone.utc), *later]):{_TIME}}-{self.content[:8]}"

    def is_called(self, identity: str) -> bool:
        """Whether a release of this content has that name."""
        return is_id(identity) and identity.endswith(f"-{self.content[:8]}")


def check_model(name: str) -> str:
    """A model's name, checked."""
    if not is_model(name):
        raise InputError(f"invalid name of a model on a board: {name!r}")
    return name


def check_id(identity: str) -> str:
    """A release's name, checked."""
    if not is_id(identity):
        raise InputError(
            f"invalid name of a release: {identity!r}", hints=["list them with `edgedeploy releases list`"]
        )
    return identity


def is_model(name: str) -> bool:
    """Whether a model on a board can have this name."""
    return re.fullmatch(MODEL_NAME, name) is not None


def is_id(name: str) -> bool:
    """Whether a folder on the board has the name of a release."""
    try:
        return _ID.fullmatch(name) is not None and bool(made_at(name))
    except ValueError:
        return False


def made_at(identity: str) -> datetime:
    """The time in a release's name: when it was assembled, or later than those before it."""
    return datetime.strptime(identity.partition("-")[0], _TIME).replace(tzinfo=timezone.utc)


def folder_of(model: str, identity: str) -> str:
    """A release's folder, relative to the home folder."""
    return f"{BASE}/{RELEASES}/{model}/{identity}"

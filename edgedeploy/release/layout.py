"""What lies where on a board, and what a release consists of.

Below the home folder, in `.local/share/edgedeploy`:

    agent                           the agent that was pushed last
    lock                            held while releases are changed
    blobs/SHA256                    every file that was ever sent, by its content
    releases/MODEL/ID/...           one release: hard links to blobs, under the names of the package
    releases/MODEL/current          a symbolic link to the release in use
    releases/MODEL/history          what was in use: see `record`
    trials/MODEL/ID/...             a release that `run`, `demo` or `bench` brought; it is never in use
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from edgedeploy.board import Board
from edgedeploy.errors import InputError
from edgedeploy.package.abi import read_abi
from edgedeploy.package.archive import manifest_bytes, read_package
from edgedeploy.package.manifest import AGENT_NAME, MANIFEST_NAME, MODEL_NAME, Abi, Manifest
from edgedeploy.remote.facts import BASE

CURRENT = "current"
RELEASES, TRIALS = "releases", "trials"
# Prefix of a release that is not complete yet; no release begins so.
STAGING = "staging-"

_TIME = "%Y%m%dT%H%M%SZ"
_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


@dataclass(frozen=True)
class Release:
    """What is to be put on a board.

    Attributes:
        manifest: of the package.
        contents: files by name, the manifest and the agent among them.
        blobs: the SHA-256 of each, by name.
        content: SHA-256 over names and blobs: equal for equal releases.
        agent_abi: what the agent needs of the board; what the package needs stands in its manifest.
    """

    manifest: Manifest
    contents: Mapping[str, bytes]
    blobs: Mapping[str, str]
    content: str
    agent_abi: Abi

    @classmethod
    def of(cls, package: Path, agent: Path, board: Board) -> Release:
        """The release of a package with the agent that runs it on a board."""
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

        It sorts after all that are `present`, even if the clock of whoever made those was ahead of ours.
        """
        now = datetime.now(timezone.utc)
        for identity in present:
            now = max(now, made_at(identity) + timedelta(seconds=1))
        return f"{now:{_TIME}}-{self.content[:8]}"

    def is_called(self, identity: str) -> bool:
        """Whether a release of this content has that name."""
        return is_id(identity) and identity.endswith(f"-{self.content[:8]}")


def check_model(name: str) -> str:
    """A model's name that was given on the command line."""
    if not is_model(name):
        raise InputError(f"{name!r} is no name of a model on a board")
    return name


def check_id(identity: str) -> str:
    """A release's name that was given on the command line."""
    if not is_id(identity):
        raise InputError(f"{identity!r} is no name of a release", hints=["list them with `edgedeploy releases list`"])
    return identity


def is_model(name: str) -> bool:
    """Whether that can be the name of a model on a board."""
    return re.fullmatch(MODEL_NAME, name) is not None


def is_id(name: str) -> bool:
    """Whether a folder on the board is a release."""
    try:
        return _ID.fullmatch(name) is not None and bool(made_at(name))
    except ValueError:
        return False


def made_at(identity: str) -> datetime:
    """The time that a release's name states: when it was put together, or later than those before it."""
    return datetime.strptime(identity.partition("-")[0], _TIME).replace(tzinfo=timezone.utc)


def folder_of(model: str, identity: str) -> str:
    """A release's folder, relative to the home folder."""
    return f"{BASE}/{RELEASES}/{model}/{identity}"

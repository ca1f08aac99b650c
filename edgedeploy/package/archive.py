"""Writes and reads package archives: byte for byte reproducible, and never trusted when read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from edgedeploy.errors import PackageError
from edgedeploy.files import replacing
from edgedeploy.package.manifest import MANIFEST_NAME, Manifest, Member
from edgedeploy.tarballs import DamagedArchiveError, opened_archive, write_archive

# A manifest is a few kB; a network of a board rarely exceeds 250 MB. Archives beyond that are refused: what is read is
# kept in memory.
MAXIMUM_MANIFEST = 1 << 20
MAXIMUM_CONTENT = 1 << 30

Contents = Mapping[str, bytes]


def describe(contents: Contents) -> dict[str, Member]:
    """The manifest's entries for files held in memory."""
    return {
        name: Member(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in sorted(contents.items())
    }


def write_package(path: Path, manifest: Manifest, contents: Contents) -> None:
    """Write a package; equal manifest and contents give equal bytes.

    Raises:
        OutputError: the file cannot be written.
    """
    with replacing(path) as temporary:
        # The manifest comes first, so that a reader knows what follows.
        write_archive(temporary, {MANIFEST_NAME: manifest_bytes(manifest), **dict(sorted(contents.items()))})


def manifest_bytes(manifest: Manifest) -> bytes:
    """A manifest as it stands in the archive: sorted JSON."""
    return (json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True) + "\n").encode()


def read_manifest(path: Path) -> Manifest:
    """Read only a package's manifest.

    Raises:
        PackageError: the archive or its manifest is damaged.
    """
    return _read(path, only_manifest=True)[0]


def read_package(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Read a package, checking every member against the manifest.

    Raises:
        PackageError: something is missing, superfluous, damaged, too large, or not a plain file.
    """
    return _read(path, only_manifest=False)


def _read(path: Path, *, only_manifest: bool) -> tuple[Manifest, dict[str, bytes]]:
    def refuse(why: str) -> PackageError:
        return PackageError(f"{path} is not a sound package", why=why, hints=["build it again with `edgedeploy build`"])

    contents: dict[str, bytes] = {}
    manifest: Manifest | None = None
    try:
        with opened_archive(path) as entries:
            for entry in entries:
                if manifest is None:
                    if entry.name != MANIFEST_NAME or entry.size > MAXIMUM_MANIFEST:
                        raise refuse(f"it does not begin with {MANIFEST_NAME}")
                    manifest = Manifest.model_validate_json(entry.stream.read(MAXIMUM_MANIFEST))
                    total = sum(member.size for member in manifest.files.values())
                    if total > MAXIMUM_CONTENT:
                        raise refuse(f"it holds {total:,} bytes, more than the {MAXIMUM_CONTENT:,} that are read")
                    if only_manifest:
                        return manifest, {}
                    continue
                expected = manifest.files.get(entry.name)
                if expected is None or entry.name in contents:
                    raise refuse(f"{entry.name!r} is not in its manifest, or comes twice")
                if entry.size != expected.size:
                    raise refuse(f"{entry.name!r} has {entry.size} bytes instead of {expected.size}")
                content = entry.stream.read()
                if hashlib.sha256(content).hexdigest() != expected.sha256:
                    raise refuse(f"{entry.name!r} has another content than its manifest says")
                contents[entry.name] = content
    except FileNotFoundError as error:
        raise PackageError(f"there is no package {path}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "(document)"
        raise refuse(f"{MANIFEST_NAME}: {field}: {first['msg']}") from error
    except DamagedArchiveError as error:
        raise refuse(str(error)) from error
    if manifest is None:
        raise refuse("it is empty")
    missing = sorted(manifest.files.keys() - contents.keys())
    if missing:
        raise refuse(f"it lacks {', '.join(missing)}")
    return manifest, contents

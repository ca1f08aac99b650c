"""Writes and reads package archives: byte for byte reproducible, and never trusted when read."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from edgedeploy.base.files import replacing
from edgedeploy.base.tarballs import DamagedArchiveError, opened_archive, write_archive
from edgedeploy.errors import PackageError
from edgedeploy.package.manifest import MANIFEST_NAME, Manifest, Member, check_size, parse_manifest

Contents = Mapping[str, bytes]

# The suffix of packages.
SUFFIX = ".tar.gz"


def describe(contents: Contents) -> dict[str, Member]:
    """The manifest's entries for files held in memory."""
    return {
        name: Member(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in sorted(contents.items())
    }


def write_package(path: Path, manifest: Manifest, contents: Contents) -> None:
    """Write a package; equal manifest and contents give equal bytes."""
    with replacing(path) as temporary:
        # The manifest comes first: readers check the other members against it.
        write_archive(temporary, {MANIFEST_NAME: manifest_bytes(manifest), **dict(sorted(contents.items()))})


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest's file: sorted JSON."""
    return (json.dumps(manifest.written(), indent=1, sort_keys=True) + "\n").encode()


def read_manifest(path: Path) -> Manifest:
    """Read only a package's manifest."""
    return _read(path, only_manifest=True)[0]


def read_package(path: Path, keep: Collection[str] | None = None) -> tuple[Manifest, dict[str, bytes]]:
    """Read a package, checking every member against the manifest.

    Returns:
        The manifest, and by name the content of the members in `keep`; of all of them if None.
    """
    return _read(path, keep)


def _read(
    path: Path, keep: Collection[str] | None = None, *, only_manifest: bool = False
) -> tuple[Manifest, dict[str, bytes]]:
    contents: dict[str, bytes] = {}
    try:
        with opened_archive(path) as entries:
            first = next(entries, None)
            if first is None or first.name != MANIFEST_NAME:
                raise DamagedArchiveError(f"it does not begin with {MANIFEST_NAME}")
            try:
                check_size(first.size)
                manifest = parse_manifest(first.content())
            except ValueError as error:
                raise DamagedArchiveError(f"{MANIFEST_NAME}: {error}") from error
            if only_manifest:
                return manifest, {}
            missing = dict(manifest.files)
            for entry in entries:
                expected = missing.pop(entry.name, None)
                if expected is None:
                    raise DamagedArchiveError(f"{entry.name!r} is not in its manifest, or comes twice")
                if entry.size != expected.size:
                    raise DamagedArchiveError(f"{entry.name!r} has {entry.size} bytes instead of {expected.size}")
                digest, kept = hashlib.sha256(), io.BytesIO()
                for piece in entry.pieces():
                    digest.update(piece)
                    if keep is None or entry.name in keep:
                        kept.write(piece)
                if digest.hexdigest() != expected.sha256:
                    raise DamagedArchiveError(f"{entry.name!r} has another content than its manifest says")
                if keep is None or entry.name in keep:
                    contents[entry.name] = kept.getvalue()
            if missing:
                raise DamagedArchiveError(f"it lacks {', '.join(sorted(missing))}")
    except FileNotFoundError as error:
        hints = ["build one with `edgedeploy build`, which prints its path"]
        raise PackageError(f"there is no package {path}", hints=hints) from error
    except IsADirectoryError as error:
        raise PackageError(f"{path} is a folder, not a package", hints=["name the archive, a .tar.gz file"]) from error
    except DamagedArchiveError as error:
        raise unsound(path, str(error)) from error
    return manifest, contents


def unsound(package: str | Path, why: str) -> PackageError:
    """The error for a package that is not what the build wrote."""
    return PackageError(f"{package} is not a sound package", why=why, hints=["build it again with `edgedeploy build`"])

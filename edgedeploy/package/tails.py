"""Tails of packages: checked when they are read, as the manifest is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgedeploy.errors import PackageError
from edgedeploy.package.archive import read_manifest, read_package
from edgedeploy.package.manifest import Manifest
from edgedeploy.tail.evaluation import Tail
from edgedeploy.tail.program import parse_block


def tail_of(manifest: Manifest, contents: Mapping[str, bytes], name: str | Path) -> Tail | None:
    """A package's tail, ready to run; None if it has none.

    Args:
        manifest: the package's.
        contents: its members, the tail's among them.
        name: what the package is called in messages.

    Raises:
        PackageError: the tail is not sound.
    """
    if manifest.tail is None:
        return None
    known = [spec.name for spec in (*manifest.inputs, *manifest.outputs)]
    try:
        block = parse_block(contents[manifest.tail.file], known)
        if len(block.outputs) != len(manifest.tail.outputs):
            raise ValueError(f"it gives {len(block.outputs)} outputs, the manifest names {len(manifest.tail.outputs)}")
    except ValueError as error:
        hints = ["build it again with `edgedeploy build`"]
        raise PackageError(
            f"{name} is not a sound package", why=f"{manifest.tail.file}: {error}", hints=hints
        ) from error
    return Tail(block, manifest.tail.outputs)


def read_tail(package: Path) -> Tail | None:
    """The tail of a package's archive.

    Raises:
        PackageError: the package is damaged, or its tail is not sound.
    """
    manifest = read_manifest(package)
    if manifest.tail is None:
        return None
    manifest, contents = read_package(package, keep=[manifest.tail.file])
    return tail_of(manifest, contents, package)

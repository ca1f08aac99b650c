"""Tails of packages: checked when they are read, as the manifest is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgedeploy.errors import PackageError
from edgedeploy.package.archive import read_manifest, read_package
from edgedeploy.package.entry import Entry
from edgedeploy.package.manifest import Manifest
from edgedeploy.tail.evaluation import Tail
from edgedeploy.tail.program import parse_block


def tails_of(manifest: Manifest, contents: Mapping[str, bytes], name: str | Path) -> list[Tail | None]:
    """The tail of each entry of a package, ready to run; None for those that have none.

    Args:
        manifest: the package's.
        contents: its members, those of tails among them.
        name: what the package is called in messages.
    """
    return [_tail_of(entry, contents, name) for entry in manifest.entries]


def read_tails(package: Path) -> list[Tail | None]:
    """The tails of a package's archive."""
    manifest = read_manifest(package)
    files = [entry.tail.file for entry in manifest.entries if entry.tail]
    contents = read_package(package, keep=files)[1] if files else {}
    return tails_of(manifest, contents, package)


def _tail_of(entry: Entry, contents: Mapping[str, bytes], name: str | Path) -> Tail | None:
    if entry.tail is None:
        return None
    known = [spec.name for spec in (*entry.inputs, *entry.outputs)]
    try:
        block = parse_block(contents[entry.tail.file], known)
        if len(block.outputs) != len(entry.tail.outputs):
            raise ValueError(f"it gives {len(block.outputs)} outputs, the manifest names {len(entry.tail.outputs)}")
    except ValueError as error:
        hints = ["build it again with `edgedeploy build`"]
        why = f"{entry.tail.file}: {error}"
        raise PackageError(f"{name} is not a sound package", why=why, hints=hints) from error
    return Tail(block, entry.tail.outputs)

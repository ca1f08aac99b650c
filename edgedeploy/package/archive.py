"""Writes and reads package archives: byte for byte reproducible, and never trusted when read.

Members besides the library are tails, weights transformed at load, and the work of functions.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter

from edgedeploy.base.documents import Record, parse_json
from edgedeploy.base.files import replacing
from edgedeploy.base.tarballs import DamagedArchiveError, opened_archive, write_archive
from edgedeploy.errors import PackageError
from edgedeploy.model.tail.program import Tail, parse_block
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.entry import Entry
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


def write_members(folder: Path, manifest: Manifest, contents: Contents) -> None:
    """Write the members of a package into a folder, as the agent reads it."""
    for name, content in {**contents, MANIFEST_NAME: manifest_bytes(manifest)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


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


def tails_of(manifest: Manifest, contents: Mapping[str, bytes], name: str | Path) -> list[Tail | None]:
    """The tail of each entry of a package, ready to run; None without a tail. `name` is for messages."""
    return [_tail_of(entry, contents, name) for entry in manifest.entries]


def read_tails(package: Path) -> list[Tail | None]:
    """The tails of a package."""
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
        raise unsound(name, f"{entry.tail.file}: {error}") from error
    return Tail(block, entry.tail.outputs)


def weight_members(weights: Sequence[np.ndarray], contents: MutableMapping[str, bytes]) -> list[TensorSpec]:
    """Add weights as members to `contents`, and return their specs for the manifest."""
    specs = []
    for place, array in enumerate(weights):
        spec = TensorSpec(name=f"weights/{place}.bin", shape=list(array.shape), dtype=str(array.dtype))
        contents[spec.name] = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        specs.append(spec)
    return specs


def weights_of(manifest: Manifest, contents: Mapping[str, bytes]) -> list[np.ndarray]:
    """The arrays that a package's library transforms, in order."""
    return [
        np.frombuffer(contents[spec.name], np.dtype(spec.dtype).newbyteorder("<")).reshape(spec.shape)
        for spec in manifest.transformed
    ]


WORK_NAME = "functions.json"

Count = Annotated[int, Field(ge=0)]


class FunctionWork(Record):
    """One function of a network, with all its calls in an inference."""

    function: str
    calls: Count
    template: str | None
    type: str  # of its first input
    operations: Count  # arithmetic operations (a multiply-add is two) of layers that are computed directly
    bytes: Count  # of its inputs, including weights, and outputs


_LIST = TypeAdapter(list[FunctionWork])


def written_work(functions: Iterable[FunctionWork]) -> bytes:
    """The member about the functions."""
    return _LIST.dump_json(list(functions), indent=1)


def read_work(package: Path) -> list[FunctionWork]:
    """The functions of a package; empty if an earlier version of edgedeploy wrote it."""
    if WORK_NAME not in read_manifest(package).files:
        return []
    content = read_package(package, keep=[WORK_NAME])[1][WORK_NAME]
    try:
        return parse_json(content, _LIST)
    except ValueError as error:
        raise unsound(package, f"{WORK_NAME}: {error}") from error

"""Members of packages besides the library: tails, weights transformed at load, and the work of functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, TypeAdapter

from edgedeploy.base.documents import Record, parse_json
from edgedeploy.model.tail.program import Tail, parse_block
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.package.archive import read_manifest, read_package, unsound
from edgedeploy.package.entry import Entry
from edgedeploy.package.manifest import Manifest


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

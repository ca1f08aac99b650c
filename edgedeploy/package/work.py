"""What each function of a package does in an inference, so that measured times can be held against it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from edgedeploy.documents import Record, parse_json
from edgedeploy.errors import PackageError
from edgedeploy.package.archive import read_manifest, read_package

WORK_NAME = "functions.json"

Count = Annotated[int, Field(ge=0)]


class FunctionWork(Record):
    """One function of a network, all its calls in an inference together.

    Attributes:
        function: its name in the package's library.
        calls: how often an inference calls it.
        template: what scheduled it; None for those that were left as they are.
        type: of the tensor that it reads first.
        operations: arithmetic operations, a multiply-add being two, of layers that are computed directly.
        bytes: of the tensors that it reads, weights among them, and writes.
    """

    function: str
    calls: Count
    template: str | None
    type: str
    operations: Count
    bytes: Count


_LIST = TypeAdapter(list[FunctionWork])


def written_work(functions: Iterable[FunctionWork]) -> bytes:
    """What stands in a package of its functions."""
    return _LIST.dump_json(list(functions), indent=1)


def read_work(package: Path) -> list[FunctionWork]:
    """What a package says of its functions; nothing where an earlier version of edgedeploy wrote it."""
    if WORK_NAME not in read_manifest(package).files:
        return []
    content = read_package(package, keep=[WORK_NAME])[1][WORK_NAME]
    try:
        return parse_json(content, _LIST)
    except ValueError as error:
        why = f"{WORK_NAME}: {error}"
        hints = ["build it again with `edgedeploy build`"]
        raise PackageError(f"{package} is not a sound package", why=why, hints=hints) from error

"""The header of records, and the folders of records."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from edgedeploy.base.catalog import MOST_LISTED
from edgedeploy.base.documents import Record
from edgedeploy.base.files import is_file, is_folder
from edgedeploy.base.settings import user_folder
from edgedeploy.errors import UnknownNameError
from edgedeploy.version import __version__

DATABASE = "records.sqlite"


class Header(Record):
    """Which board profile and which of TVM's targets records are of; which versions began them, and when, in UTC."""

    format: Literal[1] = 1
    board: Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*$", max_length=200)]
    target: dict[str, Any]
    tvm: str
    edgedeploy: str = __version__
    created: datetime

    @staticmethod
    def of(board: str, target: dict[str, Any]) -> Header:
        """A new header for a board profile, by name, and TVM's target, as `Board.target` gives it."""
        from importlib.metadata import version

        now = datetime.now(timezone.utc).replace(microsecond=0)
        return Header(board=board, target=target, tvm=version("apache-tvm"), created=now)

    def difference(self, other: Header) -> str | None:
        """Why records of `other` do not belong to these, or None if they do."""
        for name in ("board", "target", "tvm"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return f"its {name} is {json.dumps(there)} and not {json.dumps(here)}"
        return None


def default_folder(board: str) -> Path:
    """The folder of a board's records, by its name, unless the user chooses another one."""
    return user_folder("data") / "records" / board


def holds_records(folder: Path) -> bool:
    """Whether a folder has a file of records."""
    return is_file(folder / DATABASE)


def folders() -> list[Path]:
    """The default folders that hold records, sorted by name."""
    return sorted(filter(holds_records, user_folder("data").glob("records/*")))


def find_folder(name: str) -> Path:
    """The folder of records that `name` means: a path, or a board's name."""
    known = default_folder(name) if "/" not in name else Path(name)
    if is_folder(known):
        return known
    if is_folder(Path(name)):
        return Path(name)
    names = [folder.name for folder in folders()]
    raise UnknownNameError(
        f"no tuning records for {name!r}",
        why=f"records exist for {', '.join(names[:MOST_LISTED])}" if names else "no records exist yet",
        hints=["list them with `edgedeploy records list`", "create some with `edgedeploy tune`"],
    )

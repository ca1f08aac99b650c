"""Whose records a folder holds: its header, and where folders lie."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from edgedeploy import __version__
from edgedeploy.catalog import MOST_LISTED
from edgedeploy.documents import Record
from edgedeploy.errors import RecordsError, UnknownNameError
from edgedeploy.files import is_folder, replacing
from edgedeploy.tune.content import TRIALS, first_fault
from edgedeploy.tune.database import RECORDS, WORKLOADS
from edgedeploy.tune.journal import open_plain

HEADER = "header.json"

_LARGEST_HEADER = 1 << 16


class Header(Record):
    """Whose records a folder holds.

    Attributes:
        format: version of the folder's structure.
        board: name of the board profile.
        target: TVM's target.
        tvm: its version.
        edgedeploy: the version that made the folder.
        created: when it did, in UTC.
    """

    format: Literal[1] = 1
    board: Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f.][^/\x00-\x1f\x7f]*$", max_length=200)]
    target: dict[str, Any]
    tvm: str
    edgedeploy: str = __version__
    created: datetime

    @staticmethod
    def of(board: str, target: dict[str, Any]) -> Header:
        """The header of records that are begun now.

        Args:
            board: name of the board profile.
            target: TVM's target, as `Board.target` gives it.
        """
        from importlib.metadata import version

        now = datetime.now(timezone.utc).replace(microsecond=0)
        return Header(board=board, target=target, tvm=version("apache-tvm"), created=now)

    def file_content(self) -> bytes:
        """The header's file."""
        return (self.model_dump_json(indent=1) + "\n").encode()

    def difference(self, other: Header) -> str | None:
        """Why records of `other` are none of these, or None if they are."""
        for name in ("board", "target", "tvm"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return f"its {name} is {json.dumps(there)} and not {json.dumps(here)}"
        return None


def cpu_of(target: dict[str, Any]) -> dict[str, Any]:
    """What one of TVM's targets says of the CPU: of the one beside the device, if it is for a device."""
    host = target.get("host")
    return host if isinstance(host, dict) else target


def default_folder(board: str) -> Path:
    """Where the records of a board, by its name, lie unless the user says otherwise."""
    return records_root() / board


def records_root() -> Path:
    """The folder of all boards' records."""
    import platformdirs

    return Path(platformdirs.user_data_dir("edgedeploy")) / "records"


def folders() -> list[Path]:
    """The default folders that hold records, sorted by name."""
    return sorted(path.parent for path in records_root().glob(f"*/{HEADER}"))


def find_folder(name: str) -> Path:
    """The folder of records that `name` means: a path, or a board's name.

    Raises:
        UnknownNameError: there is none.
    """
    known = default_folder(name) if "/" not in name else Path(name)
    if is_folder(known):
        return known
    if is_folder(Path(name)):
        return Path(name)
    names = [folder.name for folder in folders()]
    raise UnknownNameError(
        f"there are no tuning records of {name!r}",
        why=f"there are some of {', '.join(names[:MOST_LISTED])}" if names else "there are none at all",
        hints=["list them with `edgedeploy records list`", "make some with `edgedeploy tune`"],
    )


def read_header(folder: Path) -> Header:
    """What a folder of records says of itself.

    Raises:
        RecordsError: it holds none, or its header is damaged or of a later version.
    """
    path = folder / HEADER
    try:
        with open_plain(path) as stream:
            content = stream.read(_LARGEST_HEADER + 1)
    except FileNotFoundError as error:
        raise RecordsError(
            f"{folder} holds no tuning records",
            why=f"it has no {HEADER}" if is_folder(folder) else "there is no such folder",
            hints=["list those there are with `edgedeploy records list`", "make some with `edgedeploy tune`"],
        ) from error
    return parse_header(content, str(path))


def parse_header(content: bytes, path: str) -> Header:
    """The header in a file's content; `path` names it in messages.

    Raises:
        RecordsError: it is damaged or of a later version.
    """
    hints = ["keep it with `edgedeploy records` of the version that made it, or tune into another folder"]
    if len(content) > _LARGEST_HEADER:
        raise RecordsError(f"{path} is damaged", why="it is too large")
    try:
        return Header.model_validate_json(content)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["loc"] == ("format",):
            raise RecordsError(f"{path} is of another version of edgedeploy", why=fault["msg"], hints=hints) from error
        raise RecordsError(f"{path} is damaged", why=first_fault(error)) from error


def agree_on_header(folder: Path, header: Header) -> Header:
    """The header of a folder to which trials of `header` are to be added; written if the folder is new.

    Raises:
        RecordsError: the folder holds records of something else.
        OutputError: it cannot be written.
    """
    if (folder / HEADER).exists():
        present = read_header(folder)
        if difference := header.difference(present):
            raise RecordsError(
                f"the records in {folder} are of something else",
                why=difference,
                hints=["tune into another folder with -o", "take them as a start with --tuning-records"],
            )
        return present
    for name in (WORKLOADS, RECORDS, TRIALS):
        if (folder / name).exists():
            raise RecordsError(
                f"{folder} holds records of an unknown board",
                why=f"it has a {name} and no {HEADER}",
                hints=["`edgedeploy records import` takes databases of MetaSchedule"],
            )
    with replacing(folder / HEADER) as temporary:
        temporary.write_bytes(header.file_content())
    return header

"""Records as lines of JSON, as `records export` writes them.

The first line is the header, and each of the others a trial, or an event, which has the field `event`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError
from pydantic_core import from_json

from edgedeploy.base.documents import first_fault
from edgedeploy.errors import RecordsError
from edgedeploy.records.schema import EVENT, Event, Header, Trial

# Bytes. A trial takes less than 1 kB, the event of a run some 200 for each task; JSON takes up to twenty times the
# memory of its text.
LONGEST_LINE = 1 << 20
LARGEST_FILE = 1 << 30


@dataclass(frozen=True)
class Content:
    """The content of records: trials as they were measured, and how runs and their tasks began and ended."""

    header: Header
    trials: list[Trial] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def lines(self) -> Iterator[bytes]:
        """The lines of a file, each with its newline; the same for equal records."""
        for record in (self.header, *self.trials, *self.events):
            yield record.model_dump_json().encode() + b"\n"


def read_lines(path: Path) -> Content:
    """The records in a file of `Content.lines`."""
    with _opened(path) as stream:
        content = Content(parse_header(stream.readline(LONGEST_LINE + 1), f"{path}:1"))
        for item in _parsed(stream, path):
            (content.trials if isinstance(item, Trial) else content.events).append(item)  # type: ignore[arg-type]
    return content


def parse_header(text: bytes | str, path: str) -> Header:
    """The header in a line; `path` names it in messages."""
    try:
        if len(text) > LONGEST_LINE:
            raise ValueError("it is too long")
        return Header.model_validate(_fields(text))
    except ValueError as error:
        if isinstance(error, ValidationError) and error.errors(include_url=False)[0]["loc"] == ("format",):
            raise of_another_version(path) from error
        raise damaged(path, error) from error


def of_another_version(path: str) -> RecordsError:
    """The error for records of another version of edgedeploy."""
    hints = ["keep it with `edgedeploy records` of the version that wrote it, or tune into another folder"]
    return RecordsError(f"{path} is of another version of edgedeploy", hints=hints)


def damaged(path: str, error: Exception) -> RecordsError:
    """The error for a file, or a line of one, that is not a valid record."""
    why = first_fault(error) if isinstance(error, ValidationError) else str(error)
    return RecordsError(f"{path} is damaged", why=why, hints=["take it from a copy"])


def require_plain(path: Path) -> None:
    """Refuse anything but a plain file that is not larger than records are; a missing file is FileNotFoundError."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise RecordsError(f"cannot read {path}", why=error.strerror) from error
    plain = stat.S_ISREG(status.st_mode)
    if not plain or status.st_size > LARGEST_FILE:
        raise RecordsError(f"cannot read {path}", why="it is too large" if plain else "it is not a plain file")


def _opened(path: Path) -> BinaryIO:
    try:
        require_plain(path)
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise RecordsError(f"cannot read {path}", why=error.strerror) from error


def _parsed(stream: BinaryIO, path: Path) -> Iterator[Trial | Event]:
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), 2):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("it is too long" if len(line) > LONGEST_LINE else "it has no end")
            fields = _fields(line)
            yield EVENT.validate_python(fields) if "event" in fields else Trial.model_validate(fields)
        except ValueError as error:
            raise damaged(f"{path}:{number}", error) from error


def _fields(text: bytes | str) -> dict[str, object]:
    fields = from_json(text, allow_inf_nan=False)
    if not isinstance(fields, dict):
        raise ValueError("it is not a JSON object")
    return fields

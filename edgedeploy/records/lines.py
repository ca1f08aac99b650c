"""Records as lines of JSON: what `records export` writes, and the files in which earlier versions kept records.

In an exported file the first line is the header, and each of the others a trial, or an event, which has the field
`event`. Earlier versions kept header, trials and events in three files of one folder.
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

from edgedeploy.errors import RecordsError
from edgedeploy.records.events import EVENT, Event
from edgedeploy.records.header import OLD_HEADER, Header
from edgedeploy.records.trial import Trial

# Bytes. A trial takes less than 1 kB, the event of a run some 200 for each task; JSON takes up to twenty times the
# memory of its text.
LONGEST_LINE = 1 << 20
LARGEST_FILE = 1 << 30

_OLD_FILES = ("trials.jsonl", "runs.jsonl")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Content:
    """What records say.

    Attributes:
        header: whose they are.
        trials: in the order in which they were measured.
        events: how runs and their tasks began and ended.
        left_out: how many trials of earlier versions were of schedules by TVM's MetaSchedule, which are not read.
    """

    header: Header
    trials: list[Trial] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    left_out: int = 0

    def lines(self) -> Iterator[bytes]:
        """The lines of a file, each with its newline; the same for equal records."""
        for record in (self.header, *self.trials, *self.events):
            yield record.model_dump_json().encode() + b"\n"


def read_lines(path: Path) -> Content:
    """The records in a file that `Content.lines` gave.

    Raises:
        RecordsError: a line is no such record or too long, or the file cannot be read.
    """
    with _opened(path) as stream:
        first = stream.readline(LONGEST_LINE + 1)
        if first.startswith(_GZIP):
            raise RecordsError(
                f"{path} is no file of tuning records",
                why="it is a packed archive, as earlier versions exported them",
                hints=["unpack it into a folder, and import that"],
            )
        header = parse_header(first, f"{path}:1")
        return _content(header, list(_parsed(stream, path, first=2)))


def read_old_files(folder: Path) -> Content | None:
    """The records in the files of earlier versions, or None if there are none. What was torn at an end is left out.

    Raises:
        RecordsError: a line is no such record or too long, or a file cannot be read.
    """
    if not (folder / OLD_HEADER).exists():
        return None
    with _opened(folder / OLD_HEADER) as stream:
        header = parse_header(stream.read(LONGEST_LINE + 1), str(folder / OLD_HEADER))
    items: list[Trial | Event | None] = []
    for name in _OLD_FILES:
        if (folder / name).exists():
            with _opened(folder / name) as stream:
                items += _parsed(stream, folder / name, torn=True)
    return _content(header, items)


def parse_header(text: bytes | str, path: str) -> Header:
    """The header in a line; `path` names it in messages.

    Raises:
        RecordsError: it is damaged or of a later version.
    """
    try:
        if len(text) > LONGEST_LINE:
            raise ValueError("it is too long")
        fields = _fields(text)
        if fields.get("format") == 1:  # whose files are read by this module too
            fields["format"] = 2
        return Header.model_validate(fields)
    except ValueError as error:
        if isinstance(error, ValidationError) and error.errors(include_url=False)[0]["loc"] == ("format",):
            hints = ["keep it with `edgedeploy records` of the version that made it, or tune into another folder"]
            raise RecordsError(f"{path} is of another version of edgedeploy", hints=hints) from error
        raise damaged(path, error) from error


def damaged(path: str, error: Exception) -> RecordsError:
    """The error for a file, or a line of one, that is no sound record."""
    why = str(error)
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, fault['loc'])) or 'document'}: {fault['msg']}"
    return RecordsError(f"{path} is damaged", why=why, hints=["take it from a copy"])


def require_plain(path: Path) -> None:
    """Refuse what is no plain file, or larger than records are.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        RecordsError: it is refused, or cannot be looked at.
    """
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise RecordsError(f"cannot read {path}", why=error.strerror) from error
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
        why = "it is too large" if stat.S_ISREG(status.st_mode) else "it is not a plain file"
        raise RecordsError(f"cannot read {path}", why=why)


def _opened(path: Path) -> BinaryIO:
    try:
        require_plain(path)
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except OSError as error:
        raise RecordsError(f"cannot read {path}", why=error.strerror) from error


def _parsed(stream: BinaryIO, path: Path, *, first: int = 1, torn: bool = False) -> Iterator[Trial | Event | None]:
    """What each line says, `first` being the number of the next; with `torn`, a damaged last line is left out."""
    fault = None
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE + 1), b""), first):
        if fault:
            break
        try:
            if not line.endswith(b"\n"):
                raise ValueError("it is too long" if len(line) > LONGEST_LINE else "it has no end")
            yield _item(line)
        except ValueError as error:
            fault = damaged(f"{path}:{number}", error)
    else:
        if torn:
            return
    if fault:
        raise fault


def _item(line: bytes) -> Trial | Event | None:
    """The trial or event in a line; None for a trial of what MetaSchedule scheduled.

    Raises:
        ValueError: it is neither.
    """
    fields = _fields(line)
    space = fields.pop("space", None)  # this and the two below are fields of earlier versions
    if "event" in fields:
        return EVENT.validate_python(fields)
    for name in ("scheduled", "record"):
        fields.pop(name, None)
    if space == "metaschedule" and fields.get("configuration") is None:
        return None
    return Trial.model_validate(fields)


def _fields(text: bytes | str) -> dict[str, object]:
    fields = from_json(text, allow_inf_nan=False)
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    return fields


def _content(header: Header, items: list[Trial | Event | None]) -> Content:
    trials = [item for item in items if isinstance(item, Trial)]
    events = [item for item in items if item is not None and not isinstance(item, Trial)]
    return Content(header, trials, events, sum(item is None for item in items))

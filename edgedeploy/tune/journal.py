"""Files of lines that only grow: what a killed run leaves behind is all but its last line.

Each line is one JSON value and ends with a newline; what comes after the last newline was torn.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from edgedeploy.closing import Closing
from edgedeploy.errors import RecordsError
from edgedeploy.files import cannot_write

Value = TypeVar("Value")

LONGEST_LINE = 64 << 20
LARGEST_FILE = 1 << 30


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading; never waits, as a pipe would let us.

    Raises:
        FileNotFoundError: there is none.
        RecordsError: it is something else, is too large, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RecordsError(f"cannot read {path}", why=error.strerror) from error
    stream = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
        stream.close()
        why = "it is too large" if stat.S_ISREG(status.st_mode) else "it is not a plain file"
        raise RecordsError(f"cannot read {path}", why=why)
    return stream


def lines(path: Path, *, longest: int = LONGEST_LINE, strict: bool = False) -> Iterator[bytes]:
    """The whole lines of a file, without their newlines; none if there is no file.

    Args:
        path: the file.
        longest: bytes of a line, with its newline.
        strict: whether a torn last line is an error; otherwise it is left out.

    Raises:
        RecordsError: a line is too long, or the file cannot be read.
    """
    try:
        stream = open_plain(path)
    except FileNotFoundError:
        return
    with stream:
        for number in range(1, LARGEST_FILE):
            try:
                line = stream.readline(longest)
            except OSError as error:
                raise RecordsError(f"cannot read {path}", why=error.strerror) from error
            if not line.endswith(b"\n"):
                if len(line) == longest:
                    raise damaged(path, number, "it is too long")
                if line and strict:
                    raise damaged(path, number, "it has no end")
                return
            yield line[:-1]


def parsed(
    path: Path, parse: Callable[[bytes], Value], *, longest: int = LONGEST_LINE, strict: bool = False
) -> Iterator[Value]:
    """What each line of a file says. A last line that says nothing counts as torn.

    Args:
        path: the file.
        parse: reads a line; raises ValueError if it cannot.
        longest: bytes of a line, with its newline.
        strict: whether a torn last line is an error; otherwise it is left out.

    Raises:
        RecordsError: a line that is not the last one is damaged, or the file cannot be read.
    """
    unread = None
    for number, line in enumerate(lines(path, longest=longest, strict=strict), 1):
        if unread:
            raise damaged(path, *unread)
        try:
            value = parse(line)
        except ValueError as error:
            unread = (number, str(error))
        else:
            yield value
    if unread and strict:
        raise damaged(path, *unread)


def damaged(path: Path, number: int, why: str) -> RecordsError:
    """The error for line `number` of a file, counted from 1."""
    return RecordsError(
        f"{path}:{number} is damaged",
        why=why,
        hints=["take the folder from a copy, or remove that line if it is the only one"],
    )


def keep_lines(path: Path, count: int) -> bool:
    """Cut off what comes after the first `count` lines of a file; says whether there was anything.

    Raises:
        OutputError: the file cannot be changed.
    """
    size = sum(len(line) + 1 for _, line in zip(range(count), lines(path), strict=False))
    try:
        if not path.exists() or path.stat().st_size == size:
            return False
        os.truncate(path, size)
    except OSError as error:
        raise cannot_write(path, error) from error
    return True


class Appender(Closing):
    """Adds lines to files of one folder, to all that are named or to none. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptors: dict[str, int] = {}

    def close(self) -> None:
        """Let go of the files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def append(self, additions: Mapping[str, Sequence[bytes]]) -> None:
        """Add lines, given without newlines, to files by name, in the order of the mapping.

        Raises:
            OutputError: a file cannot be written, as on a full disk; all files are as they were before.
        """
        sizes: dict[str, int] = {}
        path = self._folder
        try:
            for name, added in additions.items():
                path = self._folder / name
                descriptor = self._open(name)
                sizes[name] = os.fstat(descriptor).st_size
                content = memoryview(b"".join(line + b"\n" for line in added))
                while content:
                    content = content[os.write(descriptor, content) :]
        except BaseException as error:  # Ctrl-C too
            for name, size in sizes.items():
                with suppress(OSError):
                    os.ftruncate(self._descriptors[name], size)
            if isinstance(error, OSError):
                raise cannot_write(path, error) from error
            raise

    def _open(self, name: str) -> int:
        if name not in self._descriptors:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptors[name] = os.open(self._folder / name, flags, 0o644)
        return self._descriptors[name]

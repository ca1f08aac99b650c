"""Standard output and standard error of the command line, whose failures become edgedeploy's errors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edgedeploy.errors import OutputError, ReaderGoneError


def open_standard_streams() -> None:
    """Open standard streams that the caller closed, and turn failures into edgedeploy's errors.

    The next file to be opened would get a closed descriptor, and printed text. Standard output is opened such that
    writing fails, as it would have.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets the lowest free descriptor: this one. Child processes inherit it, or their files would get it.
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
            os.set_inheritable(descriptor, True)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = _text(io.BufferedWriter(_Results(1, "wb", closefd=False)), sys.stdout)
    sys.stderr = _text(io.BufferedWriter(_Messages(2, "wb", closefd=False)), sys.stderr, always=True)


@contextmanager
def without_messages() -> Iterator[None]:
    """Within the block, discard what libraries print to standard error."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def give_up_output() -> None:
    """Discard standard output: flushing its buffers would fail again at the end of the process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


class _Results(io.FileIO):
    """Standard output, whose failures are edgedeploy's errors."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGoneError("the reader of standard output went away") from error
        except OSError as error:
            raise OutputError("cannot write standard output", why=error.strerror) from error


class _Messages(io.FileIO):
    """Standard error, which accepts everything: an unreadable message must not make the command fail."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def _text(stream: io.BufferedWriter, like: Any, *, always: bool = False) -> io.TextIOWrapper:
    """A text stream with the settings of the one before it, if any; line-buffered on terminals, or `always`."""
    encoding, errors, at_once = (
        (like.encoding, like.errors, like.line_buffering or like.write_through)
        if like
        else ("utf-8", "backslashreplace", False)
    )
    if encoding.lower().replace("-", "") != "utf8":  # as in the locale C: other characters are written as escapes
        errors = "backslashreplace"
    return io.TextIOWrapper(stream, encoding, errors, line_buffering=always or at_once)

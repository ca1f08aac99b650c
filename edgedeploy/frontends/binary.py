"""Reading of untrusted binary files: every step is checked against what is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgedeploy.errors import ModelError


def read_bytes(path: Path) -> bytes:
    """A file's content."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {path}", why=error.strerror or str(error)) from error


class Cursor:
    """A place in a file's content, which moves on with each reading.

    Args:
        path: the file, for messages.
        content: what is in it.
        position: where to begin, in bytes.
    """

    def __init__(self, path: Path, content: bytes, position: int = 0) -> None:
        self.path = path
        self.position = position
        self._content = content

    @property
    def left(self) -> int:
        """How many bytes there are from here on."""
        return len(self._content) - self.position

    def array(self, dtype: str | np.dtype, count: int, what: str) -> np.ndarray:
        """The next `count` values, of a dtype of numpy with its byte order; a view of the content."""
        kind = np.dtype(dtype)
        if count < 0 or self.position < 0 or count * kind.itemsize > self.left:
            needed = f"{what} needs {count * kind.itemsize:,} bytes at {self.position:,}"
            raise ModelError(
                f"{self.path} is not complete",
                why=f"{needed}, and {max(self.left, 0):,} are left",
                hints=["check the file's size and checksum; it may be truncated, or belong to another network"],
            )
        values = np.frombuffer(self._content, kind, count, self.position)
        self.position += count * kind.itemsize
        return values

    def integer(self, dtype: str, what: str) -> int:
        """The next value, an integer; errors are those of `array`."""
        return int(self.array(dtype, 1, what)[0])

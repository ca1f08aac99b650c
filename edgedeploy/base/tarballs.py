"""Archives, `.tar.gz`: written byte for byte reproducibly, and never trusted when read.

The reader is our own, and strict: it takes plain files under short names, as `write_archive`, GNU tar and BSD tar write
them. Python's `tarfile` processes extended headers and long names before anybody can check them.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

# Weights hardly compress: more effort takes five times as long for a tenth of the size.
COMPRESSION = 3

# A header is one block, with fields of fixed places: "ustar Interchange Format", IEEE Std 1003.1-2017, pax(1).
_BLOCK = 512
_NAME, _SIZE, _SUM, _TYPE = slice(0, 100), slice(124, 136), slice(148, 156), slice(156, 157)
_MAGIC, _PREFIX = slice(257, 265), slice(345, 500)
_MAGICS = (b"ustar\x0000", b"ustar  \x00")  # the standard's, GNU tar's
_PLAIN_FILE = (b"0", b"\0")
# The most padding after an archive's end: by default, programs write records of 20 blocks.
_MOST_FILLING = 1 << 20
# Content is unpacked in pieces of this size.
_PIECE = 1 << 18


class DamagedArchiveError(Exception):
    """A file is not an archive of plain files; the message says why."""


class Entry:
    """A plain file in an archive, `size` bytes long, whose content can be read once, before the next entry."""

    def __init__(self, name: str, size: int, stream: gzip.GzipFile) -> None:
        self.name, self.size = name, size
        self._left, self._stream = size, stream

    def pieces(self) -> Iterator[bytes]:
        """Its content, piece by piece."""
        while self._left:
            piece = _exactly(self._stream, min(self._left, _PIECE))
            self._left -= len(piece)
            yield piece

    def content(self) -> bytes:
        """Its content; memory grows with what is read, not with what the header claims."""
        buffer = io.BytesIO()
        for piece in self.pieces():
            buffer.write(piece)
        return buffer.getvalue()


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive; equal members in equal order give equal bytes. Names have at most 100 bytes."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=COMPRESSION) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))


@contextmanager
def opened_archive(path: Path) -> Iterator[Iterator[Entry]]:
    """Yield the files of an archive, one after another; reading may raise DamagedArchiveError.

    Everything except plain files is refused by its header. Nothing is stored, so that memory does not grow with the
    unpacked size. Content that the block does not read is skipped, which takes time: refuse files that are too large.
    """
    with ExitStack() as stack:
        with _reading():
            stream = stack.enter_context(gzip.GzipFile(path))
        yield _entries(stream)


def _entries(stream: gzip.GzipFile) -> Iterator[Entry]:
    while any(header := _exactly(stream, _BLOCK)):
        entry = _entry(header, stream)
        yield entry
        for _ in entry.pieces():  # what was not read of it
            pass
        _exactly(stream, -entry.size % _BLOCK)
    filling = _at_most(stream, _MOST_FILLING + 1)
    if len(filling) < _BLOCK or len(filling) > _MOST_FILLING or any(filling):
        raise DamagedArchiveError("it does not end after its last file")


def _entry(header: bytes, stream: gzip.GzipFile) -> Entry:
    """The entry of a header, whose content follows in the stream."""
    blank = header[: _SUM.start] + b" " * 8 + header[_SUM.stop :]
    if header[_MAGIC] not in _MAGICS or _number(header[_SUM]) != sum(blank):
        raise DamagedArchiveError("it has a damaged or unsupported header")
    try:
        name = header[_NAME].rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError as error:
        raise DamagedArchiveError(f"it has a file with the name {header[_NAME]!r}") from error
    if header[_TYPE] not in _PLAIN_FILE or name.endswith("/"):
        raise DamagedArchiveError(f"{name!r} is not a plain file")
    if any(header[_PREFIX]):
        raise DamagedArchiveError(f"the name of {name!r} is longer than 100 bytes")
    return Entry(name, _number(header[_SIZE]), stream)


def _number(field: bytes) -> int:
    """A number in octal digits, padded with spaces or zeros."""
    digits = field.rstrip(b"\0 ").lstrip(b" ")
    if not digits or digits.strip(b"01234567"):
        raise DamagedArchiveError("it has a header with an invalid number")
    return int(digits, 8)


def _exactly(stream: gzip.GzipFile, count: int) -> bytes:
    content = _at_most(stream, count)
    if len(content) < count:
        raise DamagedArchiveError("it ends too early")
    return content


def _at_most(stream: gzip.GzipFile, count: int) -> bytes:
    with _reading():
        return stream.read(count)


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, IsADirectoryError):
        raise
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DamagedArchiveError(why) from error

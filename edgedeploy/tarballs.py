"""Archives, `.tar.gz`: written byte for byte reproducible, and never trusted when read."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

# Weights hardly compress: more effort takes five times as long for a tenth of the size.
COMPRESSION = 3


class DamagedArchiveError(Exception):
    """A file is no archive of plain files; the message says why."""


class Entry(NamedTuple):
    """A file in an archive: its name and size as its header says, and its content, to be read before the next one."""

    name: str
    size: int
    stream: IO[bytes]


class _PlainEntry(tarfile.TarInfo):
    """A plain file. Whatever else an archive may hold is refused by its header, before its content is read.

    tarfile would read long names and extended headers, however large, into memory by itself.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _PlainEntry:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise DamagedArchiveError(f"{entry.name!r} is not a plain file")
        return entry


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive; equal members in equal order give equal bytes.

    Raises:
        OSError: the file cannot be written.
    """
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
    """The files in an archive, one after another. What the block reads of them may fail as this does.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedArchiveError: it is damaged, or holds something that is no plain file.
    """
    try:
        with tarfile.open(path, mode="r|gz", tarinfo=_PlainEntry) as archive:
            yield _entries(archive)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DamagedArchiveError(why) from error


def _entries(archive: tarfile.TarFile) -> Iterator[Entry]:
    for entry in archive:
        stream = archive.extractfile(entry)
        assert stream is not None
        yield Entry(entry.name, entry.size, stream)

"""Writing files so that readers see the old content, the new content, or none, but never a part."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.supervision import leaving
from edgedeploy.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds, and is removed otherwise, with new folders."""
    if is_folder(path):
        raise cannot_write(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    with writing(path), filling(path.parent), leaving(temporary):
        try:
            temporary.touch()
            yield temporary
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Create `folder` for a block that fills it; created folders that stay empty are removed."""
    created = [each for each in (folder, *folder.parents) if not is_folder(each)]
    try:
        with ExitStack() as left:
            for each in reversed(created):
                left.enter_context(leaving(each))
            folder.mkdir(parents=True, exist_ok=True)
            yield
    finally:
        with suppress(OSError):
            for each in created:  # which ends at the first that holds something
                each.rmdir()


@contextmanager
def folder_lock(folder: Path, progress: Progress = SILENT, *, wait: bool = True) -> Iterator[None]:
    """Lock `folder` against all other processes that use this function; create it if it is missing.

    The lock is on the folder itself, so that it leaves nothing behind and ends with the process. Without `wait`, a
    BlockingIOError if another process holds it.
    """
    while True:
        descriptor = _opened(folder)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not wait:
                    raise
                progress.note(f"waiting for another process that works in {folder}")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_same_folder(folder, descriptor):
                continue  # the previous holder of the lock removed the folder
            yield
            return
        finally:
            os.close(descriptor)


# How often a folder may have been moved away by the holder of its lock before it can be opened.
_MOST_TRIES = 100


def _opened(folder: Path) -> int:
    """A descriptor of a folder that may be moved away at any time; created if it is missing."""
    for _ in range(_MOST_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def exchange(first: Path, second: Path) -> None:
    """Atomically swap the names of two files or folders on one file system."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Linux's renameat2(2), which Python does not offer; relative paths are those of the working folder.
    if libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(second))


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def _is_same_folder(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def append_line(path: Path, line: str) -> None:
    """Append a line, on its own even if a full disk or a killed process cut off the one before."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 1))
            torn = stream.read(1) not in (b"", b"\n")
            stream.write(("\n" * torn + line + "\n").encode())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report what the system refuses within the block as `cannot_write` does."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> OutputError:
    """The error for a file that the system refuses to write."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "make room there, or choose another folder" if full else "choose another folder, or make this one writable"
    return OutputError(f"cannot write {path}", why=error.strerror or str(error), hints=[hint])


def is_file(path: Path) -> bool:
    """Whether a file exists; False for impossible or inaccessible paths."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def is_folder(path: Path) -> bool:
    """The same for a folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in lower-case hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def digest_of(paths: Iterable[Path], root: Path) -> str:
    """The SHA-256 of files' contents and names below `root`, in lower-case hexadecimal."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        total.update(f"{path.relative_to(root)} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()

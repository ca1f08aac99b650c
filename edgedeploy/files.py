"""Writing files so that a reader finds the old content, the new content, or none, but never a half."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from edgedeploy.errors import OutputError
from edgedeploy.progress import SILENT, Progress
from edgedeploy.supervision import leaving


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    Otherwise it vanishes, with the folders that were created for it.
    """
    if is_folder(path):
        raise cannot_write(path, IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)))
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        with filling(path.parent), leaving(temporary):
            try:
                temporary.touch()
                yield temporary
                temporary.replace(path)
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Create `folder` for a block that fills it, and remove what was created if the block leaves it empty."""
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

    The lock is on the folder itself, so that it leaves nothing behind and ends with the process.
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
                continue  # who held the lock before removed the folder
            yield
            return
        finally:
            os.close(descriptor)


# How often a folder may be gone, since who held its lock moved it, before it can be opened.
_MOST_TRIES = 100


def _opened(folder: Path) -> int:
    """A descriptor of a folder, which may be moved away at any time; created if it is missing."""
    for _ in range(_MOST_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            folder.mkdir(parents=True, exist_ok=True)
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)


def exchange(first: Path, second: Path) -> None:
    """Let two files or folders of one file system swap their names at once: no reader finds either of them missing."""
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


def cannot_write(path: Path, error: OSError) -> OutputError:
    """The error for a file that the system refuses to have written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "make room there, or choose another folder" if full else "choose another folder, or make this one writable"
    return OutputError(f"cannot write {path}", why=error.strerror or str(error), hints=[hint])


def is_file(path: Path) -> bool:
    """Whether there is such a file; one that cannot be there, or cannot be looked at, is not."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def is_folder(path: Path) -> bool:
    """As `is_file`, for a folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in lower-case hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def digest_of(paths: Iterable[Path], root: Path) -> str:
    """The SHA-256 of names below `root` and contents of files, in lower-case hexadecimal."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        total.update(f"{path.relative_to(root)} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()

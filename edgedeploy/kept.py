"""What takes long to make and depends on nothing but its key: made once, and kept in the user's cache folder.

An entry is a folder that appears whole or not at all. It is made under a lock, so that of two processes that want it
one waits for the other; what a killed process left is cleared away by the next that makes the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.files import cannot_write, exchange, folder_lock, is_folder
from edgedeploy.progress import SILENT, Progress
from edgedeploy.settings import cache_folder


@dataclass(frozen=True)
class Kept:
    """All entries of one kind.

    Attributes:
        kind: the name of their folder in the user's cache folder.
    """

    kind: str

    @property
    def folder(self) -> Path:
        """Where the entries lie."""
        return cache_folder() / self.kind

    def path(self, key: str) -> Path:
        """Where the entry of a key lies, once it was made."""
        return self.folder / key

    def made(
        self,
        key: str,
        make: Callable[[Path], object],
        what: str,
        progress: Progress = SILENT,
        *,
        sound: Callable[[Path], bool] = is_folder,
    ) -> Path:
        """The entry of a key: the one that was made before, or a new one.

        Args:
            key: a hash of all that the entry depends on, and what else it is to be called.
            make: fills an empty folder; if it fails, nothing is kept.
            what: what is made, for people.
            progress: is told that it is, and of waiting for another process.
            sound: whether an entry can be used; one that cannot is made again, and replaced at once.
        """
        entry = self.path(key)
        if sound(entry):
            logging.getLogger(__name__).info("not %s again: %s", what, entry)
            return entry
        making = entry.with_name(f".making-{key}")
        try:
            with folder_lock(making, progress):
                if sound(entry):  # another process has just made it
                    _remove(making)
                    return entry
                try:
                    _clear(making)
                    progress.note(f"{what}, kept for later runs")
                    make(making)
                except BaseException:
                    shutil.rmtree(making, ignore_errors=True)
                    raise
                _move(making, entry)
        except OSError as error:
            raise cannot_write(entry, error) from error
        return entry


def key_of(content: object) -> str:
    """A key over what JSON can say: its SHA-256, in lower-case hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _move(folder: Path, target: Path) -> None:
    """Give a folder its name, in the place of whatever has that."""
    try:
        folder.rename(target)
    except OSError:
        exchange(folder, target)
        _remove(folder)

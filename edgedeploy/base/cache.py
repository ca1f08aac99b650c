"""The cache, in the user's cache folder, of what is slow to create and depends only on its key.

An entry is a folder that appears whole or not at all. It is filled under a lock, so that of two processes that want it
one waits for the other; the next process cleans up after a killed one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.base.closing import on_failure
from edgedeploy.base.files import exchange, folder_lock, is_file, is_folder, writing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.settings import cache_folder


@dataclass(frozen=True)
class FolderCache:
    """All cache entries of one kind, in the folder `kind` of the user's cache folder."""

    kind: str

    @property
    def folder(self) -> Path:
        """The folder of the entries."""
        return cache_folder() / self.kind

    def path(self, key: str) -> Path:
        """The path of a key's entry, which may not exist yet."""
        return self.folder / key

    def get(
        self,
        key: str,  # a hash of everything that the entry depends on; it is the entry's name
        create: Callable[[Path], object],  # fills an empty folder; if it fails, nothing is cached
        what: str,  # what happens, for people, such as "building digits"
        progress: Progress = SILENT,  # is notified of it, and of waiting for another process
        *,
        sound: Callable[[Path], bool] = is_folder,  # whether an entry can be used; an unsound one is replaced
    ) -> Path:
        """The entry of a key, created if it is missing or not `sound`."""
        entry = self.path(key)
        if sound(entry):
            logging.getLogger(__name__).info("not %s again: %s", what, entry)
            return entry
        creating = entry.with_name(f".making-{key}")
        with writing(entry), folder_lock(creating, progress):
            if sound(entry):  # another process has just created it
                _remove(creating)
                return entry
            with on_failure(lambda: shutil.rmtree(creating, ignore_errors=True)):
                for left in creating.iterdir():  # by a killed process
                    _remove(left)
                progress.note(f"{what} (cached for later runs)")
                create(creating)
            _move(creating, entry)
        return entry

    def get_file(
        self, key: str, name: str, create: Callable[[Path], object], what: str, progress: Progress = SILENT
    ) -> Path:
        """The file `name` in the entry of a key; if it is missing, `create` makes it at the path that it is given."""
        entry = self.get(
            key, lambda folder: create(folder / name), what, progress, sound=lambda folder: is_file(folder / name)
        )
        return entry / name


def key_of(content: object) -> str:
    """The SHA-256 of content as JSON, in lower-case hexadecimal."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _move(folder: Path, target: Path) -> None:
    """Rename a folder, replacing an existing one."""
    try:
        folder.rename(target)
    except OSError:
        exchange(folder, target)
        _remove(folder)

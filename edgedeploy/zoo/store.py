"""The zoo's files on this machine: where a file lies, and having it there.

A `ZooFile` is known by its content, so every copy with the right SHA-256 is as good as another. Copies are
looked for in this order:

1. bundled: beside the YAML document that names the file (only for files that say so: edgedeploy's own, and those that
   a user imported);
2. mirrors: the folders that the environment variable `EDGEDEPLOY_MODELS` names, separated as in `PATH`,
   with all their subfolders; names do not matter there;
3. cache: `<user's cache folder>/models/<first 16 digits of the SHA-256>/<name>`. The digest in the path lets
   two releases of a file that share a name lie side by side, and an entry that is changed never finds the
   old file; the name at the end keeps the suffix by which programs know the format.

What is not there is downloaded into the cache, from an address or as a part of a wheel. Mirrors and bundled files are
only ever read.
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

from edgedeploy import settings
from edgedeploy.errors import ConfigurationError, DownloadError
from edgedeploy.files import cannot_write, folder_lock, is_folder, sha256_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.text import without_secrets
from edgedeploy.zoo.download import Patience, download, part_of
from edgedeploy.zoo.entry import MODELS, ZooFile, ZooModel
from edgedeploy.zoo.wheel import extract, kept

MIRRORS_VARIABLE = "EDGEDEPLOY_MODELS"

Place = Literal["bundled", "mirror", "cached"]


@dataclass(frozen=True)
class Copy:
    """A copy of a zoo file on this machine.

    Attributes:
        path: where it lies.
        place: which of the places that is.
        sound: whether it has the size and the SHA-256 that the zoo states.
    """

    path: Path
    place: Place
    sound: bool


def cache_folder() -> Path:
    """The folder that downloads go to, whether or not it exists."""
    return settings.cache_folder() / "models"


def wheels_folder() -> Path:
    """The folder that wheels are kept in which hold files of the zoo, whether or not it exists."""
    return cache_folder() / "wheels"


def cache_path(file: ZooFile) -> Path:
    """Where the cached copy of `file` lies or would lie."""
    return cache_folder() / file.sha256[:16] / file.name


def mirror_folders() -> list[Path]:
    """The mirrors that `EDGEDEPLOY_MODELS` names."""
    folders = [Path(name) for name in os.environ.get(MIRRORS_VARIABLE, "").split(os.pathsep) if name]
    for folder in folders:
        if not is_folder(folder):
            raise ConfigurationError(
                f"{MIRRORS_VARIABLE} names {folder}, which is not a folder",
                hints=[f"correct or unset {MIRRORS_VARIABLE}; several folders are separated by {os.pathsep!r}"],
            )
    return folders


def copies(file: ZooFile, folder: Path) -> Iterator[Copy]:
    """The copies of `file` on this machine, in the order in which they are looked for.

    Damaged copies are among them where a sound one was to be expected: beside the document and in the cache.

    Args:
        file: the file.
        folder: the folder of the YAML document that names it.
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
    """The first sound copy of `file`, or None if there is none on this machine.

    Args:
        file: the file.
        folder: the folder of the YAML document that names it.
    """
    return next((copy.path for copy in copies(file, folder) if copy.sound), None)


def fetch(file: ZooFile, *, folder: Path, progress: Progress = SILENT, patience: Patience = Patience()) -> Path:
    """A sound copy of `file`, downloaded if there is none on this machine yet.

    Args:
        file: a network's file or a demo's image.
        folder: the folder of the YAML document that names it.
        progress: is told about a download.
        patience: timeouts and attempts of a download.
    """
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
    """An entry, or the one of the same weights that it names if its own files cannot be had.

    Args:
        path: the entry's YAML document.
        model: the entry.
        progress: is told if it is the other one.
    """
    missing = [file for file in model.files if not file.has_download and locate(file, path.parent) is None]
    if not missing or model.same_as is None:
        return path, model
    progress.note(f"{path.stem}: {missing[0].name} has no download; taking {model.same_as}, of the same weights")
    return MODELS.find(model.same_as), MODELS.load(model.same_as)


def pull(model: ZooModel, *, folder: Path, progress: Progress = SILENT, patience: Patience = Patience()) -> list[Path]:
    """Sound copies of all files of `model`, in its order; see `fetch`."""
    return [fetch(file, folder=folder, progress=progress, patience=patience) for file in model.files]


def verify(model: ZooModel, folder: Path) -> dict[ZooFile, list[Copy]]:
    """Read and check all copies of the files of `model` that are on this machine."""
    return {file: list(copies(file, folder)) for file in model.files}


def remove(file: ZooFile, progress: Progress = SILENT) -> bool:
    """Remove `file` from the cache, with an unfinished download of it and the wheel that it came in, and say whether
    there was anything. Another file of that wheel then needs the wheel anew, unless it is there already.
    """
    target = cache_path(file)
    there = [path for path in (target, part_of(target)) if path.exists()]
    if file.wheel and (wheel := kept(file.wheel, wheels_folder())):
        there.append(wheel)
    try:
        for path in there:
            with folder_lock(path.parent, progress):
                path.unlink(missing_ok=True)
                with suppress(OSError):  # not empty: something else lies there, and stays
                    path.parent.rmdir()
    except OSError as error:
        raise cannot_write(target, error) from error
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
    """The error for a file that should lie beside the document that names it, and is another one or not there."""
    path = folder / file.name
    stated = f"{file.size:,} bytes with SHA-256 {file.sha256}"
    # The document is known by what it states.
    documents = [each for each in sorted(folder.glob("*.yaml")) if file.sha256 in _text(each)]
    said_by = str(documents[0]) if documents else "the document that names it"
    if not path.is_file():
        why = f"{said_by} names it" if documents else None
        return DownloadError(f"there is no file {path}", why=why, hints=[f"put it there: {stated}"])
    found, size = sha256_of(path), path.stat().st_size
    return DownloadError(
        f"{path} is not the file that {said_by} describes",
        why=f"it has {size:,} bytes with SHA-256 {found}, and {stated} are stated",
        hints=[
            f'if it was changed on purpose, as by training again, state in {said_by}: sha256: "{found}", size: {size}',
            "otherwise bring back the file that was there",
        ],
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _is(file: ZooFile, path: Path) -> bool:
    """Whether the content of `path` is that of `file`; what cannot be read is not."""
    try:
        status = path.stat()
        if status.st_size != file.size:
            return False
        return _digest(path, status.st_ino, status.st_size, status.st_mtime_ns) == file.sha256
    except OSError:
        return False


@cache
def _digest(path: Path, inode: int, size: int, changed: int) -> str:
    """The SHA-256 of a file, computed once as long as what the system knows of it stays the same."""
    return sha256_of(path)


@cache
def _files_by_size(mirror: Path) -> dict[int, list[Path]]:
    """The regular files below `mirror`, by size in bytes; scanned once per process, as listings ask for each file."""
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

"""Python packages of other engines for a board's architecture: pip brings their wheels, which are never run here."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.errors import DownloadError
from edgedeploy.files import sha256_of
from edgedeploy.kept import Kept, key_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.zoo.wheel import brought_by_pip

_SITES = Kept("wheels-of-boards")
# The newest glibc 2.x that wheels may be for unless that is said: Debian 12's. The oldest are those of manylinux2014.
_GLIBC, _OLDEST = 36, 17
_MARK, _VERSION = ".sha256", ".version"


@dataclass(frozen=True)
class Site:
    """An unpacked wheel.

    Attributes:
        path: the folder for PYTHONPATH.
        name, version: of the distribution.
        sha256: of the wheel.
    """

    path: Path
    name: str
    version: str
    sha256: str


def site(
    name: str, version: str | None, architecture: str, python: str, progress: Progress = SILENT, *, glibc: int = _GLIBC
) -> Site:
    """A distribution for an architecture, brought by pip unless it was before.

    Args:
        name: of the distribution.
        version: its version; the newest that there is for this Python unless given.
        architecture: as wheels have it: `aarch64`, `armv7l`, `x86_64`.
        python: the version of Python, such as `3.11`.
        progress: is told about the download.
        glibc: the glibc 2.x of the system that it runs on, at most.

    Raises:
        DownloadError: pip does not bring it, or it is damaged.
        OutputError: the user's cache folder cannot be written.
    """
    minors = range(glibc, _OLDEST - 1, -1)
    platforms = [*(f"manylinux_2_{minor}_{architecture}" for minor in minors), f"manylinux2014_{architecture}"]
    options = [f"--python-version={python}", *(f"--platform={platform}" for platform in platforms)]

    def make(folder: Path) -> None:
        [wheel] = brought_by_pip(what, f"{name}=={version}" if version else name, options, folder, progress)
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise DownloadError(f"{wheel.name} is no sound wheel", why=str(error)) from error
        (folder / _VERSION).write_text(wheel.name.split("-")[1], encoding="ascii")
        (folder / _MARK).write_text(sha256_of(wheel), encoding="ascii")
        wheel.unlink()

    what = f"{name} {version or 'of any version'} for {architecture} and Python {python}"
    key = key_of([name, version, options, _VERSION])[:12]
    path = _SITES.made(f"{name}-{version or 'any'}-{architecture}-{key}", make, f"unpacking {what}", progress)
    found, sha256 = ((path / mark).read_text(encoding="ascii") for mark in (_VERSION, _MARK))
    return Site(path, name, found, sha256)

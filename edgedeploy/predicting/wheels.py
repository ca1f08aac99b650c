"""Python packages of other engines for a board's architecture: pip brings their wheels, which are never run here."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from edgedeploy.errors import DownloadError
from edgedeploy.files import sha256_of
from edgedeploy.kept import Kept, key_of
from edgedeploy.predicting.machine import PYTHON
from edgedeploy.progress import SILENT, Progress
from edgedeploy.zoo.wheel import brought_by_pip

_SITES = Kept("wheels-of-boards")
# Of the system that the wheels run on, which has glibc 2.36.
_GLIBC = range(36, 16, -1)
_MARK = ".sha256"


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


def site(name: str, version: str, architecture: str, progress: Progress = SILENT) -> Site:
    """A distribution for an architecture, brought by pip unless it was before.

    Raises:
        DownloadError: pip does not bring it, or it is damaged.
        OutputError: the user's cache folder cannot be written.
    """
    platforms = [*(f"manylinux_2_{minor}_{architecture}" for minor in _GLIBC), f"manylinux2014_{architecture}"]
    options = [f"--python-version={PYTHON}", *(f"--platform={platform}" for platform in platforms)]

    def make(folder: Path) -> None:
        [wheel] = brought_by_pip(what, f"{name}=={version}", options, folder, progress)
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise DownloadError(f"{wheel.name} is no sound wheel", why=str(error)) from error
        (folder / _MARK).write_text(sha256_of(wheel), encoding="ascii")
        wheel.unlink()

    what = f"{name} {version} for {architecture}"
    key = key_of([name, version, options])[:12]
    path = _SITES.made(f"{name}-{version}-{architecture}-{key}", make, f"unpacking {what}", progress)
    return Site(path, name, version, (path / _MARK).read_text(encoding="ascii"))

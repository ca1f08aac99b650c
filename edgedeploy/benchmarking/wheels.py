"""Wheels of other engines for a board's architecture: pip downloads them, and a list pins their SHA-256."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgedeploy.base.cache import FolderCache
from edgedeploy.base.documents import Record, read_document
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import DownloadError
from edgedeploy.zoo.entry import WheelFile
from edgedeploy.zoo.wheel import download_wheel, unpack

# The pinned wheels; scripts/pin_wheels.py writes it.
PINS = Path(__file__).with_name("wheels.yaml")

_SITES = FolderCache("wheels-of-boards")
# The newest glibc 2.x of wheels by default, of Debian 12, and the oldest, of manylinux2014.
_GLIBC, _OLDEST = 36, 17


@dataclass(frozen=True)
class Site:
    """An unpacked wheel; `path` is the folder for PYTHONPATH."""

    path: Path
    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class Target:
    """The system that wheels are for, such as `aarch64`, `3.11`, and 36 for glibc 2.36."""

    architecture: str
    python: str
    glibc: int = _GLIBC

    @property
    def platforms(self) -> list[str]:
        """The platform tags of wheels, the newest first."""
        minors = range(self.glibc, _OLDEST - 1, -1)
        return [*(f"manylinux_2_{minor}_{self.architecture}" for minor in minors), f"manylinux2014_{self.architecture}"]

    @property
    def pip_options(self) -> list[str]:
        """The options of pip for it."""
        return [f"--python-version={self.python}", *(f"--platform={platform}" for platform in self.platforms)]

    def best(self, wheels: Iterator[WheelFile]) -> WheelFile | None:
        """The wheel that pip would take."""
        from packaging.tags import compatible_tags, cpython_tags
        from packaging.utils import parse_wheel_filename

        version = [int(part) for part in self.python.split(".")]
        platforms = self.platforms
        order = [*cpython_tags(version, platforms=platforms), *compatible_tags(version, platforms=platforms)]
        ranks = {tag: rank for rank, tag in enumerate(order)}
        fitting = [
            (min(ranks[tag] for tag in tags), wheel)
            for wheel in wheels
            if (tags := parse_wheel_filename(wheel.filename or "")[3] & ranks.keys())
        ]
        return min(fitting, key=lambda each: each[0])[1] if fitting else None


class _Pins(Record):
    wheels: list[WheelFile]


@cache
def _pins() -> list[WheelFile]:
    return read_document(PINS, _Pins).wheels


def site(name: str, version: str | None, target: Target, progress: Progress = SILENT) -> Site:
    """A distribution for a system, downloaded by pip once; the pinned version if `version` is None."""
    known = [each for each in _pins() if each.name.lower() == name.lower()]
    wheel = target.best(each for each in known if version in (None, each.version))
    if wheel is None or wheel.sha256 is None:
        what = f"no wheel of {name} {version or ''}".rstrip()
        versions = sorted({each.version for each in known})
        raise DownloadError(
            f"{what} for {target.architecture} and Python {target.python} is known",
            why=f"those of {' and '.join(versions) or 'no version'} are known by their SHA-256",
        )
    found = wheel

    def make(folder: Path) -> None:
        arriving = folder / ".arriving"
        arriving.mkdir()
        path = download_wheel(found, arriving, progress)
        try:
            unpack(path, folder)
        except DownloadError as error:
            raise DownloadError(f"{path.name}: {error.cause}") from error
        shutil.rmtree(arriving)

    what = f"unpacking {wheel} for {target.architecture}"
    path = _SITES.get(f"{found.filename}-{wheel.sha256[:12]}", make, what, progress)
    return Site(path, wheel.name, wheel.version, wheel.sha256)

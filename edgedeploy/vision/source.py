"""Sources of images: a file, a folder, a video, or a camera."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from edgedeploy.base.closing import Closing
from edgedeploy.base.files import is_file, is_folder
from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError
from edgedeploy.vision.image import is_image, not_an_image, read_image
from edgedeploy.vision.video import Capture, open_camera, open_video

Kind = Literal["image", "folder", "video", "camera"]

_DEVICES = Path("/dev")
_VIDEO4LINUX = 81  # the major number of its devices: Documentation/admin-guide/devices.txt of Linux
_MOST_NAMED = 5  # names in a note


@dataclass(frozen=True)
class Shot:
    """One image of a source: its number, from 0, its file or device, and uint8, height x width x 3, B G R."""

    index: int
    file: Path
    image: np.ndarray

    def capture_ms(self, waited_ms: float) -> float:
        """How long capturing it took, if this program waited for `waited_ms`."""
        return waited_ms


@dataclass(frozen=True)
class Source(Closing):
    """Images one after the other, which can be read once; a context manager.

    The number of images may be unknown. Videos and cameras have a rate, in images per second, and those of this
    machine are open in `capture`.
    """

    kind: Kind
    path: Path
    shots: Iterator[Shot]
    length: int | None = None
    rate: float | None = None
    capture: Capture | None = None

    @property
    def is_film(self) -> bool:
        """Whether its images follow each other in time."""
        return self.kind in ("video", "camera")

    def close(self) -> None:
        """Close the video or camera."""
        if self.capture:
            self.capture.close()


def open_source(what: Path, progress: Progress = SILENT) -> Source:
    """Open a folder, a camera by its number or device, or else a file, by its content.

    Notes about skipped files go to `progress`.
    """
    if is_folder(what):
        return _folder(what, progress)
    device = _camera(what)
    if device is not None:
        capture = open_camera(device)
        shots = _film_shots(device, capture, progress, endless=True)
        return Source("camera", device, shots, rate=capture.rate, capture=capture)
    if is_file(what):
        try:
            with what.open("rb") as stream:
                if not is_image(stream):
                    video = open_video(stream, what)
                    if video is None:
                        raise not_an_image(what, stream.read(4096))
                    shots = _film_shots(what, video, progress, endless=False)
                    return Source("video", what, shots, video.announced, video.rate, video)
        except OSError as error:
            raise InputError(f"cannot read {what}", why=error.strerror or str(error)) from error
    return Source("image", what, iter([Shot(0, what, read_image(what))]), 1)


def _folder(path: Path, progress: Progress) -> Source:
    """The images in a folder, in natural order: `2.png` before `10.png`.

    Other files and damaged images are skipped with a note.
    """
    try:
        files = sorted((each for each in path.iterdir() if not each.name.startswith(".")), key=_natural)
    except OSError as error:
        raise InputError(f"cannot read the folder {path}", why=error.strerror or str(error)) from error
    fits = {each: _begins_as_image(each) for each in files}
    images = [each for each, fit in fits.items() if fit]
    others = [each.name for each, fit in fits.items() if not fit]
    if not images:
        raise InputError(
            f"no image in the folder {path}",
            why=f"there is {_some(others)}" if others else "it is empty",
            hints=["give a folder with JPEG, PNG or other image files directly in it"],
        )
    if others:
        progress.note(f"passed over, being no images: {_some(others)}")
    return Source("folder", path, _folder_shots(path, images, progress), len(images))


def _folder_shots(path: Path, files: list[Path], progress: Progress) -> Iterator[Shot]:
    count, reason = 0, None
    for file in files:
        try:
            image = read_image(file)
        except InputError as error:
            reason = error.cause
            progress.note(f"passed over: {reason}")
            continue
        yield Shot(count, file, image)
        count += 1
    if not count:
        raise InputError(f"no image of the folder {path} can be read", why=reason)


def _film_shots(path: Path, film: Capture, progress: Progress, *, endless: bool) -> Iterator[Shot]:
    """The images of a video, which may end early, with a note, or of a camera, which has no end."""
    count = 0
    for count, image in enumerate(film.images(), 1):
        yield Shot(count - 1, path, image)
    if endless:
        raise InputError(
            f"the camera {path} stopped giving images",
            why=f"after {count} of them; it may have been unplugged",
            hints=["connect it again"],
        )
    if film.announced and count < film.announced:
        progress.note(f"{path} ended after {count} of {film.announced} images; it may be damaged")


def _camera(what: Path) -> Path | None:
    """The device of a camera, or None; `0` is a camera unless there is a file of that name."""
    if re.fullmatch("[0-9]+", str(what)) and not is_file(what):
        return _DEVICES / f"video{what}"
    try:
        status = what.stat()
    except OSError:
        return None
    is_camera = stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == _VIDEO4LINUX
    return what if is_camera else None


def _begins_as_image(path: Path) -> bool:
    with suppress(OSError):
        if is_file(path):
            with path.open("rb") as stream:
                return is_image(stream)
    return False


def _natural(path: Path) -> list[str | int]:
    """A sort key that compares the numbers in a name by value."""
    parts = re.split("([0-9]+)", path.name)
    return [int(part) if index % 2 else part.casefold() for index, part in enumerate(parts)]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown

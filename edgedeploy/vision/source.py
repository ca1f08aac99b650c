"""Where images come from: an image's file, a folder of such, a video, or a camera."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from edgedeploy.closing import Closing
from edgedeploy.errors import InputError
from edgedeploy.files import is_file, is_folder
from edgedeploy.progress import SILENT, Progress
from edgedeploy.vision.image import is_image, not_an_image, read_image
from edgedeploy.vision.video import Capture, open_camera, open_video

Kind = Literal["image", "folder", "video", "camera"]

_DEVICES = Path("/dev")
_VIDEO4LINUX = 81  # the major number of its devices: Documentation/admin-guide/devices.txt of Linux

# More names than this do not help in a note.
_MOST_NAMED = 5


@dataclass(frozen=True)
class Shot:
    """One image of a source.

    Attributes:
        index: which one it is, from 0.
        file: the file or device that it comes from.
        image: its pixels, uint8, height x width x 3, B G R.
    """

    index: int
    file: Path
    image: np.ndarray


class Source(Closing):
    """Images to look at, one after the other; a context manager, whose images are taken once.

    Attributes:
        kind: what it is.
        path: the file, folder or device.
        length: how many images there are, as far as is known.
        rate: images per second, of videos and cameras.
    """

    kind: Kind
    length: int | None = None
    rate: float | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_film(self) -> bool:
        """Whether its images follow each other in time."""
        return self.kind in ("video", "camera")

    def close(self) -> None:
        """Close what is open."""

    def shots(self) -> Iterator[Shot]:
        """The images.

        Raises:
            InputError: there is not one that can be read, or the camera stops giving them.
        """
        raise NotImplementedError


def open_source(what: Path, progress: Progress = SILENT) -> Source:
    """What `what` names: a folder, a camera by its number or device, and otherwise a file, told by its content.

    Args:
        progress: is told of files that are passed over.

    Raises:
        InputError: there is no such thing, it cannot be read, or it holds no image.
    """
    if is_folder(what):
        return ImageFolder(what, progress)
    device = _camera(what)
    if device is not None:
        return Camera(device)
    if is_file(what):
        try:
            with what.open("rb") as stream:
                if not is_image(stream):
                    capture = open_video(stream, what)
                    if capture is None:
                        raise not_an_image(what, stream.read(4096))
                    return Video(what, capture, progress)
        except OSError as error:
            raise InputError(f"cannot read {what}", why=error.strerror or str(error)) from error
    return ImageFile(what)


class ImageFile(Source):
    """One image."""

    kind = "image"
    length = 1

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._image = read_image(path)

    def shots(self) -> Iterator[Shot]:
        """The image."""
        yield Shot(0, self.path, self._image)


class ImageFolder(Source):
    """The images that lie in a folder, in natural order: `2.png` before `10.png`.

    What else lies there is passed over with a note; so is an image that turns out to be damaged.
    """

    kind = "folder"

    def __init__(self, path: Path, progress: Progress = SILENT) -> None:
        super().__init__(path)
        self._progress = progress
        try:
            files = sorted((each for each in path.iterdir() if not each.name.startswith(".")), key=_natural)
        except OSError as error:
            raise InputError(f"cannot read the folder {path}", why=error.strerror or str(error)) from error
        fits = [_begins_as_image(each) for each in files]
        self._files = [each for each, fit in zip(files, fits, strict=True) if fit]
        self.length = len(self._files)
        others = [each.name for each, fit in zip(files, fits, strict=True) if not fit]
        if not self._files:
            raise InputError(
                f"there is no image in the folder {path}",
                why=f"there is {_some(others)}" if others else "it is empty",
                hints=["give a folder with JPEG, PNG or other image files directly in it"],
            )
        if others:
            progress.note(f"passed over, being no images: {_some(others)}")

    def shots(self) -> Iterator[Shot]:
        """The images that can be read."""
        index, reason = 0, None
        for file in self._files:
            try:
                image = read_image(file)
            except InputError as error:
                reason = str(error)
                self._progress.note(f"passed over: {reason}")
                continue
            yield Shot(index, file, image)
            index += 1
        if not index:
            raise InputError(f"no image of the folder {self.path} can be read", why=reason)


class _Film(Source):
    def __init__(self, path: Path, capture: Capture) -> None:
        super().__init__(path)
        self._capture = capture
        self.length, self.rate = capture.announced, capture.rate

    def close(self) -> None:
        """Close the file or device."""
        self._capture.close()

    def shots(self) -> Iterator[Shot]:
        """The images in their order."""
        index = 0
        while (image := self._capture.read()) is not None:
            yield Shot(index, self.path, image)
            index += 1
        self._at_end(index)

    def _at_end(self, count: int) -> None:
        raise NotImplementedError


class Video(_Film):
    """A video's images. One that is cut off ends where it can no longer be read, with a note."""

    kind = "video"

    def __init__(self, path: Path, capture: Capture, progress: Progress = SILENT) -> None:
        super().__init__(path, capture)
        self._progress = progress

    def _at_end(self, count: int) -> None:
        if self.length and count < self.length:
            self._progress.note(f"{self.path} ended after {count} of {self.length} images; it may be damaged")


class Camera(_Film):
    """A camera's images, without an end."""

    kind = "camera"

    def __init__(self, device: Path) -> None:
        super().__init__(device, open_camera(device))

    def _at_end(self, count: int) -> None:
        raise InputError(
            f"the camera {self.path} stopped giving images",
            why=f"after {count} of them; it may have been unplugged",
            hints=["connect it again"],
        )


def _camera(what: Path) -> Path | None:
    """The device of the camera that is meant, if one is; `0` is one unless a file is called so."""
    if re.fullmatch("[0-9]+", str(what)) and not is_file(what):
        return _DEVICES / f"video{what}"
    try:
        status = what.stat()
    except OSError:
        return None
    is_camera = stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == _VIDEO4LINUX
    return what if is_camera else None


def _begins_as_image(path: Path) -> bool:
    if not is_file(path):
        return False
    try:
        with path.open("rb") as stream:
            return is_image(stream)
    except OSError:
        return False


def _natural(path: Path) -> list[str | int]:
    """A key that sorts the numbers in a name by their value."""
    parts = re.split("([0-9]+)", path.name)
    return [int(part) if index % 2 else part.casefold() for index, part in enumerate(parts)]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown

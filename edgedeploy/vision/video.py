"""Videos and cameras, read and written with what OpenCV carries: FFmpeg, and Video4Linux for cameras."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import IO

import cv2
import numpy as np

from edgedeploy.base.closing import Closing
from edgedeploy.base.files import replacing
from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision import MAX_PIXELS
from edgedeploy.vision.image import check_place

# The codec of each kind of file: encoders that are part of FFmpeg itself, and so of every OpenCV. H.264 is not.
CODECS = {".mp4": "mp4v", ".avi": "MJPG"}

# For videos with an invalid rate, and cameras that state none.
_USUAL_RATE = 25.0
_MOST_RATE = 1000.0


class Capture(Closing):
    """An open video or camera, and its rate in images per second, 25 if unknown; a context manager.

    `announced` is the number of images that the video's file states, often by its length; None for cameras.
    """

    def __init__(self, opened: cv2.VideoCapture, first: np.ndarray, announced: int | None) -> None:
        self._opened, self._first = opened, first
        self.announced = announced
        rate = float(opened.get(cv2.CAP_PROP_FPS))
        self.rate = rate if 0 < rate <= _MOST_RATE else _USUAL_RATE

    def close(self) -> None:
        """Close it."""
        self._opened.release()

    def images(self) -> Iterator[np.ndarray]:
        """The images, each uint8, height x width x 3, B G R, until the last."""
        image: np.ndarray | None = self._first
        while image is not None:
            yield image
            image = _next(self._opened)


def open_video(stream: IO[bytes], name: Path) -> Capture | None:
    """Open a video by its content, or return None if it is not one; `stream` may be closed afterwards."""
    opened = cv2.VideoCapture(f"/proc/self/fd/{stream.fileno()}", cv2.CAP_FFMPEG)
    if not opened.isOpened():
        return None
    width, height = opened.get(cv2.CAP_PROP_FRAME_WIDTH), opened.get(cv2.CAP_PROP_FRAME_HEIGHT)
    if width * height > MAX_PIXELS:
        opened.release()
        raise InputError(
            f"the images of the video {name} are too large",
            why=f"{width:.0f}x{height:.0f} are more than {MAX_PIXELS >> 20} megapixels",
        )
    first = _next(opened)
    if first is None:
        opened.release()
        return None
    count = opened.get(cv2.CAP_PROP_FRAME_COUNT)
    return Capture(opened, first, int(count) if 0 < count < 1e12 else None)


def open_camera(device: Path) -> Capture:
    """Open a camera of Video4Linux, such as `/dev/video0`, and wait for its first image."""
    if not device.exists():
        present = sorted(path.name for path in device.parent.glob("video*"))
        raise InputError(
            f"there is no camera {device}",
            why=f"there are {', '.join(present)}" if present else "the system knows of none",
            hints=["connect one, or give an image, a folder or a video instead"],
        )
    if not os.access(device, os.R_OK | os.W_OK):
        raise InputError(
            f"the camera {device} may not be used",
            why="the system does not let this user read it",
            hints=["become a member of the group that owns it: sudo usermod -aG video $USER, then log in again"],
        )
    opened = cv2.VideoCapture(str(device), cv2.CAP_V4L2)
    first = _next(opened) if opened.isOpened() else None
    if first is None:
        opened.release()
        raise InputError(
            f"the camera {device} gives no image",
            why="OpenCV cannot read it, or another program is using it",
            hints=["end the other program", "try the next number: many cameras have a second device without images"],
        )
    return Capture(opened, first, None)


def _next(opened: cv2.VideoCapture) -> np.ndarray | None:
    try:
        done, image = opened.read()
    except cv2.error:  # an image that does not fit into memory
        return None
    return image if done and image is not None and image.size else None


def check_video_writable(path: Path) -> None:
    """Check, before long work, that a video can be written as `path`."""
    if path.suffix.lower() not in CODECS:
        raise InputError(
            f"cannot save a video as {path}",
            why=f"{path.suffix or 'a name without a suffix'} names no kind of video that is written here",
            hints=[f"use a name that ends in {' or '.join(CODECS)}"],
        )
    try:
        str(path.absolute()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise OutputError(f"cannot write {os.fsencode(path)!r}", why="OpenCV takes names in UTF-8 only") from error
    check_place(path)


@contextmanager
def video_file(path: Path, rate: float, *, live: bool = False) -> Iterator[Callable[[np.ndarray], None]]:
    """Write a video of `rate` images per second: call the result with each image.

    The file appears, complete and playable, when the block ends, even by an exception, unless there is no image.
    All images get the size of the first one. With `live`, images are repeated or dropped, so that the video runs in
    real time.
    """
    check_video_writable(path)
    ended: BaseException | None = None
    with replacing(path) as temporary:
        writer = _Writer(path, temporary, rate, live)
        try:
            yield writer.write
        except BaseException as error:
            if not writer.written:
                raise
            ended = error
        writer.finish()
    if ended is not None:
        raise ended


class _Writer:
    def __init__(self, path: Path, temporary: Path, rate: float, live: bool) -> None:
        self._path, self._temporary, self._rate, self._live = path, temporary, rate, live
        self._video: cv2.VideoWriter | None = None
        self._size = (0, 0)
        self._started = 0.0
        self.written = 0

    def write(self, image: np.ndarray) -> None:
        if self._video is None:
            self._started = perf_counter()
            self._size = (image.shape[1], image.shape[0])
            self._video = self._opened()
        elif (image.shape[1], image.shape[0]) != self._size:  # OpenCV would drop it
            image = cv2.resize(image, self._size, interpolation=cv2.INTER_AREA)
        due = round((perf_counter() - self._started) * self._rate) + 1
        copies = max(0, due - self.written) if self._live else 1
        for _ in range(copies):
            self._video.write(image)
        self.written += copies

    def finish(self) -> None:
        """Write the end of the file, without which it does not play, and check that its last image is there."""
        if self._video is None:
            raise OutputError(f"cannot write {self._path}", why="there was no image to write")
        self._video.release()
        written = cv2.VideoCapture(str(self._temporary.absolute()), cv2.CAP_FFMPEG)
        written.set(cv2.CAP_PROP_POS_FRAMES, self.written - 1)
        if _next(written) is None:
            raise OutputError(
                f"cannot write {self._path}",
                why="its last image cannot be read back; the disk may be full",
                hints=["choose another folder"],
            )

    def _opened(self) -> cv2.VideoWriter:
        suffix = self._path.suffix.lower()
        code = cv2.VideoWriter.fourcc(*CODECS[suffix])
        video = cv2.VideoWriter(str(self._temporary.absolute()), cv2.CAP_FFMPEG, code, self._rate, self._size)
        if not video.isOpened():
            raise OutputError(
                f"cannot write {self._path}",
                why=f"a video of {self._size[0]}x{self._size[1]} pixels cannot be written as {suffix}",
                hints=["use a name that ends in .avi, which takes larger images"],
            )
        return video

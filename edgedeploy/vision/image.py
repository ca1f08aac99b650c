"""Image files and arrays: reading, checking and writing."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING

import cv2
import numpy as np

from edgedeploy.base.files import is_folder, replacing, writing
from edgedeploy.errors import InputError, OutputError
from edgedeploy.model.tensors import shown
from edgedeploy.vision import MAX_PIXELS

if TYPE_CHECKING:
    from typing import TypeAlias

    from PIL.Image import Image as PillowImage

    GivenImage: TypeAlias = str | PathLike[str] | np.ndarray | PillowImage

_MAX_BYTES = 1 << 28

# Markers of JPEG (ITU-T T.81, annex B); those that stand alone have no segment.
_JPEG, _MARKER = b"\xff\xd8\xff", re.compile(rb"\xff+([^\x00\xff])")
_SCAN, _END, _ALONE = b"\xda", b"\xd9", [bytes([each]) for each in (0x01, *range(0xD0, 0xD9))]
_MOST_SCANS = 100  # programs write about ten


def read_image(path: Path) -> np.ndarray:
    """Read an image of any format that OpenCV knows, rotated by its EXIF data: uint8, height x width x 3, B G R.

    Grey images are repeated into the three channels, transparency is dropped.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)  # a device or a pipe has no size to ask for
    except FileNotFoundError as error:
        raise InputError(f"there is no image {path}", hints=["check its path"]) from error
    except OSError as error:
        raise InputError(f"cannot read the image {path}", why=error.strerror or str(error)) from error
    if len(content) > _MAX_BYTES:
        raise _too_large(path)
    try:
        image = decoded(content)
    except cv2.error as error:
        if "IMAGE_PIXELS" in str(error) or "IMAGE_WIDTH" in str(error) or "IMAGE_HEIGHT" in str(error):
            raise _too_large(path) from error
        raise InputError(f"cannot decode the image {path}", why=error.err or str(error)) from error
    except ValueError as error:
        raise InputError(f"cannot decode the image {path}", why=str(error)) from error
    if image is None:
        raise not_an_image(path, content)
    return image


def decoded(content: bytes) -> np.ndarray | None:
    """An encoded image as `read_image` gives it; None if it is none."""
    at, scans = 2, 0
    while content[:3] == _JPEG and (marker := _MARKER.search(content, at)) and marker[1] != _END:
        at = marker.end()
        if marker[1] not in _ALONE:
            at += int.from_bytes(content[at : at + 2], "big")
        scans += marker[1] == _SCAN
        if scans > _MOST_SCANS:
            raise ValueError("it has too many scans")
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR) if content else None


def is_image(stream: IO[bytes]) -> bool:
    """Whether an open file begins like an image of a format that OpenCV knows; its name does not matter."""
    return bool(cv2.haveImageReader(f"/proc/self/fd/{stream.fileno()}"))


def not_an_image(path: Path, content: bytes) -> InputError:
    """The error for a file that is neither an image nor a video; `content` is its beginning."""
    return InputError(
        f"{path} is not an image",
        why=_what_it_is(content),
        hints=["give a JPEG, PNG, WebP, BMP, TIFF or PPM file, a folder of such, or a video"],
    )


def _too_large(path: Path) -> InputError:
    return InputError(
        f"the image {path} is too large",
        why=f"more than {MAX_PIXELS >> 20} megapixels or {_MAX_BYTES >> 20} MiB",
        hints=["scale it down first; the networks work on less than a megapixel"],
    )


def _what_it_is(content: bytes) -> str:
    if not content:
        return "the file is empty"
    with suppress(UnicodeDecodeError):
        if b"\0" not in content[:4096] and content.decode("utf-8"):
            return "it is text"
    return "its content is of no image or video format that is known here, or is damaged"


def check_writable(path: Path) -> None:
    """Check, before long work, that `write_image` can write `path`."""
    if not path.suffix or not cv2.haveImageWriter(f"x{path.suffix.lower()}"):
        raise InputError(
            f"cannot save an image as {path}",
            why=f"{path.suffix or 'a name without a suffix'} names no image format",
            hints=["use a name that ends in .jpg or .png"],
        )
    check_place(path)


def check_place(path: Path) -> None:
    """Check that a file `path` can be created or replaced."""
    if is_folder(path):
        raise OutputError(f"cannot write {path}", why="it is a folder", hints=["name a file in it"])
    folder = path.absolute().parent
    with writing(path):  # a folder on the way may not be entered
        while not folder.exists():
            folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(
            f"cannot write {path}",
            why=f"{folder} is not a folder that may be written",
            hints=["choose another folder, or make this one writable"],
        )


def write_image(path: Path, image: np.ndarray) -> None:
    """Write `image` in the format of the suffix of `path`."""
    check_writable(path)
    try:
        done, encoded = cv2.imencode(path.suffix.lower(), image)
    except cv2.error:
        done = False
    if not done:
        height, width = image.shape[:2]
        raise OutputError(
            f"cannot write {path}",
            why=f"a colour image of {width}x{height} pixels cannot be written as {path.suffix}",
            hints=["use a name that ends in .png, which takes images of any size"],
        )
    with replacing(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def image_of(image: GivenImage) -> np.ndarray:
    """An image of any kind as uint8, height x width x 3, channels B, G, R.

    Kinds are paths; arrays of uint8, height x width x 3 with channels B, G, R as in OpenCV, height x width x 4 with a
    transparency that is dropped, or height x width, grey; and Pillow's images. EXIF data rotates the latter and files.
    """
    if isinstance(image, str | PathLike):
        return read_image(Path(image))
    if not isinstance(image, np.ndarray):
        return _of_pillow(image)
    grey = image.ndim == 2
    if not grey and (image.ndim != 3 or image.shape[2] not in (3, 4)):
        raise InputError(
            f"an array of {shown(image.shape)} is not an image",
            why="images are height x width, or height x width x 3 or 4",
            hints=["tensors go into a network by calling it: network(array)"],
        )
    if image.dtype != np.uint8 or 0 in image.shape:
        raise InputError(
            f"an array of {shown(image.shape)} of {image.dtype} is not an image",
            why="images have values of uint8, from 0 to 255, and at least one pixel",
        )
    return np.repeat(image[:, :, None], 3, axis=2) if grey else np.ascontiguousarray(image[:, :, :3])


def _of_pillow(image: PillowImage) -> np.ndarray:
    if not hasattr(image, "getexif"):
        why = "images are paths, arrays of OpenCV, or images of Pillow"
        raise InputError(f"{type(image).__name__} is not an image", why=why)
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(image)
    return np.ascontiguousarray(np.asarray(upright.convert("RGB"))[:, :, ::-1])

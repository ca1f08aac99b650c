"""Images as programs hand them over: paths, arrays of OpenCV's, and images of Pillow's."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.errors import InputError
from edgedeploy.tensors import shown
from edgedeploy.vision.image import read_image

if TYPE_CHECKING:
    from typing import TypeAlias

    from PIL.Image import Image as PillowImage

    GivenImage: TypeAlias = str | PathLike[str] | np.ndarray | PillowImage


def image_of(given: GivenImage) -> np.ndarray:
    """An image as networks of demos take it.

    Args:
        given: a path; an array of uint8, height x width x 3 with channels B, G, R as OpenCV has them, height x width
            x 4 with a transparency that is dropped, or height x width, grey; or an image of Pillow's. Files and
            Pillow's images are turned upright if their EXIF data says how.

    Returns:
        uint8, height x width x 3, channels B, G, R.
    """
    if isinstance(given, str | PathLike):
        return read_image(Path(given))
    if not isinstance(given, np.ndarray):
        return _of_pillow(given)
    grey = given.ndim == 2
    if not grey and (given.ndim != 3 or given.shape[2] not in (3, 4)):
        raise InputError(
            f"an array of {shown(given.shape)} is no image",
            why="images are height x width, or height x width x 3 or 4",
            hints=["tensors go into a network by calling it: network(array)"],
        )
    if given.dtype != np.uint8 or 0 in given.shape:
        raise InputError(
            f"an array of {shown(given.shape)} of {given.dtype} is no image",
            why="images have values of uint8, from 0 to 255, and at least one pixel",
        )
    return np.repeat(given[:, :, None], 3, axis=2) if grey else np.ascontiguousarray(given[:, :, :3])


def _of_pillow(given: PillowImage) -> np.ndarray:
    """An image of Pillow's; whoever has one has Pillow."""
    if not hasattr(given, "getexif"):
        raise InputError(
            f"{type(given).__name__} is no image", why="images are paths, arrays of OpenCV's, or images of Pillow's"
        )
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(given)
    return np.ascontiguousarray(np.asarray(upright.convert("RGB"))[:, :, ::-1])

"""How an image lies in a network's input, and parts of an image between any four corners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from edgedeploy.package.usage import Fit

Size = tuple[int, int]

# The level around the image: black, or the grey of Ultralytics' LetterBox.
BORDER: dict[Fit, int] = {"letterbox": 114}


@dataclass(frozen=True)
class Frame:
    """How an image lies in a network's input."""

    image: Size  # height and width of the image in pixels
    network: Size  # height and width of the network's input in pixels
    scale: tuple[float, float]  # pixels of the network per pixel of the image, along x and along y
    # x and y of the image's top left in pixels of the network; negative if it is cropped
    offset: tuple[float, float] = (0.0, 0.0)

    @property
    def inner(self) -> Size:
        """Height and width of the whole image in pixels of the network."""
        return round(self.image[0] * self.scale[1]), round(self.image[1] * self.scale[0])

    def to_image(self, points: np.ndarray) -> np.ndarray:
        """Points in pixels of the network (..., 2) as pixels of the image, in the same dtype."""
        return (points - np.asarray(self.offset, points.dtype)) / np.asarray(self.scale, points.dtype)


def framed(image: Size, size: Size, fit: Fit) -> Frame:
    """How an image of a height and width lies in an input of `size`; see `vision.preprocess.place` about `fit`.

    If the border or the crop has an odd number of pixels, the smaller half comes first.
    """
    (height, width), (rows, columns) = image, size
    least = min(rows / height, columns / width)
    if fit == "contain":
        return Frame(image, size, (least, least), ((columns - least * width) / 2, (rows - least * height) / 2))
    if fit in ("stretch", "fill"):
        inner = size
    elif fit == "cover":  # sizes and the place of the cut are those of torchvision's Resize and CenterCrop
        wide = rows * width <= columns * height
        inner = (int(columns * height / width), columns) if wide else (rows, int(rows * width / height))
    else:
        scale = min(1.0, least) if fit == "pad" else least
        inner = max(1, round(height * scale)), max(1, round(width * scale))
    left = top = 0
    if fit == "letterbox":
        top, left = ((whole - part) // 2 for whole, part in zip(size, inner, strict=True))
    elif fit == "cover":
        top, left = (-round((part - whole) / 2) for whole, part in zip(size, inner, strict=True))
    return Frame(image, size, (inner[1] / width, inner[0] / height), (left, top))


Border = Literal["replicate", "zero"]
_BORDER = {"replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT}

_BITS = 5  # positions are in 32nds of a pixel: INTER_BITS of OpenCV


def warp_quadrilateral(
    image: np.ndarray,  # uint8, height x width x channels
    corners: np.ndarray,  # 4 x 2, x and y in pixels of the image, clockwise from the top left of the result
    size: tuple[int, int],  # width and height of the result in pixels
    *,
    # `linear` rounds positions to 32nds of a pixel in every version of OpenCV, as OpenCV does up to version 4:
    # otherwise MediaPipe's points of people move by several pixels
    interpolation: Literal["linear", "cubic"] = "linear",
    border: Border = "replicate",  # pixels outside of the image: the nearest pixel, or zero
) -> np.ndarray:
    """The part of `image` between four corners as an upright image.

    The corners go to (0, 0), (width, 0), (width, height) and (0, height), as in MediaPipe's ImageToTensorCalculator
    and PaddleOCR's get_rotate_crop_image: pixel (0, 0) of the result is the image at the first corner.
    """
    to_upright = _to_upright(corners, size)
    if interpolation == "cubic":
        return cv2.warpPerspective(image, to_upright, size, flags=cv2.INTER_CUBIC, borderMode=_BORDER[border])
    pixels, between = _places(np.linalg.inv(to_upright), size)
    return cv2.remap(image, pixels, between, cv2.INTER_LINEAR, borderMode=_BORDER[border])


def _places(to_image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The position of each pixel of the result in the image for cv2.remap: whole pixels, and an index of the 32nds."""
    x, y = np.arange(size[0], dtype=np.float64), np.arange(size[1], dtype=np.float64)[:, None]
    ahead, down, depth = to_image
    step = 1 << _BITS
    nearness = step / (depth[0] * x + (depth[1] * y + depth[2]))
    limits = np.iinfo(np.int16).min * step, np.iinfo(np.int16).max * step
    pixels = np.empty((size[1], size[0], 2), np.int16)
    between = np.zeros((size[1], size[0]), np.int32)
    for axis, (across, along, start) in enumerate((ahead, down)):
        places = (across * x + (along * y + start)) * nearness
        place = np.clip(np.rint(places, out=places), *limits, out=places).astype(np.int32)
        pixels[..., axis] = place >> _BITS
        between += (place & (step - 1)) << (_BITS * axis)
    return pixels, between.astype(np.uint16)


def from_upright(points: np.ndarray, corners: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Points (... x 2) of the result of `warp_quadrilateral` as points of the image, float64."""
    flat = np.asarray(points, np.float64).reshape(-1, 1, 2)
    if not flat.size:
        return flat.reshape(np.shape(points))
    return cv2.perspectiveTransform(flat, np.linalg.inv(_to_upright(corners, size))).reshape(np.shape(points))


def _to_upright(corners: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The projection of the image onto the result, 3 x 3, float64."""
    width, height = size
    upright = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    return cv2.getPerspectiveTransform(np.asarray(corners, np.float32), upright)

"""How an image lies in a network's input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Fit = Literal["stretch", "pad", "letterbox", "fill", "cover", "contain"]
Size = tuple[int, int]

# What lies beside the image: black, or the grey of Ultralytics' LetterBox.
BORDER: dict[Fit, int] = {"letterbox": 114}


@dataclass(frozen=True)
class Frame:
    """How an image lies in a network's input.

    Attributes:
        image: height and width of the image in pixels.
        network: height and width of the network's input in pixels.
        scale: pixels of the network per pixel of the image, along x and along y.
        offset: x and y of the image's top left in pixels of the network; negative where a part of it is not seen.
    """

    image: Size
    network: Size
    scale: tuple[float, float]
    offset: tuple[float, float] = (0.0, 0.0)

    @property
    def inner(self) -> Size:
        """Height and width of the whole image in pixels of the network."""
        return round(self.image[0] * self.scale[1]), round(self.image[1] * self.scale[0])

    def to_image(self, points: np.ndarray) -> np.ndarray:
        """Points in pixels of the network (..., 2) as pixels of the image, in the same dtype."""
        return (points - np.asarray(self.offset, points.dtype)) / np.asarray(self.scale, points.dtype)


def framed(image: Size, size: Size, fit: Fit) -> Frame:
    """How an image of a height and width lies in an input of `size`; the ways are those of `vision.preprocess.place`.

    Where a whole number of rows or columns is left beside the image, or is cut off, the smaller half comes first.
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

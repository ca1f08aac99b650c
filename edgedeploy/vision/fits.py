"""Sizes of images and networks: pages scaled before text is looked for, and networks built for several sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.errors import InputError
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.preprocess import place
from edgedeploy.vision.results import View

LONGEST = 1 << 14

Side = Annotated[int, Field(gt=0, le=LONGEST)]


class Page(Record):
    """How a whole image is prepared before text is located: scaled, and very wide images padded with rows of black.

    The rules are those of RapidOCR's `preprocess` and `maybe_add_letterbox`.

    Attributes:
        longest: the longer side is scaled down to this many pixels, and both sides to multiples of `multiple`.
        shortest: the shorter side is scaled up to this in the same way; images of a lower height get rows of black.
        widest: images with a larger ratio of width to height get rows of black.
        multiple: see `longest`.
    """

    longest: Side = 2000
    shortest: Side = 30
    widest: Annotated[float, Field(gt=0)] = 8
    multiple: Side = 32

    def view(self, image: np.ndarray) -> View:
        """The prepared image; points outside of the original image are moved to its edge."""
        size = image.shape[1::-1]
        if max(size) > self.longest:
            image = scaled(image, self.longest / max(image.shape[:2]), self.multiple)
        if min(image.shape[:2]) < self.shortest:
            image = scaled(image, self.shortest / min(image.shape[:2]), self.multiple)
        scale = np.array(size) / image.shape[1::-1]
        height, width = image.shape[:2]
        rows = 0
        if height <= self.shortest or width / height > self.widest:
            rows = abs(2 * max(int(width / self.widest), self.shortest) - height) // 2
            image = cv2.copyMakeBorder(image, rows, rows, 0, 0, cv2.BORDER_CONSTANT)
        return View(image, lambda points: np.clip((points - [0, rows]) * scale, 0, size))


def scaled(image: np.ndarray, ratio: float, multiple: int) -> np.ndarray:
    """An image scaled by `ratio`; see `scaled_size`."""
    height, width = scaled_size((image.shape[0], image.shape[1]), ratio, multiple)
    return cv2.resize(image, (width, height))


def scaled_size(size: tuple[int, int], ratio: float, multiple: int) -> tuple[int, int]:
    """Height and width times `ratio`, both rounded to a positive multiple of `multiple`."""
    height, width = (max(1, round(int(side * ratio) / multiple)) * multiple for side in size)
    if max(height, width) > LONGEST:
        raise InputError(
            f"the image is too narrow: it has {size[1]} x {size[0]} pixels",
            why=f"enlarged, so that its shorter side is long enough for the network, it has {width} x {height}",
            hints=[f"cut it into pieces; neither side may get longer than {LONGEST:,}"],
        )
    return height, width


class ScaledFit(Record):
    """The network is built for the size of the image, which is scaled up if it is small.

    Attributes:
        shortest: the shorter side is scaled up to this many pixels, never down.
        multiple: both sides are rounded to a multiple of this.
    """

    kind: Literal["scaled"]
    shortest: Side
    multiple: Side

    @property
    def one_size(self) -> bool:
        """Whether the network has the same size for all images."""
        return False

    def size(self, image: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the network's input for an image of this height and width."""
        return scaled_size(image, max(1.0, self.shortest / min(image)), self.multiple)

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The image stretched to the network's size."""
        return place(image, size, "fill")


class LineFit(Record):
    """The image is scaled to the network's height with its aspect ratio kept, and padded with 0 at the right.

    A longer line than the network takes is squeezed.

    Attributes:
        widths: of the networks that are built, whose input `length` is the used part of the width; the first one that
            is wide enough is used, and beyond the last one twice, four times, ... its width. Without them there is
            one, of the width in the network's entry.
        batch: how many lines, sorted by aspect ratio, share a width: that of the widest of them, or the width in the
            network's entry. PaddleOCR's networks give the same texts as elsewhere only if the same lines share a width.
    """

    kind: Literal["line"]
    widths: Annotated[list[Side], Field(min_length=1)] | None = None
    batch: Annotated[int, Field(gt=0)] = 1

    @property
    def one_size(self) -> bool:
        """Whether the network has the same size for all images."""
        return self.widths is None

    def lengths(self, images: Sequence[tuple[int, int]], network: tuple[int, int]) -> list[int]:
        """The used part of the input's width for each of several images of a height and a width.

        The order is that of numpy's default sort, as in RapidOCR: it decides which of equals share a batch.
        """
        ratios = np.array([width / height for height, width in images])
        order = np.argsort(ratios)
        found = [0] * len(images)
        for start in range(0, len(images), self.batch):
            together = order[start : start + self.batch]
            width = int(network[0] * max(network[1] / network[0], ratios[together].max()))
            for index in together:
                found[index] = width
        return found

    def width(self, length: int) -> int:
        """The width of the network for a length."""
        assert self.widths
        widths = sorted(self.widths)
        while widths[-1] < length:
            widths.append(2 * widths[-1])
        if length > LONGEST:
            raise InputError(
                "a line of text is too long",
                why=f"scaled to the height that the network takes it has {length:,} pixels; {LONGEST:,} are the most",
                hints=["cut the image into pieces"],
            )
        return next(each for each in widths if each >= length)

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The image scaled to the network's height, no wider than the network."""
        height, width = image.shape[:2]
        inner = min(size[1], ceil(size[0] * (width / height)))
        frame = Frame((height, width), size, (inner / width, size[0] / height))
        return cv2.resize(image, (inner, size[0])), frame


SizedFit = Annotated[ScaledFit | LineFit, Field(discriminator="kind")]

"""What is done to a whole image before text is looked for in it."""

from __future__ import annotations

from typing import Annotated

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.errors import InputError
from edgedeploy.vision.view import View

LONGEST = 1 << 14

Side = Annotated[int, Field(gt=0, le=LONGEST)]


class Page(Record):
    """Large images are scaled down, small ones up, and rows of black are put above and below very wide ones.

    The rules are those of RapidOCR's `preprocess` and `maybe_add_letterbox`.

    Attributes:
        longest: the longer side is scaled down to this many pixels, and both sides to multiples of `multiple`.
        shortest: the shorter side is scaled up to this in the same way. Lower images than this get rows of black.
        widest: images that are more than this many times as wide as high get rows of black.
        multiple: see `longest`.
    """

    longest: Side = 2000
    shortest: Side = 30
    widest: Annotated[float, Field(gt=0)] = 8
    multiple: Side = 32

    def view(self, image: np.ndarray) -> View:
        """An image as networks are shown it; places in it that lie outside of the image are moved to its edge."""
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
    """Height and width times `ratio`, both brought to the nearest multiple, of at least one."""
    height, width = (max(1, round(int(side * ratio) / multiple)) * multiple for side in size)
    if max(height, width) > LONGEST:
        raise InputError(
            f"the image is too narrow: it has {size[1]} x {size[0]} pixels",
            why=f"enlarged, so that its shorter side is long enough for the network, it has {width} x {height}",
            hints=[f"cut it into pieces; neither side may get longer than {LONGEST:,}"],
        )
    return height, width

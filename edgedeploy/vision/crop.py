"""The part of an image that a second network looks at."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.vision.results import Box


class Crop(Record):
    """How a box becomes the image for the next network: it keeps its centre.

    The unless-stated values are those of PFLD's example, camera.py of github.com/polarisZhao/PFLD-pytorch: a square
    of 1.1 times the longer side, filled up with black where it reaches out of the image.

    Attributes:
        margin: what the sides grow by, as a fraction of them.
        square: whether both sides become as long as the longer one, so that faces are not stretched.
    """

    kind: Literal["box"] = "box"
    margin: Annotated[float, Field(ge=0, le=4)] = 0.1
    square: bool = True

    def cut(self, image: np.ndarray, box: Box) -> tuple[np.ndarray, tuple[int, int]]:
        """The crop around `box` (x1, y1, x2, y2), of at least one pixel, and where its top left lies.

        Args:
            image: uint8, height x width x 3.
            box: in pixels of the image; what lies outside of the image does not count.

        Returns:
            uint8, rows x columns x 3, and x and y in pixels of the image, negative where it reaches out of it.
        """
        size = np.array(image.shape[1::-1])
        corners = np.clip(np.nan_to_num(np.array(box, np.float64).reshape(2, 2)), 0, size)
        sides = np.maximum(corners[1] - corners[0], 0)
        if self.square:
            sides[:] = sides.max()
        extent = np.maximum(np.rint(sides * (1 + self.margin)), 1).astype(int)
        start = np.rint(corners.mean(axis=0) - extent / 2).astype(int)
        first, last = np.clip(start, 0, size), np.clip(start + extent, 0, size)
        crop = np.zeros((extent[1], extent[0], 3), np.uint8)
        to, until = first - start, last - start
        crop[to[1] : until[1], to[0] : until[0]] = image[first[1] : last[1], first[0] : last[0]]
        return crop, (int(start[0]), int(start[1]))

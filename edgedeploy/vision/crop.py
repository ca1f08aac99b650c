"""The part of an image that the next network looks at."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from edgedeploy.documents import Record
from edgedeploy.vision.decoder import Fraction
from edgedeploy.vision.quadrilateral import from_upright, warp_quadrilateral
from edgedeploy.vision.rectangle import RotatedCrop
from edgedeploy.vision.results import Box, Detection
from edgedeploy.vision.view import View


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

    def view(self, image: np.ndarray, found: Detection) -> View:
        """The crop around what was found."""
        assert found.box is not None  # the demo's file says that the decoder gives boxes
        pixels, start = self.cut(image, found.box)
        return View(pixels, lambda points: points + start)

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


class QuadrilateralCrop(Record):
    """Four corners are brought to an upright image, as PaddleOCR's get_rotate_crop_image does it.

    Attributes:
        tall: an image that is at least this many times as high as wide is turned a quarter to the left.
    """

    kind: Literal["quadrilateral"]
    tall: Annotated[float, Field(gt=0)] = 1.5

    def view(self, image: np.ndarray, found: Detection) -> View:
        """What lies between the corners of what was found, of at least one pixel."""
        assert found.outline is not None  # the demo's file says that the decoder gives boxes
        corners = np.array(found.outline, np.float32)
        sides = np.linalg.norm(np.roll(corners, -1, axis=0) - corners, axis=1)
        size = max(1, int(sides[::2].max())), max(1, int(sides[1::2].max()))
        pixels = warp_quadrilateral(image, corners, size, interpolation="cubic")
        if size[1] / size[0] < self.tall:
            return View(pixels, lambda points: from_upright(points, corners, size), upright=False)
        return View(
            np.ascontiguousarray(np.rot90(pixels)),
            lambda points: from_upright(np.stack([size[0] - points[..., 1], points[..., 0]], axis=-1), corners, size),
            upright=False,
        )


class TurnCrop(Record):
    """All of the image that was looked at; the other way up if it was found to be upside down.

    Attributes:
        class_id: the class of images that are upside down.
        threshold: how sure the network must be of that, and a little more.
    """

    kind: Literal["turn"]
    class_id: Annotated[int, Field(ge=0)]
    threshold: Fraction

    def view(self, image: np.ndarray, found: Detection) -> View:
        """The image, or the image turned by half a circle."""
        if found.class_id != self.class_id or (found.score or 0) <= self.threshold:
            return View(image, lambda points: points)
        size = image.shape[1::-1]
        return View(np.ascontiguousarray(image[::-1, ::-1]), lambda points: size - points)


def _named(crop: Any) -> Any:
    return {"kind": "box", **crop} if isinstance(crop, dict) else crop


AnyCrop = Annotated[
    Crop | QuadrilateralCrop | RotatedCrop | TurnCrop, Field(discriminator="kind"), BeforeValidator(_named)
]

"""Crops: the part of an image that the next network sees; `docs/data-files.md` describes their fields."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from edgedeploy.base.documents import Record
from edgedeploy.vision.decoder import Fraction
from edgedeploy.vision.geometry import Frame, from_upright, warp_quadrilateral
from edgedeploy.vision.results import Box, Detection, View

Index = Annotated[int, Field(ge=0, lt=1 << 16)]
Indices = Annotated[list[Index], Field(min_length=1)]
_Factor = Annotated[float, Field(gt=0, le=16)]
_Shift = Annotated[float, Field(ge=-4, le=4)]


@dataclass(frozen=True)
class TurnedFrame(Frame):
    """How the part of an image between four corners, clockwise from the top left of a network's input, lies there."""

    corners: tuple[tuple[float, float], ...] = ()

    def to_image(self, points: np.ndarray) -> np.ndarray:
        """Points in pixels of the network (..., 2) as pixels of the image, in the same dtype."""
        size = (self.network[1], self.network[0])
        return from_upright(points, np.array(self.corners), size).astype(points.dtype)


@dataclass(frozen=True)
class Rectangle:
    """A rectangle in pixels of the image: `size` is width and height, `rotation` in radians, clockwise."""

    centre: tuple[float, float]
    size: tuple[float, float]
    rotation: float = 0.0

    @property
    def corners(self) -> np.ndarray:
        """4 x 2, float64, clockwise from the top left of the upright rectangle."""
        half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * np.array(self.size) / 2
        return half @ _turn(self.rotation).T + np.array(self.centre)

    def place(self, image: np.ndarray, size: tuple[int, int]) -> tuple[np.ndarray, Frame]:
        """The rectangle as an upright image of `size` (height, width), and its frame; the border is repeated."""
        corners = self.corners
        scale = (size[1] / self.size[0], size[0] / self.size[1])
        frame = TurnedFrame(image.shape[:2], size, scale, corners=tuple((float(x), float(y)) for x, y in corners))
        return warp_quadrilateral(image, corners, (size[1], size[0])), frame


class Upright(Record):
    """The direction from one place to another, each the mean of some of a result's points."""

    start: Indices
    end: Indices
    degrees: Annotated[float, Field(ge=-360, le=360)] = 0.0  # in an upright crop, from the x axis, counterclockwise

    def rotation(self, points: np.ndarray) -> float:
        """How far the points (n x 2) are turned, in radians, clockwise, from -pi to pi."""
        x, y = points[self.end].mean(axis=0) - points[self.start].mean(axis=0)
        angle = math.radians(self.degrees) - math.atan2(-y, x)
        return angle - 2 * math.pi * math.floor((angle + math.pi) / (2 * math.pi))


class RotatedCrop(Record):
    """A rectangle at any angle around a result, such as a face, a hand or a person, so that the crop is upright.

    As in MediaPipe's calculators (github.com/google-ai-edge/mediapipe): DetectionsToRects, AlignmentPointsRects,
    HandLandmarksToRect and RectTransformation; the image is cropped like ImageToTensor.
    """

    kind: Literal["rotated"]
    around: Literal["box", "points", "turned", "circle"] = "box"
    of: Indices | None = None
    upright: Upright | None = None
    scale: _Factor = 1.0
    shift: tuple[_Shift, _Shift] = (0.0, 0.0)
    square: bool = True

    @model_validator(mode="after")
    def _circles_have_a_direction(self) -> RotatedCrop:
        if self.around == "circle" and not self.upright:
            raise ValueError("a circle needs upright: its start is the centre, its end lies on the circle")
        return self

    def rectangle(self, found: Detection) -> Rectangle | None:
        """The rectangle of a result, or None if it is empty; a result's `guides`, if any, replace its points."""
        points = np.array(found.guides or found.points, np.float64).reshape(-1, 2)
        if not self._has_all(points, found):
            return None
        rotation = self.upright.rotation(points) if self.upright else 0.0
        centre, size = self._extent(points, found, rotation)
        turn = _turn(rotation)
        centre = centre + turn @ (size * np.array(self.shift))
        if self.square:
            size = np.full(2, size.max())
        size = size * self.scale
        if not (np.isfinite(centre).all() and np.isfinite(size).all() and (size > 0).all()):
            return None
        return Rectangle((float(centre[0]), float(centre[1])), (float(size[0]), float(size[1])), rotation)

    def _has_all(self, points: np.ndarray, found: Detection) -> bool:
        needed = [*(self.of or [0] if self.around in ("points", "turned") else [])]
        if self.upright:
            needed += self.upright.start + self.upright.end
        return max(needed, default=-1) < len(points) and not (self.around == "box" and found.box is None)

    def _extent(self, points: np.ndarray, found: Detection, rotation: float) -> tuple[np.ndarray, np.ndarray]:
        """Centre and size before they are changed."""
        if self.around == "box":
            return _middle(np.array(found.box).reshape(2, 2))
        if self.around == "circle":
            assert self.upright is not None
            centre, rim = points[self.upright.start].mean(axis=0), points[self.upright.end].mean(axis=0)
            return centre, np.full(2, 2 * np.hypot(*(rim - centre)))
        enclosed = points if self.of is None else points[self.of]
        if self.around == "points":
            return _middle(enclosed)
        turn = _turn(rotation)
        centre, size = _middle(enclosed @ turn)
        return turn @ centre, size


def overlap(first: Rectangle, second: Rectangle) -> float:
    """Intersection over union of two rectangles, as if both were upright, like in MediaPipe's Association."""
    low, high = (
        [np.array(each.centre) + side * np.array(each.size) / 2 for each in (first, second)] for side in (-1, 1)
    )
    intersection = float(np.prod(np.maximum(np.minimum(*high) - np.maximum(*low), 0)))
    return intersection / (float(np.prod(first.size)) + float(np.prod(second.size)) - intersection)


def _middle(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and size of the box around points."""
    low, high = points.min(axis=0), points.max(axis=0)
    return (low + high) / 2, high - low


def _turn(rotation: float) -> np.ndarray:
    """The matrix that turns clockwise, with y down."""
    cos, sin = math.cos(rotation), math.sin(rotation)
    return np.array([[cos, -sin], [sin, cos]])


class Crop(Record):
    """A crop around a box with the same centre, filled up with black outside of the image.

    The defaults are those of PFLD's example, camera.py of github.com/polarisZhao/PFLD-pytorch: a square of 1.1 times
    the longer side.
    """

    kind: Literal["box"] = "box"
    margin: Annotated[float, Field(ge=0, le=4)] = 0.1
    square: bool = True

    def view(self, image: np.ndarray, found: Detection) -> View:
        """The crop around a result."""
        assert found.box is not None  # checked in the demo's file: the decoder gives boxes
        pixels, start = self.cut(image, found.box)
        return View(pixels, lambda points: points + start)

    def cut(self, image: np.ndarray, box: Box) -> tuple[np.ndarray, tuple[int, int]]:
        """The crop around `box` (x1, y1, x2, y2), of at least one pixel, and x and y of its top left in the image.

        The box is clipped to the image first, but the crop may extend beyond it: x and y may be negative.
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
    """An upright image of the part between four corners, like PaddleOCR's get_rotate_crop_image."""

    kind: Literal["quadrilateral"]
    tall: Annotated[float, Field(gt=0)] = 1.5

    def view(self, image: np.ndarray, found: Detection) -> View:
        """The part between the corners of a result, of at least one pixel."""
        assert found.outline is not None  # checked in the demo's file: the decoder gives boxes
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
    """The whole image, turned by 180 degrees if it is upside down."""

    kind: Literal["turn"]
    class_id: Annotated[int, Field(ge=0)]
    threshold: Fraction

    def view(self, image: np.ndarray, found: Detection) -> View:
        """The image, perhaps turned by 180 degrees."""
        if found.class_id != self.class_id or (found.score or 0) <= self.threshold:
            return View(image, lambda points: points)
        size = image.shape[1::-1]
        return View(np.ascontiguousarray(image[::-1, ::-1]), lambda points: size - points)


def _named(crop: Any) -> Any:
    return {"kind": "box", **crop} if isinstance(crop, dict) else crop


AnyCrop = Annotated[
    Crop | QuadrilateralCrop | RotatedCrop | TurnCrop, Field(discriminator="kind"), BeforeValidator(_named)
]

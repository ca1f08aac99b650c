"""Results: what a network found in an image, and how they move between an image and views of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field

from edgedeploy.base.documents import Record

Box = tuple[float, float, float, float]
Point = tuple[float, float]

OVERLAP = 0.5  # boxes with at least this intersection over union show the same object, as in PASCAL VOC and COCO
SAME = 0.95  # and those with this one hardly differ

# Left out of `Detection.to_dict` if empty.
_SPECIAL = {"corners", "depths", "mask", "point_scores", "surface", "tracked"}


class Mask(Record):
    """The pixels of an image that belong to something, in COCO's uncompressed run-length encoding."""

    size: tuple[int, int]  # height and width of the image in pixels
    # Lengths of runs, column after column from the top, in turn of pixels outside and inside of the mask. The first may
    # be 0.
    counts: list[int] = Field(repr=False)

    @staticmethod
    def of(region: np.ndarray, corner: tuple[int, int], size: tuple[int, int]) -> Mask:
        """The mask of a part of an image of `size` (height, width), which contains all of it.

        `region`, rows x columns, is true inside of the mask; `corner` are x and y of its top left in the image.
        """
        columns = np.zeros((region.shape[1], size[0]), np.int8)
        columns[:, corner[1] : corner[1] + region.shape[0]] = np.asarray(region, bool).T
        borders = np.flatnonzero(np.diff(columns.ravel(), prepend=0, append=0)) + corner[0] * size[0]
        counts = np.diff(borders, prepend=0, append=size[0] * size[1]).tolist()
        return Mask(size=size, counts=counts if counts[-1] else counts[:-1])

    def pixels(self) -> np.ndarray:
        """Bool, height x width, true inside of the mask."""
        belongs = np.arange(len(self.counts)) % 2 == 1
        return np.repeat(belongs, self.counts).reshape(self.size[::-1]).T

    @property
    def area(self) -> int:
        """The number of pixels inside."""
        return sum(self.counts[1::2])


class Surface(Record):
    """A number for each pixel of an image, such as its depth, in the network's own unit."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    minimum: float  # this and the next two are of the finite values
    median: float
    maximum: float
    values: np.ndarray = Field(exclude=True, repr=False)  # float32, height x width; not printed by `--json`


class Detection(Record):
    """One thing found: a class of the whole image, an object in a box, a set of points, the pixels of a class."""

    label: str  # the class's name, or its number if the model has no names
    class_id: int  # the class's number, from 0
    score: float | None = None  # the network's own confidence, mostly a probability; absent if it gives none
    box: Box | None = None  # x1, y1, x2, y2 in pixels of the image; absent for results without a place
    # x, y of the corners around a box that may be turned; `box` encloses them
    corners: tuple[Point, Point, Point, Point] | None = None
    points: tuple[Point, ...] = ()  # x, y of each landmark in pixels of the image
    point_scores: tuple[float, ...] = ()  # the confidence or visibility of each landmark, if the network gives it
    # How far each point is behind the middle of all, in pixels of the image; absent if unknown
    depths: tuple[float, ...] = ()
    # Pairs of landmarks that a line joins in drawings; not printed by `--json`
    edges: tuple[tuple[int, int], ...] = Field(default=(), exclude=True, repr=False)
    mask: Mask | None = None  # its pixels
    surface: Surface | None = None  # a number for each pixel of the image
    # Points that place the crop of the next image, if they are not among `points`; not printed by `--json`
    guides: tuple[Point, ...] = Field(default=(), exclude=True, repr=False)
    tracked: bool = False  # whether it follows from the image before, instead of being detected in this one

    @property
    def outline(self) -> tuple[Point, Point, Point, Point] | None:
        """Its corners, also of a box that is not turned."""
        if self.corners or not self.box:
            return self.corners
        x1, y1, x2, y2 = self.box
        return ((x1, y1), (x2, y1), (x2, y2), (x1, y2))

    def to_dict(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return self.model_dump(mode="json", exclude={name for name in _SPECIAL if not getattr(self, name)})

    as_dict = to_dict  # the old name


def label_of(labels: list[str], class_id: int) -> str:
    """The class's name, or its number if `labels` has no name for it."""
    return labels[class_id] if class_id < len(labels) else str(class_id)


def around(corners: np.ndarray) -> tuple[Box, tuple[Point, Point, Point, Point]]:
    """The box around four corners (4 x 2), and the corners, as in `Detection`."""
    (x1, y1), (x2, y2) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    a, b, c, d = ((float(x), float(y)) for x, y in corners)
    return (x1, y1, x2, y2), (a, b, c, d)


@dataclass(frozen=True)
class View:
    """An image (uint8, height x width x 3, B G R) that was made from another one, such as a crop.

    `to_image` maps points in its pixels, ... x 2, to pixels of the original image, where the sides of boxes stay along
    the axes if it is `upright`.
    """

    pixels: np.ndarray
    to_image: Callable[[np.ndarray], np.ndarray]
    upright: bool = True

    def moved(self, detection: Detection) -> Detection:
        """A result in its pixels as one in pixels of the original image."""
        there: dict[str, object] = {"points": _moved(self.to_image, detection.points)}
        if detection.outline:
            box, turned = around(np.array(_moved(self.to_image, detection.outline)))
            there |= {"box": box, "corners": None if self.upright and not detection.corners else turned}
        return detection.model_copy(update=there)


def _moved(move: Callable[[np.ndarray], np.ndarray], points: tuple[Point, ...]) -> tuple[Point, ...]:
    return tuple((float(x), float(y)) for x, y in move(np.array(points, np.float64).reshape(-1, 2)))


def same_results(one: Sequence[Detection], other: Sequence[Detection]) -> bool:
    """Whether two lists have the same classes, in the same order, and the same boxes, which overlap by `SAME`."""
    classes = [[(each.class_id, each.label) for each in results if not each.box] for results in (one, other)]
    boxes, others = ([each for each in results if each.box] for results in (one, other))
    return classes[0] == classes[1] and len(boxes) == len(others) == matches(boxes, others, SAME)


def matches(one: Sequence[Detection], other: Sequence[Detection], least: float = OVERLAP) -> int:
    """How many boxes of one list have a partner of the same class in the other, best scores first."""
    free = [(each.class_id, each.box) for each in other if each.box]
    count = 0
    for found in sorted((each for each in one if each.box), key=lambda each: -(each.score or 0)):
        assert found.box
        best = best_match(found.box, [box for class_id, box in free if class_id == found.class_id], least)
        if best is not None:
            free.remove((found.class_id, best))
            count += 1
    return count


def best_match(box: Box, others: Iterable[Box], least: float = OVERLAP) -> Box | None:
    """The box that overlaps one the most, by `least` or more."""
    best = max(others, key=lambda other: overlap(box, other), default=None)
    return best if best is not None and overlap(box, best) >= least else None


def intersection(one: Box, other: Box) -> float:
    """The area of the intersection of two boxes."""
    width, height = (min(one[axis + 2], other[axis + 2]) - max(one[axis], other[axis]) for axis in (0, 1))
    return max(width, 0.0) * max(height, 0.0)


def area(box: Box) -> float:
    """The area of a box."""
    return (box[2] - box[0]) * (box[3] - box[1])


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes."""
    common = intersection(one, other)
    union = area(one) + area(other) - common
    return common / union if union > 0 else 0.0

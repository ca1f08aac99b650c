"""What a network found in an image."""

from __future__ import annotations

import numpy as np

from edgedeploy.documents import Record


class Detection(Record):
    """One thing found: a class of the whole image, an object in a box, or a set of points.

    Attributes:
        label: the class's name; its number where the model has no names.
        class_id: the class's number, from 0.
        score: how sure the network is, as it gives it (a probability, mostly); absent where it gives none.
        box: x1, y1, x2, y2 in pixels of the image; absent for results without a place.
        points: x, y of each landmark in pixels of the image.
        corners: x, y of the four corners of what does not lie upright, clockwise from its top left as it is read, in
            pixels of the image; `box` is the smallest upright one around it then. Empty for what lies upright.
    """

    label: str
    class_id: int
    score: float | None = None
    box: tuple[float, float, float, float] | None = None
    points: tuple[tuple[float, float], ...] = ()
    corners: tuple[tuple[float, float], ...] = ()


def label_of(labels: list[str], class_id: int) -> str:
    """The class's name, or its number if `labels` does not reach that far."""
    return labels[class_id] if class_id < len(labels) else str(class_id)


def bounding_box(points: np.ndarray) -> tuple[float, float, float, float]:
    """The smallest upright box, x1, y1, x2, y2, around points, n x 2."""
    (x1, y1), (x2, y2) = points.min(axis=0), points.max(axis=0)
    return float(x1), float(y1), float(x2), float(y2)

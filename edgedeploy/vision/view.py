"""A part of an image, or all of it in another form, as the next network is shown it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgedeploy.vision.results import Detection, Point, around


@dataclass(frozen=True)
class View:
    """An image that was made of another one.

    Attributes:
        pixels: uint8, height x width x 3, B G R.
        to_image: points in its pixels, ... x 2, as pixels of the image that it was made of.
        upright: whether boxes in it are boxes there, with sides along the axes.
    """

    pixels: np.ndarray
    to_image: Callable[[np.ndarray], np.ndarray]
    upright: bool = True

    def moved(self, detection: Detection) -> Detection:
        """A result in its pixels as one in pixels of the image that it was made of."""
        there: dict[str, object] = {"points": _moved(self.to_image, detection.points)}
        if detection.outline:
            box, turned = around(np.array(_moved(self.to_image, detection.outline)))
            there |= {"box": box, "corners": None if self.upright and not detection.corners else turned}
        return detection.model_copy(update=there)


def _moved(move: Callable[[np.ndarray], np.ndarray], points: tuple[Point, ...]) -> tuple[Point, ...]:
    return tuple((float(x), float(y)) for x, y in move(np.array(points, np.float64).reshape(-1, 2)))

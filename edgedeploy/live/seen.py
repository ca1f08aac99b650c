"""One image that was looked at, as a page shows it: drawn and written as JPEG when the first browser asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from time import perf_counter

import cv2
import numpy as np

from edgedeploy.errors import OutputError

# The longer side of what browsers are sent all the time, in pixels. What they save has the image's own size.
_STREAMED = 1280
_QUALITY = 85


class Seen:
    """An image with its results and times. Any thread may ask for pictures of it; it is drawn once.

    Attributes:
        index: which image of the source it is, from 0.
        results: one line for each result.
        times_ms: how long each part took, in milliseconds, by the part's name.
        drawing_ms: how long drawing took; None as long as nobody has asked for a picture.
    """

    def __init__(
        self, index: int, draw: Callable[[], np.ndarray], results: Sequence[str], times_ms: Mapping[str, float]
    ) -> None:
        """`draw` gives the image with the results on it: uint8, height x width x 3, B G R."""
        self.index, self.results, self.times_ms = index, results, times_ms
        self.drawing_ms: float | None = None
        self._draw = draw
        self._lock = Lock()
        self._drawn: np.ndarray | None = None
        self._streamed: bytes | None = None

    def streamed(self) -> bytes:
        """The drawn image as JPEG, no larger than a browser needs."""
        with self._lock:
            if self._streamed is None:
                started = perf_counter()
                image = self._image()
                scale = _STREAMED / max(image.shape[:2])
                if scale < 1:
                    image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
                self._streamed = _jpeg(image)
                self.drawing_ms = 1e3 * (perf_counter() - started)
            return self._streamed

    def whole(self) -> bytes:
        """The same in the image's own size."""
        with self._lock:
            return _jpeg(self._image())

    def _image(self) -> np.ndarray:
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn


def _jpeg(image: np.ndarray) -> bytes:
    done, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise OutputError(f"an image of {image.shape[1]}x{image.shape[0]} pixels cannot be written as JPEG")
    return encoded.tobytes()

"""Results drawn onto an image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import cv2
import numpy as np

from edgedeploy.vision.results import Detection

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_GREEN, _YELLOW, _BLACK = (0, 200, 0), (0, 220, 255), (0, 0, 0)


# A point that is less likely to be seen is not drawn, nor are lines to it; as MediaPipe's drawing_utils.
_LEAST_VISIBILITY = 0.5


def draw(image: np.ndarray, detections: Sequence[Detection], lines: Sequence[Sequence[int]] = ()) -> np.ndarray:
    """A copy of `image` with boxes, points and labels; results without a place are listed at the top left.

    Lines and letters grow with the image: one pixel wide up to 640 pixels of its longer side.

    Args:
        lines: chains of points, by their indices, that are joined.
    """
    canvas = image.copy()
    unit = max(1, round(max(image.shape[:2]) / 640))
    limit = max(image.shape[:2])
    line = 0
    for detection in detections:
        if detection.box:
            x1, y1, x2, y2 = (_pixel(value, limit) for value in detection.box)
            cv2.rectangle(canvas, (x1, y1), (x2, y2), _GREEN, 2 * unit)
            _write(canvas, _caption(detection), (x1, y1), unit)
        elif not detection.points:
            _write(canvas, _caption(detection), (0, (line + 1) * 18 * unit), unit)
            line += 1
        points = _seen(detection, limit)
        for chain in lines:
            for start, end in pairwise(chain):
                if start in points and end in points:
                    cv2.line(canvas, points[start], points[end], _GREEN, unit, cv2.LINE_AA)
        for point in points.values():
            cv2.circle(canvas, point, unit, _YELLOW, cv2.FILLED)
    return canvas


def _seen(detection: Detection, limit: int) -> dict[int, tuple[int, int]]:
    """The pixels of the points that can be seen, by index."""
    visibility = detection.visibility or (1.0,) * len(detection.points)
    return {
        index: (_pixel(x, limit), _pixel(y, limit))
        for index, ((x, y), seen) in enumerate(zip(detection.points, visibility, strict=True))
        if seen >= _LEAST_VISIBILITY
    }


def _pixel(value: float, limit: int) -> int:
    """A coordinate that OpenCV takes: what lies outside of the image, or is infinite, stays just outside."""
    return round(float(np.clip(np.nan_to_num(value), -1, limit)))


def _caption(detection: Detection) -> str:
    return detection.label if detection.score is None else f"{detection.label} {detection.score:.2f}"


def _write(canvas: np.ndarray, text: str, corner: tuple[int, int], unit: int) -> None:
    """Write `text` on a green ground whose bottom left is `corner`, moved so far that it can be read."""
    scale = 0.45 * unit
    (width, height), below = cv2.getTextSize(text, _FONT, scale, unit)
    x = max(0, min(corner[0], canvas.shape[1] - width))
    y = max(corner[1], height + below)
    cv2.rectangle(canvas, (x, y - height - below), (x + width, y), _GREEN, cv2.FILLED)
    cv2.putText(canvas, text, (x, y - below), _FONT, scale, _BLACK, unit, cv2.LINE_AA)

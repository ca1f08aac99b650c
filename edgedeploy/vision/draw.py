"""Results drawn onto an image."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from edgedeploy.vision.results import Detection, Surface

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_GREEN, _YELLOW, _BLACK = (0, 200, 0), (0, 220, 255), (0, 0, 0)
_LOWEST_SCORE = 0.25  # of a point that is drawn, as Ultralytics does it


def draw(image: np.ndarray, detections: Sequence[Detection]) -> np.ndarray:
    """A copy of `image` with boxes, masks, points and labels; results without a place are listed at the top left.

    Masks are half-transparent: each result has a colour of its own, each class where results are classes of pixels. A
    surface takes the image's place, its smallest value dark and its largest bright. Of points, those whose scores are
    low are left out, with their lines. Lines and letters grow with the image: one pixel wide up to 640 pixels of its
    longer side.
    """
    canvas = image.copy()
    for number, detection in enumerate(detections):
        if detection.surface:
            canvas = _coloured(detection.surface)
        if detection.mask:
            colour = _palette(1 + (number if detection.box else detection.class_id))
            _blend(canvas, detection.mask.pixels(), colour)
    unit = max(1, round(max(image.shape[:2]) / 640))
    limit = max(image.shape[:2])
    line = 0
    for detection in detections:
        if detection.box:
            x1, y1, x2, y2 = (_pixel(value, limit) for value in detection.box)
            if detection.corners:
                turned = [[_pixel(value, limit) for value in corner] for corner in detection.corners]
                cv2.polylines(canvas, [np.array(turned)], True, _GREEN, 2 * unit)
            else:
                cv2.rectangle(canvas, (x1, y1), (x2, y2), _GREEN, 2 * unit)
            _write(canvas, caption(detection), (x1, y1), unit)
        elif not detection.points:
            _write(canvas, caption(detection), (0, (line + 1) * 18 * unit), unit)
            line += 1
        _draw_points(canvas, detection, unit, limit)
    return canvas


def _draw_points(canvas: np.ndarray, detection: Detection, unit: int, limit: int) -> None:
    """Points over the lines that join them."""
    scores = detection.point_scores or (1.0,) * len(detection.points)
    places = {
        number: (_pixel(x, limit), _pixel(y, limit))
        for number, ((x, y), score) in enumerate(zip(detection.points, scores, strict=True))
        if score >= _LOWEST_SCORE
    }
    for first, second in detection.edges:
        if first in places and second in places:
            cv2.line(canvas, places[first], places[second], _GREEN, unit)
    for place in places.values():
        cv2.circle(canvas, place, unit, _YELLOW, cv2.FILLED)


def _palette(number: int) -> tuple[int, int, int]:
    """Colours that are far apart, B, G, R: those of the PASCAL VOC development kit. Number 0 is black.

    Of a number's bits the first, fourth, ... make red, the second, fifth, ... green, the third, sixth, ... blue, the
    lowest of them the highest of the colour.
    """
    red, green, blue = (
        sum((number >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(8)) for channel in range(3)
    )
    return blue, green, red


def _blend(canvas: np.ndarray, where: np.ndarray, colour: tuple[int, int, int]) -> None:
    """Half of the canvas and half of a colour, rounded down."""
    canvas[where] = ((canvas[where].astype(np.uint16) + np.array(colour, np.uint16)) // 2).astype(np.uint8)


def _coloured(surface: Surface) -> np.ndarray:
    """Values as Matplotlib's inferno, from the smallest to the largest; where there is none, as the smallest."""
    span = max(surface.maximum - surface.minimum, np.finfo(np.float32).tiny)
    levels = np.rint(255 * np.clip((surface.values - surface.minimum) / span, 0, 1))
    return cv2.applyColorMap(np.nan_to_num(levels).astype(np.uint8), cv2.COLORMAP_INFERNO)


def _pixel(value: float, limit: int) -> int:
    """A coordinate that OpenCV takes: what lies outside of the image, or is infinite, stays just outside."""
    return round(float(np.clip(np.nan_to_num(value), -1, limit)))


def caption(detection: Detection) -> str:
    """What is written beside a result: its label, and its score if it has one."""
    return detection.label if detection.score is None else f"{detection.label} {detection.score:.2f}"


def _write(canvas: np.ndarray, text: str, corner: tuple[int, int], unit: int) -> None:
    """Write `text` on a green ground whose bottom left is `corner`, moved so far that it can be read."""
    scale = 0.45 * unit
    (width, height), below = cv2.getTextSize(text, _FONT, scale, unit)
    x = max(0, min(corner[0], canvas.shape[1] - width))
    y = max(corner[1], height + below)
    cv2.rectangle(canvas, (x, y - height - below), (x + width, y), _GREEN, cv2.FILLED)
    cv2.putText(canvas, text, (x, y - below), _FONT, scale, _BLACK, unit, cv2.LINE_AA)

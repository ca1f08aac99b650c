"""Results drawn onto an image."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from edgedeploy.vision.results import Detection, Mask, Surface, View, intersection

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_GREEN, _YELLOW, _BLACK, _WHITE = (0, 200, 0), (0, 220, 255), (0, 0, 0), (255, 255, 255)
_SMALL = 320  # images whose longer side has fewer pixels are enlarged: letters would hide them
_LOWEST_SCORE = 0.25  # of a point that is drawn, as in Ultralytics
_MANY_POINTS = 30  # more points get smaller dots

# Left, top, right, bottom.
_Area = tuple[int, int, int, int]


def draw_enlarged(image: np.ndarray, detections: Sequence[Detection]) -> np.ndarray:
    """As `draw`; an image whose longer side has less than 320 pixels is enlarged by a whole factor, pixel by pixel."""
    factor = -(-_SMALL // max(image.shape[:2]))
    if factor == 1:
        return draw(image, detections)
    small = View(image, lambda points: points * factor)
    return draw(_repeated(image, factor), [_enlarged(small.moved(each), factor) for each in detections])


def draw(image: np.ndarray, detections: Sequence[Detection]) -> np.ndarray:
    """A copy of `image` with boxes, masks, points and labels; results without a place are listed at the top left.

    Boxes have a colour for each class. Masks are half-transparent, with a colour for each result, or for each class if
    results are classes of pixels. A surface replaces the image, its smallest value dark and its largest bright. Points
    with low scores are left out, with their lines. Lines and letters grow with the image: one pixel wide up to 640
    pixels of its longer side.
    """
    canvas = image.copy()
    for number, detection in enumerate(detections):
        if detection.surface:
            canvas = _coloured(detection.surface)
        if detection.mask:
            colour = _palette(1 + (number if detection.box else detection.class_id))
            where = detection.mask.pixels()  # half canvas, half colour, rounded down
            canvas[where] = ((canvas[where].astype(np.uint16) + np.array(colour, np.uint16)) // 2).astype(np.uint8)
    unit = max(1, round(max(image.shape[:2]) / 640))
    limit = max(image.shape[:2])
    boxes: list[_Area] = []
    for detection in detections:
        colour = class_colour(detection.class_id)
        if detection.box:
            x1, y1, x2, y2 = (_pixel(value, limit) for value in detection.box)
            if detection.corners:
                turned = [[_pixel(value, limit) for value in corner] for corner in detection.corners]
                cv2.polylines(canvas, [np.array(turned)], True, colour, 2 * unit)
            else:
                cv2.rectangle(canvas, (x1, y1), (x2, y2), colour, 2 * unit)
            boxes.append((x1, y1, x2, y2))
        _draw_points(canvas, detection, unit, limit)
    line, labels = 0, list[_Area]()
    for detection in detections:
        text, colour = caption(detection), class_colour(detection.class_id)
        if detection.box:
            number = len(labels)
            others = boxes[:number] + boxes[number + 1 :]
            labels.append(_label_area(canvas, text, boxes[number], labels, others, unit))
            _write(canvas, text, labels[-1], unit, colour)
        elif not detection.points:
            line += 1
            _write(canvas, text, _area_of(canvas, text, (0, line * 18 * unit), unit), unit, colour)
    return canvas


def _label_area(
    canvas: np.ndarray, text: str, box: _Area, labels: Sequence[_Area], others: Sequence[_Area], unit: int
) -> _Area:
    """Where a label hides the least of other labels, then of other boxes: on its box, below it, or next to it."""
    left, top, right, bottom = box
    x1, y1, x2, y2 = _area_of(canvas, text, (0, 0), unit)
    width, height = x2 - x1, y2 - y1
    corners = [(left, top), (left, bottom + height), (right, top + height), (left - width, top + height)]
    areas = [_area_of(canvas, text, corner, unit) for corner in corners]
    return min(areas, key=lambda area: [sum(intersection(area, each) for each in of) for of in (labels, others)])


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
    radius = unit if len(places) > _MANY_POINTS else 2 * unit
    for size, colour in ((radius + unit, _BLACK), (radius, _YELLOW)):
        for place in places.values():
            cv2.circle(canvas, place, size, colour, cv2.FILLED)


def class_colour(class_id: int) -> tuple[int, int, int]:
    """The colour of a class, B, G, R: hues a golden angle apart, from green on."""
    hue = round(60 + 180 * 0.381966 * class_id) % 180  # of OpenCV's 180
    [[[blue, green, red]]] = cv2.cvtColor(np.array([[[hue, 255, 200]]], np.uint8), cv2.COLOR_HSV2BGR).tolist()
    return blue, green, red


def _repeated(pixels: np.ndarray, factor: int) -> np.ndarray:
    return pixels.repeat(factor, axis=0).repeat(factor, axis=1)


def _enlarged(detection: Detection, factor: int) -> Detection:
    """A result with its pixels repeated."""
    mask, surface = detection.mask, detection.surface
    if mask:
        mask = Mask.of(_repeated(mask.pixels(), factor), (0, 0), (mask.size[0] * factor, mask.size[1] * factor))
    if surface:
        surface = surface.model_copy(update={"values": _repeated(surface.values, factor)})
    return detection.model_copy(update={"mask": mask, "surface": surface})


def _palette(number: int) -> tuple[int, int, int]:
    """Distinct colours, B, G, R: those of the PASCAL VOC development kit. Number 0 is black."""
    red, green, blue = (
        sum((number >> (3 * bit + channel) & 1) << (7 - bit) for bit in range(8)) for channel in range(3)
    )
    return blue, green, red


def _coloured(surface: Surface) -> np.ndarray:
    """Values in Matplotlib's inferno, from the smallest to the largest; NaN like the smallest."""
    span = max(surface.maximum - surface.minimum, np.finfo(np.float32).tiny)
    levels = np.rint(255 * np.clip((surface.values - surface.minimum) / span, 0, 1))
    return cv2.applyColorMap(np.nan_to_num(levels).astype(np.uint8), cv2.COLORMAP_INFERNO)


def _pixel(value: float, limit: int) -> int:
    """A coordinate for OpenCV: those outside of the image, or infinite, stay just outside."""
    return round(float(np.clip(np.nan_to_num(value), -1, limit)))


def caption(detection: Detection) -> str:
    """The label of a result, and its score if it has one."""
    return detection.label if detection.score is None else f"{detection.label} {detection.score:.2f}"


def _area_of(canvas: np.ndarray, text: str, corner: tuple[int, int], unit: int) -> _Area:
    """The area of a text with its bottom left at `corner`, moved into the image."""
    (width, height), below = cv2.getTextSize(text, _FONT, 0.45 * unit, unit)
    x = max(0, min(corner[0], canvas.shape[1] - width))
    y = min(max(corner[1], height + below), max(canvas.shape[0], height + below))
    return x, y - height - below, x + width, y


def _write(canvas: np.ndarray, text: str, area: _Area, unit: int, ground: tuple[int, int, int]) -> None:
    blue, green, red = ground
    # The luma of Rec. ITU-R BT.601.
    ink = _BLACK if 0.114 * blue + 0.587 * green + 0.299 * red > 90 else _WHITE
    x, _, _, y = area
    _, below = cv2.getTextSize(text, _FONT, 0.45 * unit, unit)
    cv2.rectangle(canvas, area[:2], area[2:], ground, cv2.FILLED)
    cv2.putText(canvas, text, (x, y - below), _FONT, 0.45 * unit, ink, unit, cv2.LINE_AA)

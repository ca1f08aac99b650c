"""Decoders of text: regions of text in an image, and the characters of a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import cv2
import numpy as np
from pydantic import Field

from edgedeploy.vision.decoder import Decoder, Described, Fitted, Fraction, Outputs, head, table
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, around, label_of

_SHORTEST, _SHORTEST_GROWN = 3, 5  # the shortest side of a shape's rectangle, before and after growth, network pixels
_SHORTER_IS_NOISE = 3  # sides of regions are longer, in pixels of the image
_SAME_LINE = 10  # regions whose first corners differ by less along y, in pixels of the image, are in one line
_ARC_TOLERANCE = 0.25  # how far chords of a rounded corner may be from its arc, in pixels: that of the Clipper library


class TextRegions(Decoder):
    """Rectangles around text at any angle: Differentiable Binarization (Liao et al., 2020, arXiv:1911.08947).

    The output is the probability of each pixel to be text. Pixels above `pixel_threshold` form shapes, and each shape
    has its rectangle of the least area. The network was trained with shapes smaller than the text, so that neighbours
    stay apart; rectangles grow again (`grown`). The steps and constants are those of PaddleOCR's DBPostProcess in
    RapidOCR: corners are the same to the pixel.
    """

    kind: Literal["text-regions"]
    pixel_threshold: Fraction = 0.3
    threshold: Fraction = 0.5
    unclip: Annotated[float, Field(gt=0, le=10)] = 1.6
    dilate: bool = True
    candidates: Annotated[int, Field(gt=0)] = 1000

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The regions from top to bottom, and from left to right within a line."""
        [probabilities] = head(outputs, next(iter(outputs)), 1)
        regions = (self._region(probabilities, contour, frame) for contour in self._contours(probabilities))
        label = label_of(labels or ["text"], 0)
        places = ((*around(corners), score) for corners, score in _in_reading_order([*filter(None, regions)]))
        return [
            Detection(label=label, class_id=0, score=score, box=box, corners=corners) for box, corners, score in places
        ]

    def _contours(self, probabilities: np.ndarray) -> Sequence[np.ndarray]:
        mask = (probabilities > self.pixel_threshold).astype(np.uint8)
        if self.dilate:
            mask = cv2.dilate(mask, np.ones((2, 2), np.uint8))
        contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
        return contours[: self.candidates]

    def _region(self, probabilities: np.ndarray, contour: np.ndarray, frame: Frame) -> tuple[np.ndarray, float] | None:
        """The corners around a contour, in pixels of the image, and its score; None if it is not text."""
        corners, shortest = _rectangle(contour)
        if shortest < _SHORTEST or (score := _mean_within(probabilities, corners)) < self.threshold:
            return None
        corners, shortest = _rectangle(grown(corners, self.unclip))
        if shortest < _SHORTEST_GROWN:
            return None
        corners = _in_image(corners, frame)
        sides = [int(np.linalg.norm(corners[0] - corners[k])) for k in (1, 3)]
        return (corners, score) if min(sides) > _SHORTER_IS_NOISE else None


def grown(corners: np.ndarray, ratio: float) -> np.ndarray:
    """A rectangle (4 x 2, clockwise) whose sides have moved out by area x `ratio` / perimeter, formula 10 of the paper.

    As in the Clipper library, which PaddleOCR calls, coordinates are truncated to whole pixels first, corners become
    arcs with the fewest points whose chords stay within a quarter of a pixel, and points are rounded. They are int32,
    n x 1 x 2, and the rectangle is their hull.
    """
    exact = corners.astype(np.float64)
    area = 0.5 * abs(float(np.sum(exact[:, 0] * (np.roll(exact[:, 1], -1) - np.roll(exact[:, 1], 1)))))
    distance = area * ratio / float(np.linalg.norm(np.roll(exact, -1, axis=0) - exact, axis=1).sum())
    whole = np.trunc(exact)
    whole = whole[(whole != np.roll(whole, 1, axis=0)).any(axis=1)]
    sides = np.roll(whole, -1, axis=0) - whole
    # Outward normals as angles: y points down, so that clockwise turns are positive.
    normals = np.arctan2(-sides[:, 0], sides[:, 1])
    tolerance = min(_ARC_TOLERANCE, 0.25 * distance)
    per_circle = min(np.pi / np.arccos(1 - tolerance / distance), np.pi * distance)
    points = []
    for corner, before, after in zip(whole, np.roll(normals, 1), normals, strict=True):
        turn = (after - before + np.pi) % (2 * np.pi) - np.pi
        steps = max(1, _rounded(per_circle * abs(turn) / (2 * np.pi)))
        angles = [*(before + np.arange(steps) * (2 * np.pi / per_circle)), after]
        points += [corner + distance * np.array([np.cos(angle), np.sin(angle)]) for angle in angles]
    result = np.array([[[_rounded(x), _rounded(y)]] for x, y in points], np.int32)
    # Clipper's order, which affects the last bits of OpenCV's rectangle: the topmost point is the last one.
    topmost = np.lexsort((-result[:, 0, 0], result[:, 0, 1]))[0]
    return np.roll(result, -1 - topmost, axis=0)


def _rounded(value: float) -> int:
    """The nearest whole number, halves away from zero."""
    return int(value + np.copysign(0.5, value))


def _rectangle(points: np.ndarray) -> tuple[np.ndarray, float]:
    """The corners of the rectangle of the least area around points, clockwise, float32, and its shorter side."""
    rectangle = cv2.minAreaRect(points)
    return _clockwise(cv2.boxPoints(rectangle)), min(rectangle[1])


def _clockwise(corners: np.ndarray) -> np.ndarray:
    """Four corners, the first one the upper of the two at the left, then clockwise."""
    by_x = corners[np.argsort(corners[:, 0], kind="stable")]
    left, right = (pair[np.argsort(pair[:, 1], kind="stable")] for pair in (by_x[:2], by_x[2:]))
    return np.array([left[0], right[0], right[1], left[1]])


def _mean_within(values: np.ndarray, corners: np.ndarray) -> float:
    """The mean of the values in a polygon, whose corners are truncated to whole pixels."""
    last = np.array(values.shape[::-1]) - 1
    first = np.clip(np.floor(corners.min(axis=0)), 0, last).astype(np.int32)
    x, y = np.clip(np.ceil(corners.max(axis=0)), 0, last).astype(np.int32) + 1
    part = values[first[1] : y, first[0] : x]
    mask = np.zeros(part.shape, np.uint8)
    cv2.fillPoly(mask, [(corners - first.astype(np.float32)).astype(np.int32)], 1)
    return float(cv2.mean(part, mask)[0])


def _in_image(corners: np.ndarray, frame: Frame) -> np.ndarray:
    """Corners in pixels of the network as whole pixels within the image, clockwise again, float32."""
    size = np.array(frame.image[::-1], np.float32)
    there = np.clip(np.round(corners / np.array(frame.network[::-1], np.float32) * size), 0, size)
    return np.minimum(_clockwise(there), size - 1).astype(np.float32)


def _in_reading_order(found: list[tuple[np.ndarray, float]]) -> list[tuple[np.ndarray, float]]:
    """Corners with scores, sorted by the first corner: from the top, and from the left within a line."""
    ordered = sorted(found, key=lambda each: (each[0][0][1], each[0][0][0]))
    for index in range(1, len(ordered)):
        while index:
            x, y = ordered[index][0][0] - ordered[index - 1][0][0]
            if abs(y) >= _SAME_LINE or x >= 0:
                break
            ordered[index - 1 : index + 1] = reversed(ordered[index - 1 : index + 1])
            index -= 1
    return ordered


class TextLine(Decoder):
    """Text from the probability of each character at each step along a line: greedy CTC (Graves et al., 2006).

    The best character of each step counts; repeated ones are collapsed, then blanks removed. Class 0 is the blank,
    class n the n-th label, and the class after the last label a space, as in PaddleOCR's networks.
    """

    kind: Literal["text-line"]
    threshold: Fraction = 0.5

    def fitted(self, network: Described) -> Fitted:
        """This decoder, with the characters in the network's file, one on each line, as in RapidOCR's files."""
        return Fitted(self, labels=network.metadata.get("character", "").splitlines())

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The text, if any reaches the threshold; it has no place of its own."""
        probabilities = table(outputs, next(iter(outputs)))
        best = probabilities.argmax(axis=1)
        kept = (best != 0) & np.append(True, best[1:] != best[:-1])
        if not kept.any():
            return []
        score = float(probabilities.max(axis=1)[kept].mean(dtype=np.float64))
        if not score >= self.threshold:
            return []
        characters = [*labels, " "]
        text = "".join(label_of(characters, int(number) - 1) for number in best[kept])
        return [Detection(label=text, class_id=0, score=score)]

"""BlazeFace and what followed it: faces, palms and people with key points (Bazarevsky et al., 2019, arXiv:1907.05047).

As MediaPipe's calculators SsdAnchors, TensorsToDetections and NonMaxSuppression read them
(github.com/google-ai-edge/mediapipe).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.vision.decoder import Fraction, Outputs, Stride, around, cells, corners, grid_size, sigmoid, table
from edgedeploy.vision.detector import Candidates, Detector
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.nms import clusters
from edgedeploy.vision.results import label_of


class AnchorLevel(Record):
    """The anchors of one level of the feature pyramid; MediaPipe counts levels of the same stride as one.

    Attributes:
        stride: pixels of the network's input per cell.
        anchors: anchors per cell, all at its centre.
    """

    stride: Stride
    anchors: Annotated[int, Field(gt=0, le=64)] = 1


class Blaze(Detector):
    """Things with key points, from boxes relative to anchors that have places but no sizes.

    Each cell of each level has its anchors at its centre (ax, ay), cell by cell, row by row. A row of `boxes` is
    (x, y, w, h, x0, y0, x1, y1, ...) in pixels of the network's input: a box around (ax + x, ay + y) of size (w, h),
    and key points at (ax + x0, ay + y0) and so on. The score is the sigmoid of `scores`.

    Overlapping boxes and their points are averaged, weighted by their scores. This is steadier from image to image
    than the best box alone.

    Attributes:
        scores: the output with the scores, 1 x n x 1.
        boxes: the output with boxes and points, 1 x n x (4 + 2 for each point).
        points: the number of points.
        name: the label.
    """

    kind: Literal["blaze"]
    threshold: Fraction = 0.5
    iou_threshold: Fraction = 0.3
    clip: bool = False
    scores: str
    boxes: str
    points: Annotated[int, Field(ge=0, le=1024)]
    levels: Annotated[list[AnchorLevel], Field(min_length=1)]
    name: str = "face"

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """A candidate for every anchor with a sound size."""
        places = np.concatenate([_places(frame.network, level) for level in self.levels])
        values = table(outputs, self.boxes, len(places), 4 + 2 * self.points)
        scores = sigmoid(table(outputs, self.scores, len(places), 1)[:, 0])
        boxes = corners(places + values[:, :2], values[:, 2:4])
        points = places[:, None] + values[:, 4:].reshape(-1, self.points, 2) if self.points else None
        found = Candidates.of(scores, boxes, points=points)
        return found[np.all(values[:, 2:4] >= 0, axis=1)]

    def label(self, labels: list[str], class_id: int) -> str:
        """`name`, unless the network's entry has labels."""
        return label_of(labels or [self.name], class_id)

    def reduced(self, found: Candidates) -> Candidates:
        """The mean of each group of overlapping candidates."""
        groups = clusters(found.boxes, found.scores, self.iou_threshold)
        best = found[np.array([group[0] for group in groups], np.intp)]
        if not groups:
            return best
        means = [_mean(found[group]) for group in groups]
        boxes, points = (np.stack(arrays) for arrays in zip(*means, strict=True))
        return replace(best, boxes=boxes, points=points)


def _places(network: tuple[int, int], level: AnchorLevel) -> np.ndarray:
    """The anchors of a level in pixels of the network's input, n x 2, float32."""
    rows, columns = grid_size(network, level.stride)
    step = np.array([network[1] / columns, network[0] / rows], np.float32)
    return around((cells(rows, columns) + np.float32(0.5)) * step, np.zeros((level.anchors, 2)))[:, :2]


def _mean(found: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """The mean box and points of a group, weighted by the scores."""
    weights = found.scores / found.scores.sum()
    return np.tensordot(weights, found.boxes, 1), np.tensordot(weights, found.points, 1)

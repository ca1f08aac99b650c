"""Boxes as corrections of prior boxes: SSD (Liu et al., 2016, arXiv:1512.02325) and what followed its form.

Among these are RetinaFace's PyTorch version (github.com/biubug6/Pytorch_Retinaface) and UltraFace
(github.com/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB).
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.documents import Record
from edgedeploy.heads import Side
from edgedeploy.vision.decoder import (
    Fraction,
    Outputs,
    Stride,
    around,
    cells,
    corners,
    exponential,
    grid_size,
    not_of_this_kind,
    table,
)
from edgedeploy.vision.detector import Candidates, ObjectDetector
from edgedeploy.vision.geometry import Frame


class PriorLevel(Record):
    """The prior boxes of one level of the feature pyramid.

    Attributes:
        stride: pixels of the network's input per cell; if the input is not a multiple, one more cell covers the rest.
        sizes: width and height in pixels of each prior box that a cell has, in the network's order.
    """

    stride: Stride
    sizes: Annotated[list[tuple[Side, Side]], Field(min_length=1)]


class Ssd(ObjectDetector):
    """Objects from boxes relative to prior boxes, with the probabilities of the background and of each class.

    Each cell of each level has its prior boxes around its centre, cell by cell, row by row, as Caffe's layer
    PriorBox writes them. With a prior box of centre (px, py) and size (pw, ph), and variances v and w, a row
    (dx, dy, dw, dh) is the box around (px + v dx pw, py + v dy ph), of size (pw exp(w dw), ph exp(w dh)); a landmark
    (x, y) lies at (px + v x pw, py + v y ph).

    Attributes:
        scores: the output with the probabilities, 1 x n x (1 + classes), or 1 x n x classes without a background.
        boxes: the output with the boxes, 1 x n x 4.
        points: the output with landmarks, 1 x n x (2 for each landmark), if there is one.
        levels: the prior boxes. Without them the network has applied them itself, and gives fractions of its input's
            width and height.
        box_format: the order of a box's values: `xyxy` and `yxyx` are two corners, `cxcywh` and `cycxhw` centre and
            size. By default `cxcywh` with prior boxes, which have no corners, and `xyxy` without.
        background: which column of the scores is the background's: the `first`, the `last`, or `none`.
        variances: v and w.
        spacing: `stride` puts neighbouring prior boxes one stride apart, as RetinaFace does; `even` spreads them
            evenly over the input, as PriorBox does when no step is given, and UltraFace. It matters only if the
            input is not a multiple of the stride.
    """

    kind: Literal["ssd"]
    threshold: Fraction = 0.5
    iou_threshold: Fraction = 0.4
    scores: str
    boxes: str
    points: str | None = None
    levels: Annotated[list[PriorLevel], Field(min_length=1)] | None = None
    variances: tuple[Side, Side] = (0.1, 0.2)
    spacing: Literal["stride", "even"] = "stride"
    box_format: Literal["xyxy", "yxyx", "cxcywh", "cycxhw"] | None = None
    background: Literal["first", "last", "none"] = "first"

    @model_validator(mode="after")
    def _corrections_of_centre_and_size(self) -> Ssd:
        if self.levels and self.box_format in ("xyxy", "yxyx"):
            raise ValueError(f"with levels box_format is cxcywh or cycxhw, not {self.box_format}")
        return self

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every prior box."""
        priors = self._priors(frame.network)
        boxes = table(outputs, self.boxes, columns=4, rows=None if priors is None else len(priors))
        if self.box_format in ("yxyx", "cycxhw"):
            boxes = boxes[:, [1, 0, 3, 2]]
        of_classes = {"first": slice(1, None), "last": slice(-1), "none": slice(None)}[self.background]
        probabilities = table(outputs, self.scores, rows=len(boxes))[:, of_classes]
        if not probabilities.shape[1]:
            raise not_of_this_kind(f"its output {self.scores!r} has no class beside the background")
        points = None if self.points is None else table(outputs, self.points, rows=len(boxes))
        if points is not None:
            if points.shape[1] % 2:
                raise not_of_this_kind(f"its output {self.points!r} has {points.shape[1]} values for each place")
            points = points.reshape(len(boxes), -1, 2)
        size = np.array(frame.network[::-1], np.float32)
        if priors is None:
            boxes = boxes * np.tile(size, 2)
            if self.box_format in ("cxcywh", "cycxhw"):
                boxes = corners(boxes[:, :2], boxes[:, 2:])
            points = None if points is None else points * size
        else:
            along, across = self.variances
            centre, sides = priors[:, :2], priors[:, 2:]
            boxes = corners(centre + along * boxes[:, :2] * sides, sides * exponential(across * boxes[:, 2:]))
            points = None if points is None else centre[:, None] + along * points * sides[:, None]
        return Candidates.of(probabilities.max(axis=1), boxes, probabilities.argmax(axis=1), points)

    def _priors(self, network: tuple[int, int]) -> np.ndarray | None:
        """Centre and size of each prior box in pixels of the network's input, n x 4, float32."""
        if self.levels is None:
            return None
        parts = []
        for level in self.levels:
            rows, columns = grid_size(network, level.stride)
            step = [network[1] / columns, network[0] / rows] if self.spacing == "even" else [level.stride] * 2
            centres = (cells(rows, columns) + np.float32(0.5)) * np.array(step, np.float32)
            parts.append(around(centres, np.array(level.sizes)))
        return np.concatenate(parts)

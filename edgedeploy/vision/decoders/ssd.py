"""Decoders of boxes relative to anchors of many sizes: SSD and its relatives, and EfficientDet."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.base.documents import Record
from edgedeploy.model.heads import Side
from edgedeploy.vision.decoder import (
    Fraction,
    Outputs,
    Stride,
    anchors,
    corners,
    exponential,
    head,
    not_of_this_kind,
    sigmoid,
    table,
)
from edgedeploy.vision.decoders.detector import Candidates, ObjectDetector
from edgedeploy.vision.geometry import Frame


class PriorLevel(Record):
    """The prior boxes of one level of the feature pyramid."""

    stride: Stride
    sizes: Annotated[list[tuple[Side, Side]], Field(min_length=1)]


class Ssd(ObjectDetector):
    """Objects from boxes relative to prior boxes, with the probabilities of the background and of each class.

    This is SSD (Liu et al., 2016, arXiv:1512.02325), and also RetinaFace's PyTorch version
    (github.com/biubug6/Pytorch_Retinaface) and UltraFace
    (github.com/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB).

    Each cell of each level has its prior boxes around its centre, cell by cell, row by row, as Caffe's layer
    PriorBox writes them. With a prior box of centre (px, py) and size (pw, ph), and variances v and w, a row
    (dx, dy, dw, dh) is the box around (px + v dx pw, py + v dy ph), of size (pw exp(w dw), ph exp(w dh)); a landmark
    (x, y) is at (px + v x pw, py + v y ph).

    `scores` is 1 x n x (1 + classes), or 1 x n x classes without a background, `boxes` 1 x n x 4, and `points` 1 x n x
    (2 for each landmark). Without `levels` the network has applied its prior boxes itself, and gives fractions of its
    input's width and height.
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
        priors = None
        if self.levels:
            levels = [(each.stride, np.array(each.sizes)) for each in self.levels]
            priors = anchors(frame.network, levels, even=self.spacing == "even")
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


Level = Annotated[int, Field(gt=0, le=12)]


class EfficientDet(ObjectDetector):
    """Objects from EfficientDet, with the anchors of github.com/google/automl (Tan et al., 2020, arXiv:1911.09070).

    Level l has cells of 2^l pixels. A cell's anchors are around its centre; for each of `octaves` sizes
    anchor_scale 2^l 2^(k / octaves), k = 0, 1, ..., there is one of each of the ratios. With an anchor around
    (ax, ay) of size (aw, ah), a row (ty, tx, th, tw) is the box around (ax + tx aw, ay + ty ah), of size
    (aw exp(tw), ah exp(th)).

    Outputs for all levels are 1 x anchors x classes, and four values for each anchor; those for each level have the
    anchors of a cell as channels, one after another.
    """

    kind: Literal["efficientdet"]
    threshold: Fraction = 0.2
    iou_threshold: Fraction = 0.2
    scores: Annotated[list[str], Field(min_length=1)]
    boxes: Annotated[list[str], Field(min_length=1)]
    layout: Literal["NHWC", "NCHW"] = "NHWC"
    logits: bool = True
    levels: Annotated[list[Level], Field(min_length=1)] = [3, 4, 5, 6, 7]
    octaves: Annotated[int, Field(gt=0, le=16)] = 3
    ratios: Annotated[list[tuple[Side, Side]], Field(min_length=1)] = [(1.0, 1.0), (1.4, 0.7), (0.7, 1.4)]
    anchor_scale: Side = 4.0

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every anchor."""
        places = self._anchors(frame.network)
        scores, boxes = self._joined(outputs, self.scores), self._joined(outputs, self.boxes)
        for what, found, columns in (("class scores", scores, None), ("boxes", boxes, 4)):
            if len(found) != len(places) or columns not in (None, found.shape[1]):
                raise not_of_this_kind(
                    f"its {what} are {len(found)} rows of {found.shape[1]} values, for {len(places)} anchors"
                )
        centre, size = places[:, :2], places[:, 2:]
        shift, growth = boxes[:, 1::-1], boxes[:, :1:-1]  # y comes before x, height before width
        best = scores.max(axis=1)
        found = corners(centre + shift * size, size * exponential(growth))
        return Candidates.of(sigmoid(best) if self.logits else best, found, scores.argmax(axis=1))

    def _joined(self, outputs: Outputs, names: list[str]) -> np.ndarray:
        """Outputs as one row of values for each anchor."""
        if len(names) == 1 and len(self.levels) > 1:
            return table(outputs, names[0])
        shapes = self.octaves * len(self.ratios)
        parts = []
        for name in names:
            level = head(outputs, name)
            pixels = level.transpose(1, 2, 0) if self.layout == "NCHW" else level
            if not pixels.shape[2] or pixels.shape[2] % shapes:
                raise not_of_this_kind(f"its output {name!r} has {pixels.shape[2]} channels, for {shapes} anchors")
            parts.append(pixels.reshape(-1, pixels.shape[2] // shapes))
        if len({part.shape[1] for part in parts}) > 1:
            raise not_of_this_kind(f"its outputs {', '.join(names)} have different numbers of values for each anchor")
        return np.concatenate(parts)

    def _anchors(self, network: tuple[int, int]) -> np.ndarray:
        """Centre and size of each anchor in pixels of the network's input, n x 4, float32."""
        growths = [2 ** (k / self.octaves) for k in range(self.octaves)]
        shapes = np.array([[growth * width, growth * height] for growth in growths for width, height in self.ratios])
        strides = [2**level for level in self.levels]
        return anchors(network, [(stride, self.anchor_scale * stride * shapes) for stride in strides])

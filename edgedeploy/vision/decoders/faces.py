"""Decoders of faces with five landmarks: RetinaFace and YuNet."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from edgedeploy.base.documents import Record
from edgedeploy.vision.decoder import (
    Fraction,
    Outputs,
    Stride,
    Strides,
    cells,
    corners,
    exponential,
    grid_size,
    head,
    table,
)
from edgedeploy.vision.decoders.detector import Candidates, Detector
from edgedeploy.vision.geometry import Frame

_POINTS = 5  # eyes, nose, corners of the mouth


class Level(Record):
    """One level of the feature pyramid: the sides in pixels of a cell's square anchors, in the network's order."""

    stride: Stride
    anchors: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]


# InsightFace's mnet.25: base size 16, ratio 1, scales (32, 16), (8, 4), (2, 1).
MNET25_LEVELS = [
    Level(stride=32, anchors=[512, 256]),
    Level(stride=16, anchors=[128, 64]),
    Level(stride=8, anchors=[32, 16]),
]


class RetinaFace(Detector):
    """Faces from InsightFace's RetinaFace with anchors (Deng et al., 2019, arXiv:1905.00641).

    With A anchors to a cell, `face_rpn_cls_prob_reshape_stride*` holds A probabilities of background, then
    A of a face; `face_rpn_bbox_pred_stride*` four and `face_rpn_landmark_pred_stride*` ten values for each
    anchor. Cell (i, j)'s anchors are centred at (8 + j stride, 8 + i stride), 8 being half the base size. A
    box (dx, dy, dw, dh) has its centre at anchor centre + side (dx, dy) and the size side exp(dw, dh); its
    last pixel belongs to it, so that x2 = x1 + width + 1; a landmark is at anchor centre + (side + 1)
    (x, y).
    """

    names: ClassVar[list[str]] = ["face"]

    kind: Literal["retinaface"]
    threshold: Fraction = 0.8
    iou_threshold: Fraction = 0.4
    levels: Annotated[list[Level], Field(min_length=1)] = MNET25_LEVELS

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """A candidate for every anchor in every cell."""
        return Candidates.joined([self._level(outputs, level) for level in self.levels])

    def _level(self, outputs: Outputs, level: Level) -> Candidates:
        count = len(level.anchors)
        probabilities, shifts, landmarks = (
            head(outputs, f"face_rpn_{what}_stride{level.stride}", count * values)
            for what, values in (("cls_prob_reshape", 2), ("bbox_pred", 4), ("landmark_pred", 2 * _POINTS))
        )
        rows, columns = shifts.shape[1:]
        # anchors x cells x values; background of all anchors comes before face of all anchors
        faces = probabilities.reshape(2, count, -1)[1]
        shifts = shifts.reshape(count, 4, -1).transpose(0, 2, 1)
        landmarks = landmarks.reshape(count, 2 * _POINTS, -1).transpose(0, 2, 1).reshape(count, -1, _POINTS, 2)
        side = np.array(level.anchors, np.float32)[:, None, None]
        centre = np.float32(8) + np.float32(level.stride) * cells(rows, columns)
        boxes = corners(centre + side * shifts[..., :2], side * exponential(shifts[..., 2:]))
        boxes[..., 2:] += 1
        points = centre[:, None] + (side[..., None] + 1) * landmarks
        return Candidates.of(faces, boxes, points=points)


class YuNet(Detector):
    """Faces from YuNet, as OpenCV's FaceDetectorYN reads it (Wu et al., 2023, doi:10.1007/s11633-023-1423-y).

    At each stride, `cls_*` and `obj_*` hold one value for each cell, row by row, `bbox_*` four and `kps_*` ten. The
    score is the geometric mean of the first two, each limited to 0 and 1. Cell (i, j) gives a box around
    (stride (j + x), stride (i + y)), of size (stride exp(w), stride exp(h)), and landmarks at (stride (j + x),
    stride (i + y)).
    """

    names: ClassVar[list[str]] = ["face"]

    kind: Literal["yunet"]
    threshold: Fraction = 0.9
    iou_threshold: Fraction = 0.3
    strides: Strides = [8, 16, 32]

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """A candidate for every cell."""
        return Candidates.joined([self._level(outputs, stride, frame) for stride in self.strides])

    def _level(self, outputs: Outputs, stride: int, frame: Frame) -> Candidates:
        grid = cells(*grid_size(frame.network, stride))
        classes, objectness, box, points = (
            table(outputs, f"{what}_{stride}", len(grid), values)
            for what, values in (("cls", 1), ("obj", 1), ("bbox", 4), ("kps", 2 * _POINTS))
        )
        scores = np.sqrt(np.clip(classes, 0, 1) * np.clip(objectness, 0, 1))
        step = np.float32(stride)
        boxes = corners((grid + box[:, :2]) * step, exponential(box[:, 2:]) * step)
        return Candidates.of(scores, boxes, points=(grid[:, None] + points.reshape(-1, _POINTS, 2)) * step)

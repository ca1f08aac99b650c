"""YuNet: faces with five landmarks (Wu et al., 2023, doi:10.1007/s11633-023-1423-y)."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from edgedeploy.vision.decoder import Fraction, Outputs, Strides, cells, corners, exponential, grid_size, table
from edgedeploy.vision.detector import Candidates, Detector
from edgedeploy.vision.preprocess import Frame

_POINTS = 5  # eyes, nose, corners of the mouth


class YuNet(Detector):
    """Faces from the outputs of YuNet, as OpenCV's FaceDetectorYN reads them.

    At each stride, `cls_*` and `obj_*` hold one value for each cell, row by row, `bbox_*` four and `kps_*` ten. The
    score is the geometric mean of the first two, each limited to 0 and 1. Cell (i, j) gives a box around
    (stride (j + x), stride (i + y)), of size (stride exp(w), stride exp(h)), and landmarks at (stride (j + x),
    stride (i + y)).

    Attributes:
        strides: pixels of the network's input per cell, for each level.
    """

    names: ClassVar[list[str]] = ["face"]

    kind: Literal["yunet"]
    threshold: Fraction = 0.9
    iou_threshold: Fraction = 0.3
    strides: Strides = [8, 16, 32]

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The face of every cell."""
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

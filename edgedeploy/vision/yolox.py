"""YOLOX: objects without anchors (Ge et al., 2021, arXiv:2107.08430)."""

from __future__ import annotations

from typing import Literal

from edgedeploy.vision.decoder import Fraction, Outputs, Strides, corners, exponential, grids, not_of_this_kind, table
from edgedeploy.vision.detector import Candidates, ObjectDetector
from edgedeploy.vision.preprocess import Frame

_BEFORE_CLASSES = 5  # x, y, width, height, objectness


class Yolox(ObjectDetector):
    """Objects from the output of YOLOX as its own exporter writes it, 1 x cells x (5 + classes).

    The cells of all levels come one level after another, row by row. Cell (i, j) gives a box around (stride (j + x),
    stride (i + y)), of size (stride exp(w), stride exp(h)); its score is objectness times class, both of which the
    network has put through a sigmoid.

    Attributes:
        output: the output's name.
        strides: pixels of the network's input per cell, for each level in the network's order.
    """

    kind: Literal["yolox"]
    threshold: Fraction = 0.3
    iou_threshold: Fraction = 0.65
    output: str = "output"
    strides: Strides = [8, 16, 32]

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every cell."""
        grid, step = grids(frame.network, self.strides)
        values = table(outputs, self.output, rows=len(grid))
        if values.shape[1] <= _BEFORE_CLASSES:
            raise not_of_this_kind(f"its output {self.output!r} has {values.shape[1]} values for each cell")
        boxes = corners((grid + values[:, :2]) * step, exponential(values[:, 2:4]) * step)
        classes = values[:, _BEFORE_CLASSES:]
        return Candidates.of(values[:, 4] * classes.max(axis=1), boxes, classes.argmax(axis=1))

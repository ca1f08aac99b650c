"""NanoDet: objects whose sides are distributions (github.com/RangiLyu/nanodet).

The distributions are those of generalised focal loss (Li et al., 2020, arXiv:2006.04388).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.vision.decoder import Fraction, Outputs, Strides, grid_size, grids, not_of_this_kind, softmax, table
from edgedeploy.vision.decoders.detector import Candidates, ObjectDetector
from edgedeploy.vision.geometry import Frame


class NanoDet(ObjectDetector):
    """Objects from NanoDet's heads.

    A cell has the sigmoid of a score for each class, and `bins` values for each of the distances from the cell's
    point to the left, top, right and bottom of the box. Softmax makes these a distribution over 0, 1, ... bins - 1,
    whose mean times the stride is the distance. The point of cell (i, j) is (stride (j + offset), stride (i + offset)).

    `output` is 1 x cells x (classes + 4 bins), level after level, row by row; `scores` and `distances` are 1 x cells x
    classes and 1 x cells x (4 bins) for each level.
    """

    kind: Literal["nanodet"]
    threshold: Fraction = 0.4
    iou_threshold: Fraction = 0.5
    strides: Strides = [8, 16, 32]
    output: str | None = None
    scores: list[str] = []
    distances: list[str] = []
    bins: Annotated[int, Field(gt=1)] = 8
    offset: Fraction = 0.5

    @model_validator(mode="after")
    def _joint_or_separate(self) -> NanoDet:
        levels = 0 if self.output else len(self.strides)
        if len(self.scores) != levels or len(self.distances) != levels:
            raise ValueError("state either `output`, or `scores` and `distances` with one output for each stride")
        return self

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every cell."""
        grid, step = grids(frame.network, self.strides)
        sides = 4 * self.bins
        if self.output:
            values = table(outputs, self.output, rows=len(step))
            scores, distances = values[:, :-sides], values[:, -sides:]
            if not scores.shape[1]:
                raise not_of_this_kind(f"its output {self.output!r} has {values.shape[1]} values for each cell")
        else:
            scores = self._levels(outputs, self.scores, frame.network, None)
            distances = self._levels(outputs, self.distances, frame.network, sides)
        points = (grid + np.float32(self.offset)) * step
        # cells x left, top, right, bottom
        reach = softmax(distances.reshape(-1, 4, self.bins)) @ np.arange(self.bins, dtype=np.float32) * step
        boxes = np.concatenate([points - reach[:, :2], points + reach[:, 2:]], axis=1)
        return Candidates.of(scores.max(axis=1), boxes, scores.argmax(axis=1))

    def _levels(self, outputs: Outputs, names: list[str], network: tuple[int, int], columns: int | None) -> np.ndarray:
        """The outputs of all levels as one table."""
        counts = [math.prod(grid_size(network, stride)) for stride in self.strides]
        parts = [table(outputs, name, count, columns) for name, count in zip(names, counts, strict=True)]
        if len({part.shape[1] for part in parts}) > 1 or not parts[0].shape[1]:
            raise not_of_this_kind(f"its outputs {', '.join(names)} have different numbers of classes")
        return np.concatenate(parts)

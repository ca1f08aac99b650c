"""EfficientDet: objects from anchors of nine shapes (Tan et al., 2020, arXiv:1911.09070)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.heads import Side
from edgedeploy.vision.decoder import (
    Fraction,
    Outputs,
    around,
    cells,
    corners,
    exponential,
    grid_size,
    head,
    not_of_this_kind,
    sigmoid,
    table,
)
from edgedeploy.vision.detector import Candidates, ObjectDetector
from edgedeploy.vision.geometry import Frame

Level = Annotated[int, Field(gt=0, le=12)]


class EfficientDet(ObjectDetector):
    """Objects from the outputs of EfficientDet, with the anchors of github.com/google/automl.

    Level l has cells of 2^l pixels. A cell's anchors lie around its centre; for each of `octaves` sizes
    anchor_scale 2^l 2^(k / octaves), k = 0, 1, ..., there is one of each of the ratios. With an anchor around
    (ax, ay) of size (aw, ah), a row (ty, tx, th, tw) is the box around (ax + tx aw, ay + ty ah), of size
    (aw exp(tw), ah exp(th)).

    Attributes:
        scores: the outputs with the classes: one for all levels, 1 x anchors x classes, or one for each level.
        boxes: the outputs with the boxes, in the same form, four values for each anchor.
        layout: of outputs for each level, whose channels are the anchors of a cell, one after another: `NHWC` as
            google/automl writes them, or `NCHW`.
        logits: whether scores are logits, which need a sigmoid.
        levels: the levels of the pyramid, in the network's order.
        octaves: sizes of anchors from one level to the next.
        ratios: width and height of an anchor in units of its size.
        anchor_scale: size of the smallest anchor, in cells.
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
        anchors = self._anchors(frame.network)
        scores, boxes = self._joined(outputs, self.scores), self._joined(outputs, self.boxes)
        for what, found, columns in (("class scores", scores, None), ("boxes", boxes, 4)):
            if len(found) != len(anchors) or columns not in (None, found.shape[1]):
                raise not_of_this_kind(
                    f"its {what} are {len(found)} rows of {found.shape[1]} values, for {len(anchors)} anchors"
                )
        centre, size = anchors[:, :2], anchors[:, 2:]
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
        parts = []
        for level in self.levels:
            stride = 2**level
            centres = (cells(*grid_size(network, stride)) + np.float32(0.5)) * np.float32(stride)
            parts.append(around(centres, self.anchor_scale * stride * shapes))
        return np.concatenate(parts)

"""RetinaFace with anchors: faces with five landmarks (Deng et al., 2019, arXiv:1905.00641)."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.documents import Record
from edgedeploy.vision.decoder import Decoder, Fraction, Outputs, head
from edgedeploy.vision.nms import suppress
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection, label_of

_POINTS = 5  # eyes, nose, corners of the mouth

# What the outputs hold, and how many values of it each anchor has.
_VALUES = {"cls_prob_reshape": 2, "bbox_pred": 4, "landmark_pred": 2 * _POINTS}


class Level(Record):
    """One level of the feature pyramid.

    Attributes:
        stride: pixels of the network's input per cell.
        anchors: the sides in pixels of the square anchors that each cell has, in the network's order.
    """

    stride: Annotated[int, Field(gt=0)]
    anchors: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]


# InsightFace's mnet.25: base size 16, ratio 1, scales (32, 16), (8, 4), (2, 1).
MNET25_LEVELS = [
    Level(stride=32, anchors=[512, 256]),
    Level(stride=16, anchors=[128, 64]),
    Level(stride=8, anchors=[32, 16]),
]


class RetinaFace(Decoder):
    """Faces from InsightFace's RetinaFace; its outputs are named by what they hold and their stride.

    With A anchors to a cell, `face_rpn_cls_prob_reshape_stride*` holds A probabilities of background, then
    A of a face; `face_rpn_bbox_pred_stride*` four and `face_rpn_landmark_pred_stride*` ten values for each
    anchor. Cell (i, j)'s anchors are centred at (8 + j stride, 8 + i stride), 8 being half the base size. A
    box (dx, dy, dw, dh) has its centre at anchor centre + side (dx, dy) and the size side exp(dw, dh); its
    last pixel belongs to it, so that x2 = x1 + width + 1; a landmark lies at anchor centre + (side + 1)
    (x, y).

    Attributes:
        threshold: the lowest probability of a face that is reported.
        overlap: the largest intersection over union of two faces.
        levels: the pyramid; that of mnet.25 unless stated.
    """

    kind: Literal["retinaface"]
    threshold: Fraction = 0.8
    overlap: Fraction = 0.4
    levels: Annotated[list[Level], Field(min_length=1)] = MNET25_LEVELS

    def required_outputs(self) -> list[str]:
        """The three outputs of each level."""
        return [_output(what, level) for level in self.levels for what in _VALUES]

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The faces, best score first, their boxes clipped to the picture."""
        found = [self._level(outputs, level) for level in self.levels]
        scores, boxes, points = (np.concatenate(parts) for parts in zip(*found, strict=True))
        kept = suppress(boxes, scores, self.overlap)
        height, width = frame.picture
        corners = frame.to_picture(boxes[kept].reshape(-1, 2, 2))
        corners = np.clip(corners, 0, np.array([width - 1, height - 1], np.float32)).reshape(-1, 4)
        return [
            Detection(
                label=label_of(labels or ["face"], 0),
                class_id=0,
                score=float(score),
                box=tuple(box.tolist()),
                points=tuple((float(x), float(y)) for x, y in landmarks),
            )
            for score, box, landmarks in zip(scores[kept], corners, frame.to_picture(points[kept]), strict=True)
        ]

    def _level(self, outputs: Outputs, level: Level) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores (n), boxes (n x 4) and landmarks (n x 5 x 2) of one level's faces, in network pixels."""
        count = len(level.anchors)
        probabilities, shifts, landmarks = (
            head(outputs, _output(what, level), count * values).reshape(count, values, -1)
            for what, values in _VALUES.items()
        )
        columns = outputs[_output("bbox_pred", level)].shape[3]
        # Background of all anchors comes before face of all anchors.
        faces = probabilities.reshape(2, count, -1)[1]
        anchor, cell = np.nonzero(faces >= self.threshold)
        side = np.array(level.anchors, np.float32)[anchor, None]
        centre = np.float32(8) + np.float32(level.stride) * np.stack([cell % columns, cell // columns], axis=1)
        centre = centre.astype(np.float32)
        shift = shifts[anchor, :, cell]
        middle, half = centre + side * shift[:, :2], side * np.exp(shift[:, 2:]) / 2
        boxes = np.concatenate([middle - half, middle + half + 1], axis=1)
        points = centre[:, None] + (side[:, None] + 1) * landmarks[anchor, :, cell].reshape(-1, _POINTS, 2)
        return faces[anchor, cell], boxes, points


def _output(what: str, level: Level) -> str:
    return f"face_rpn_{what}_stride{level.stride}"

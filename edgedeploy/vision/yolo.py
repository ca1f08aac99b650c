"""The heads of YOLO v3 and its kin (Redmon and Farhadi, 2018, arXiv:1804.02767), Yolo-Fastest among them."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.heads import Head
from edgedeploy.vision.decoder import Decoder, Fraction, Outputs, head, not_of_this_kind
from edgedeploy.vision.nms import suppress
from edgedeploy.vision.preprocess import Frame
from edgedeploy.vision.results import Detection, label_of

_BEFORE_CLASSES = 5  # x, y, width, height, objectness


class Yolo(Decoder):
    """Objects from raw YOLO v3 heads.

    A head has the channels x, y, w, h, objectness, classes... for each anchor. With the sigmoid s, cell
    (i, j) of a grid of rows x columns gives a box around ((j + s(x)) / columns, (i + s(y)) / rows), of size
    (anchor width exp(w), anchor height exp(h)) in pixels of the network's input.

    Attributes:
        threshold: the lowest confidence that is reported.
        overlap: the largest intersection over union of two objects, whatever their classes.
        tie: scores that differ by less count as equal, and the larger box is kept; see `suppress`.
        confidence: `darknet` is the product s(objectness) s(class). `tengine` is what Tengine's example
            computes, 1 / (1 + exp(-objectness) (1 + exp(-class))): the first 1 + stands outside the product,
            which gives higher values; Tengine's published percentages and its threshold 0.48 need it.
        heads: the heads.
    """

    kind: Literal["yolo"]
    threshold: Fraction
    overlap: Fraction = 0.45
    tie: Fraction = 0.0
    confidence: Literal["darknet", "tengine"] = "darknet"
    heads: Annotated[list[Head], Field(min_length=1)]

    def required_outputs(self) -> list[str]:
        """The outputs of the heads."""
        return [part.output for part in self.heads]

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The objects, best score first; boxes may reach out of the picture, as the network sees them."""
        found = [self._head(outputs, part, frame) for part in self.heads]
        scores, boxes, classes = (np.concatenate(parts) for parts in zip(*found, strict=True))
        kept = suppress(boxes, scores, self.overlap, self.tie)
        corners = frame.to_picture(boxes[kept].reshape(-1, 2, 2)).reshape(-1, 4)
        return [
            Detection(
                label=label_of(labels, int(class_id)),
                class_id=int(class_id),
                score=float(score),
                box=tuple(box.tolist()),
            )
            for score, box, class_id in zip(scores[kept], corners, classes[kept], strict=True)
        ]

    def _head(self, outputs: Outputs, part: Head, frame: Frame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores (n), boxes (n x 4, network pixels) and classes (n) of one head's objects."""
        output = head(outputs, part.output)
        channels, rows, columns = output.shape
        count = len(part.anchors)
        if channels % count or channels // count <= _BEFORE_CLASSES:
            raise not_of_this_kind(f"the {channels} channels of its output {part.output!r} do not suit {count} anchors")
        values = output.reshape(count, channels // count, rows * columns)
        objectness, class_scores = values[:, 4], values[:, _BEFORE_CLASSES:]
        # Of a cell's classes only the best one counts, and both formulas grow with the class's score.
        confidence = self._confidence(objectness, class_scores.max(axis=1))
        anchor, cell = np.nonzero(confidence >= self.threshold)
        values = values[anchor, :, cell]
        height, width = frame.network
        grid = np.stack([cell % columns, cell // columns], axis=1).astype(np.float32)
        centre = (grid + _sigmoid(values[:, :2])) * np.array([width / columns, height / rows], np.float32)
        half = np.exp(values[:, 2:4]) * np.array(part.anchors, np.float32)[anchor] / 2
        boxes = np.concatenate([centre - half, centre + half], axis=1)
        return confidence[anchor, cell], boxes, values[:, _BEFORE_CLASSES:].argmax(axis=1)

    def _confidence(self, objectness: np.ndarray, best_class: np.ndarray) -> np.ndarray:
        if self.confidence == "darknet":
            return _sigmoid(objectness) * _sigmoid(best_class)
        # 1 / (1 + exp(-o) (1 + exp(-c))) = s(o - log(1 + exp(-c))), which cannot overflow.
        return _sigmoid(objectness - np.logaddexp(np.float32(0), -best_class))


def _sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), written so that no large x overflows."""
    return (np.tanh(values / 2) + 1) / 2

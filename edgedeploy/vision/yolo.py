"""The heads of YOLO v2, v3, v4 and their kin, Yolo-Fastest among them.

Redmon and Farhadi, 2016, arXiv:1612.08242, and 2018, arXiv:1804.02767; as Darknet's layers [region] and [yolo] read
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.errors import InputError
from edgedeploy.heads import Head
from edgedeploy.vision.decoder import (
    Described,
    Fitted,
    Fraction,
    Outputs,
    cells,
    corners,
    exponential,
    head,
    not_of_this_kind,
    sigmoid,
    softmax,
)
from edgedeploy.vision.detector import Candidates, ObjectDetector
from edgedeploy.vision.preprocess import Frame

_BEFORE_CLASSES = 5  # x, y, width, height, objectness


class Yolo(ObjectDetector):
    """Objects from raw YOLO heads.

    A head has the channels x, y, w, h, objectness, classes... for each anchor. With the sigmoid s, cell
    (i, j) of a grid of rows x columns gives a box around ((j + s(x)) / columns, (i + s(y)) / rows), of size
    (anchor width exp(w), anchor height exp(h)) in pixels of the network's input. Where the head's `scale_x_y` is a,
    a s(x) - (a - 1) / 2 takes the place of s(x), and the same for y.

    Attributes:
        confidence: of heads of kind `yolo`: `darknet` is the product s(objectness) s(class). `tengine` is what
            Tengine's example computes, 1 / (1 + exp(-objectness) (1 + exp(-class))): the first 1 + stands outside
            the product, which gives higher values; Tengine's published percentages and its threshold 0.48 need it.
            Heads of kind `region` always give s(objectness) softmax(classes).
        heads: the heads; those that the network's own file states, as Darknet's do, unless given.
    """

    kind: Literal["yolo"]
    iou_threshold: Fraction = 0.45
    clip: bool = False
    confidence: Literal["darknet", "tengine"] = "darknet"
    heads: Annotated[list[Head], Field(min_length=1)] | None = None

    def with_heads(self, heads: Sequence[Head]) -> Yolo:
        """This decoder with the network's own heads, if it has none itself."""
        if self.heads is not None:
            return self
        if not heads:
            raise InputError(
                "the anchors of the network's heads are not known",
                why="neither the demo states heads, nor the network's file",
                hints=["copy the demo's YAML file, and state its decoder's heads; see docs/data-files.md"],
            )
        return self.model_copy(update={"heads": list(heads)})

    def fitted(self, network: Described) -> Fitted:
        """With the network's own heads."""
        return Fitted(self.with_heads(network.heads))

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every anchor in every cell."""
        return Candidates.joined([self._head(outputs, part, frame) for part in self.with_heads(()).heads or ()])

    def _head(self, outputs: Outputs, part: Head, frame: Frame) -> Candidates:
        output = head(outputs, part.output)
        channels, rows, columns = output.shape
        count = len(part.anchors)
        classes, rest = divmod(channels - _BEFORE_CLASSES * count, count)
        if rest or classes < 1 or part.classes not in (None, classes):
            of = "" if part.classes is None else f" of {part.classes} classes"
            raise not_of_this_kind(
                f"the {channels} channels of its output {part.output!r} do not suit {count} anchors{of}"
            )
        # anchors x cells x channels
        values = output.reshape(count, channels // count, rows * columns).transpose(0, 2, 1)
        height, width = frame.network
        shift = part.scale_x_y * sigmoid(values[..., :2]) - (part.scale_x_y - 1) / 2
        centre = (cells(rows, columns) + shift) * np.array([width / columns, height / rows], np.float32)
        size = exponential(values[..., 2:4]) * np.array(part.anchors, np.float32)[:, None]
        scores = values[..., _BEFORE_CLASSES:]
        confidence = self._confidence(part, values[..., 4], scores)
        return Candidates.of(confidence, corners(centre, size), scores.argmax(axis=-1))

    def _confidence(self, part: Head, objectness: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """The confidence of each place's best class: all formulas grow with the class's own score."""
        if part.kind == "region":
            return sigmoid(objectness) * softmax(classes).max(axis=-1)
        best = classes.max(axis=-1)
        if self.confidence == "darknet":
            return sigmoid(objectness) * sigmoid(best)
        # 1 / (1 + exp(-o) (1 + exp(-c))) = s(o - log(1 + exp(-c))), which cannot overflow.
        return sigmoid(objectness - np.logaddexp(np.float32(0), -best))

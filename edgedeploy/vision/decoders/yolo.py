"""Decoders of YOLO v2, v3 and v4 (Yolo-Fastest among them), and YOLOX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.errors import InputError
from edgedeploy.model.heads import Head
from edgedeploy.vision.decoder import (
    Described,
    Fitted,
    Fraction,
    Outputs,
    Strides,
    cells,
    corners,
    exponential,
    grids,
    head,
    not_of_this_kind,
    sigmoid,
    softmax,
    table,
)
from edgedeploy.vision.decoders.detector import Candidates, ObjectDetector
from edgedeploy.vision.geometry import Frame

_BEFORE_CLASSES = 5  # x, y, width, height, objectness


class Yolo(ObjectDetector):
    """Objects from raw YOLO heads, as Darknet's layers [region] and [yolo] are read (arXiv:1612.08242, 1804.02767).

    A head has the channels x, y, w, h, objectness, classes... for each anchor. With the sigmoid s, cell
    (i, j) of a grid of rows x columns gives a box around ((j + s(x)) / columns, (i + s(y)) / rows), of size
    (anchor width exp(w), anchor height exp(h)) in pixels of the network's input. Where the head's `scale_x_y` is a,
    a s(x) - (a - 1) / 2 takes the place of s(x), and the same for y.
    """

    kind: Literal["yolo"]
    iou_threshold: Fraction = 0.45
    clip: bool = False
    # Of heads of kind `yolo`: `darknet` is the product s(objectness) s(class). `tengine` is what Tengine's example
    # computes, 1 / (1 + exp(-objectness) (1 + exp(-class))): the first 1 + stands outside the product, which gives
    # higher values; Tengine's published percentages and its threshold 0.48 need it. Heads of kind `region` always give
    # s(objectness) softmax(classes).
    confidence: Literal["darknet", "tengine"] = "darknet"
    # The heads; those in the network's own file by default, such as Darknet's
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
        """The confidence of the best class at each place; every formula grows with the class's own score."""
        if part.kind == "region":
            return sigmoid(objectness) * softmax(classes).max(axis=-1)
        best = classes.max(axis=-1)
        if self.confidence == "darknet":
            return sigmoid(objectness) * sigmoid(best)
        # 1 / (1 + exp(-o) (1 + exp(-c))) = s(o - log(1 + exp(-c))), which cannot overflow.
        return sigmoid(objectness - np.logaddexp(np.float32(0), -best))


class Yolox(ObjectDetector):
    """Objects from the output of YOLOX (arXiv:2107.08430) as its own exporter writes it, 1 x cells x (5 + classes).

    The cells of all levels come one level after another, row by row. Cell (i, j) gives a box around (stride (j + x),
    stride (i + y)), of size (stride exp(w), stride exp(h)); its score is objectness times class, both already
    sigmoids.
    """

    kind: Literal["yolox"]
    threshold: Fraction = 0.3
    iou_threshold: Fraction = 0.65
    output: str = "output"
    strides: Strides = [8, 16, 32]  # of the levels, in the network's order

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every cell."""
        grid, step = grids(frame.network, self.strides)
        values = table(outputs, self.output, rows=len(grid))
        if values.shape[1] <= _BEFORE_CLASSES:
            raise not_of_this_kind(f"its output {self.output!r} has {values.shape[1]} values for each cell")
        boxes = corners((grid + values[:, :2]) * step, exponential(values[:, 2:4]) * step)
        classes = values[:, _BEFORE_CLASSES:]
        return Candidates.of(values[:, 4] * classes.max(axis=1), boxes, classes.argmax(axis=1))

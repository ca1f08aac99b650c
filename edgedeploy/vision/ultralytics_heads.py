"""What networks of Ultralytics give for each place, as their exporters write it: boxes, masks, points, turned boxes.

The network has decoded its boxes itself, whether their sides were distributions or not: they are in pixels of its
input. What is left is to choose the best of them.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from edgedeploy.tensors import shown
from edgedeploy.vision.decoder import Fraction, Outputs, corners, not_of_this_kind, table
from edgedeploy.vision.detector import Candidates, ObjectDetector
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.maps import on_image
from edgedeploy.vision.nms import suppress, suppress_turned
from edgedeploy.vision.results import Detection, Mask, around, label_of

# The lines between the 17 points of a person, in the annotations of COCO's keypoints (there counted from 1).
_PERSON = ((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10))
_FACE = ((1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6))
SKELETONS = {17: _PERSON + _FACE}

# `channels`: a place is a column of x, y, width, height, a score for each class, and what the task adds. `objectness`:
# it is a row, with how sure the network is that there is something before the scores (YOLOv5's own exporter).
# `chosen`: the network leaves one place for each thing, a row of x1, y1, x2, y2, score, class, and what the task adds.
Form = Literal["channels", "objectness", "chosen"]


class _Places(NamedTuple):
    """boxes: x, y, width and height, n x 4, or corners where the network has chosen."""

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    extras: np.ndarray


class Boxes(ObjectDetector):
    """Boxes.

    Attributes:
        output: the output's name.
        form: how it is laid out.
        extras: values that the task adds for each place.
        most: how many results there are at most.
    """

    threshold: Fraction = 0.25
    iou_threshold: Fraction = 0.7
    suppression: Literal["agnostic", "class_aware"] = "class_aware"
    candidates: Annotated[int, Field(gt=0)] = 30000
    most: Annotated[int, Field(gt=0)] = 300
    output: str
    form: Form
    extras: Annotated[int, Field(ge=0)] = 0

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every place whose score is above the threshold."""
        places = self._places(outputs)
        boxes = places.boxes if self.form == "chosen" else corners(places.boxes[:, :2], places.boxes[:, 2:])
        return Candidates.of(places.scores, boxes, places.classes, extras=places.extras)

    def _places(self, outputs: Outputs) -> _Places:
        values = table(outputs, self.output)
        values = values.T if self.form == "channels" else values
        first = 5 if self.form == "objectness" else 4
        last = 6 if self.form == "chosen" else values.shape[1] - self.extras
        if last <= first or last + self.extras != values.shape[1]:
            raise not_of_this_kind(f"its output {self.output!r} has {values.shape[1]} values for each place")
        if self.form == "chosen":
            scores, classes = values[:, 4], np.nan_to_num(values[:, 5]).astype(np.intp)
        else:
            each = values[:, first:last]
            classes, scores = each.argmax(axis=1), each.max(axis=1)
        if self.form == "objectness":
            scores = scores * values[:, 4]
        # The threshold itself is not reached here; for other detectors it is.
        sound = (classes >= 0) & np.isfinite(values[:, last:]).all(axis=1)
        which = np.flatnonzero((scores > self.threshold) & sound)
        return _Places(values[which, :4], scores[which], classes[which], values[which, last:])

    def _kept(self, found: Candidates) -> np.ndarray:
        if self.form == "chosen":
            return np.arange(len(found.scores))[: self.most]
        groups = self._groups(found)
        return suppress(found.boxes, found.scores, self.iou_threshold, self.tie, groups, self.most)

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The boxes, cut off at the image's edges; none is left out for that."""
        height, width = frame.image
        boxes = frame.to_image(found.boxes.reshape(-1, 2, 2))
        boxes = np.clip(boxes, 0, np.array([width, height], boxes.dtype)).reshape(-1, 4)
        return [
            Detection(label=label_of(labels, int(class_id)), class_id=int(class_id), score=float(score), box=tuple(box))
            for score, class_id, box in zip(found.scores, found.classes, boxes.tolist(), strict=True)
        ]


class Masks(Boxes):
    """Boxes with masks: each is a sum of prototypes, which all share (Bolya et al., 2019, arXiv:1904.02689).

    The coefficients of a place say how much of each prototype the sum has. Where it is above 0 and inside of the box,
    a pixel belongs to the mask. A result whose mask has no pixels is left out.

    Attributes:
        prototypes: the output's name, 1 x coefficients x rows x columns.
    """

    prototypes: str

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        shapes = outputs.get(self.prototypes, np.zeros(0))
        if shapes.ndim != 4 or shapes.shape[:2] != (1, self.extras):
            raise not_of_this_kind(f"its output {self.prototypes!r} is {shown(shapes.shape)}, not 1x{self.extras}xHxW")
        flat = shapes[0].reshape(self.extras, -1).astype(np.float32)
        results = []
        for detection, coefficients in zip(
            super()._results(found, outputs, frame, labels), found.extras.astype(np.float32), strict=True
        ):
            assert detection.box is not None
            left, top, right, bottom = np.ceil(detection.box).astype(int).tolist()
            sums = on_image((coefficients @ flat).reshape(shapes.shape[2:]), frame)
            region = sums[top:bottom, left:right] > 0
            if region.any():
                mask = Mask.of(region, (left, top), frame.image)
                results.append(detection.model_copy(update={"mask": mask}))
        return results


class Points(Boxes):
    """Boxes with points, such as the joints of a person.

    Attributes:
        shape: how many points, and the values of each: x and y in pixels of the input, and perhaps a score.
    """

    shape: tuple[int, int]

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        values = found.extras.reshape(len(found.scores), *self.shape)
        height, width = frame.image
        points = np.clip(frame.to_image(values[..., :2]), 0, np.array([width, height], values.dtype)).tolist()
        scores = values[..., 2:].reshape(len(values), self.shape[0] * (self.shape[1] - 2)).tolist()
        edges = SKELETONS.get(self.shape[0], ())
        return [
            detection.model_copy(
                update={
                    "points": tuple((x, y) for x, y in places),
                    "point_scores": tuple(scores_of_points),
                    "edges": edges,
                }
            )
            for detection, places, scores_of_points in zip(
                super()._results(found, outputs, frame, labels), points, scores, strict=True
            )
        ]


class TurnedBoxes(Boxes):
    """Boxes turned by an angle, in radians from the x axis towards the y axis, around their centres.

    Which of them overlap is told by the normal distributions that they stand for; see `suppress_turned`.
    """

    extras: Literal[1] = 1

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every place; boxes are x, y, width and height here, of chosen ones too."""
        places = self._places(outputs)
        return Candidates.of(places.scores, places.boxes, places.classes, extras=places.extras)

    def _kept(self, found: Candidates) -> np.ndarray:
        if self.form == "chosen":
            return super()._kept(found)
        turned = np.concatenate([found.boxes, found.extras], axis=1)
        return suppress_turned(turned, found.scores, self.iou_threshold, self._groups(found))[: self.most]

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        centres = frame.to_image(found.boxes[:, :2])
        halves = found.boxes[:, 2:] / np.asarray(frame.scale, found.boxes.dtype) / 2
        cosine, sine = np.cos(found.extras), np.sin(found.extras)
        along = halves[:, :1] * np.concatenate([cosine, sine], axis=1)
        across = halves[:, 1:] * np.concatenate([-sine, cosine], axis=1)
        four = np.stack([centres + along + across, centres + along - across], axis=1)
        four = np.concatenate([four, 2 * centres[:, None] - four], axis=1)
        places = (around(each) for each in four)
        return [
            Detection(
                label=label_of(labels, int(class_id)),
                class_id=int(class_id),
                score=float(score),
                box=box,
                corners=turned,
            )
            for score, class_id, (box, turned) in zip(found.scores, found.classes, places, strict=True)
        ]

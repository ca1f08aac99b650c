"""Heads of Ultralytics' networks as their exporters write them: boxes, masks, key points, turned boxes.

The network has decoded its boxes itself, into pixels of its input. The best of them are chosen here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from edgedeploy.vision.decoder import Outputs, corners, head, not_of_this_kind, table
from edgedeploy.vision.decoders.detector import Candidates, ObjectDetector, suppress, suppress_turned
from edgedeploy.vision.decoders.maps import on_image
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, Mask

# The lines between the 17 points of a person, in the annotations of COCO's keypoints (there counted from 1).
_PERSON = ((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10))
_FACE = ((1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6))
SKELETONS = {17: _PERSON + _FACE}

# `channels`: a place is a column of x, y, width, height, a score for each class, and the task's extras. `objectness`:
# a place is a row, with the objectness before the scores (YOLOv5's own exporter). `chosen`: the network has applied
# suppression; a place is a row of x1, y1, x2, y2, score, class, and the task's extras.
Form = Literal["channels", "objectness", "chosen"]


class Boxes(ObjectDetector):
    """At most `most` boxes; the task adds `extras` values for each place."""

    candidates: Annotated[int, Field(gt=0)] = 30000
    most: int
    output: str
    form: Form
    extras: int

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every place whose score is above the threshold."""
        places = self._places(outputs)
        if self.form == "chosen":
            return places
        return replace(places, boxes=corners(places.boxes[:, :2], places.boxes[:, 2:]))

    def _places(self, outputs: Outputs) -> Candidates:
        """As `find`; boxes are as in the output: x, y, width, height, or corners if the network has chosen."""
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
        # The threshold itself is excluded here, unlike in other detectors.
        sound = (classes >= 0) & np.isfinite(values[:, last:]).all(axis=1)
        which = np.flatnonzero((scores > self.threshold) & sound)
        return Candidates.of(scores[which], values[which, :4], classes[which], extras=values[which, last:])

    def _kept(self, found: Candidates) -> np.ndarray:
        if self.form == "chosen":
            return np.arange(len(found.scores))[: self.most]
        how = {"tie": self.tie, "classes": self._groups(found), "most": self.most}
        return suppress(found.boxes, found.scores, self.iou_threshold, **how)

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The boxes, clipped to the image; none is left out for that."""
        height, width = frame.image
        boxes = frame.to_image(found.boxes.reshape(-1, 2, 2))
        boxes = np.clip(boxes, 0, np.array([width, height], boxes.dtype)).reshape(-1, 4)
        return self._named(found, labels, box=boxes)


class Masks(Boxes):
    """Boxes with masks: each is a sum of prototypes, which all share (Bolya et al., 2019, arXiv:1904.02689).

    The coefficients of a place are its weights of the prototypes. A pixel belongs to the mask if it is inside of the
    box and the sum is above 0. Results with empty masks are left out. The output with the `prototypes` is
    1 x coefficients x rows x columns.
    """

    prototypes: str

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        shapes = head(outputs, self.prototypes, self.extras)
        flat = shapes.reshape(self.extras, -1).astype(np.float32)
        results = []
        detections = super()._results(found, outputs, frame, labels)
        for detection, coefficients in zip(detections, found.extras.astype(np.float32), strict=True):
            left, top, right, bottom = np.ceil(np.array(detection.box)).astype(int).tolist()
            sums = on_image((coefficients @ flat).reshape(shapes.shape[1:]), frame)
            region = sums[top:bottom, left:right] > 0
            if region.any():
                mask = Mask.of(region, (left, top), frame.image)
                results.append(detection.model_copy(update={"mask": mask}))
        return results


class Points(Boxes):
    """Boxes with key points, such as the joints of a person."""

    shape: tuple[int, int]  # how many points, and the values of each: x and y in pixels of the input, perhaps a score

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        values = found.extras.reshape(len(found.scores), *self.shape)
        height, width = frame.image
        points = np.clip(frame.to_image(values[..., :2]), 0, np.array([width, height], values.dtype)).tolist()
        scores = values[..., 2:].reshape(len(values), self.shape[0] * (self.shape[1] - 2)).tolist()
        edges = SKELETONS.get(self.shape[0], ())
        return [
            each.model_copy(update={"points": tuple(map(tuple, places)), "point_scores": tuple(sure), "edges": edges})
            for each, places, sure in zip(super()._results(found, outputs, frame, labels), points, scores, strict=True)
        ]


class TurnedBoxes(Boxes):
    """Boxes turned by an angle, in radians from the x axis towards the y axis, around their centres.

    They overlap as the normal distributions with their centres and covariances do; see `suppress_turned`.
    """

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """The best class of every place; boxes are x, y, width and height in all forms."""
        return self._places(outputs)

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
        boxes = np.concatenate([four.min(axis=1), four.max(axis=1)], axis=1)
        return self._named(found, labels, box=boxes, corners=four)

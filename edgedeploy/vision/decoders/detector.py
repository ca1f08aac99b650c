"""The base of detectors: from candidates, one for each anchor or cell, to the few that survive suppression."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.vision.decoder import Decoder, Fraction, Outputs, not_of_this_kind
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, label_of


def suppress(boxes: np.ndarray, scores: np.ndarray, iou_threshold: float, **how: Any) -> np.ndarray:
    """The indices of the boxes that `clusters` keeps, best score first; its parameters."""
    return np.array([group[0] for group in clusters(boxes, scores, iou_threshold, **how)], dtype=np.intp)


def clusters(
    boxes: np.ndarray,
    scores: np.ndarray,
    iou_threshold: float,
    # If above zero, scores are rounded to multiples of it, and of equal ones the larger box comes first: which of two
    # boxes survives then does not depend on the last bits of decoded images
    tie: float = 0.0,
    classes: np.ndarray | None = None,  # n class numbers, if boxes suppress only those of their own class
    most: int | None = None,  # the most boxes to keep
) -> list[np.ndarray]:
    """Greedy non-maximum suppression of boxes, n x 4, x1, y1, x2, y2, of area (x2 - x1) (y2 - y1).

    The box with the best score is kept, those whose intersection over union with it exceeds `iou_threshold` are
    dropped, and so on with what is left. Among equal scores the earlier box comes first, unless `tie` is given.

    Returns:
        The indices of each kept box, followed by those that it suppresses; best score first.
    """
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = np.lexsort((-areas, -np.round(scores / tie))) if tie else np.argsort(-scores, kind="stable")
    groups: list[np.ndarray] = []
    while order.size and len(groups) != most:
        best, rest = order[0], order[1:]
        sides = np.minimum(boxes[best, 2:], boxes[rest, 2:]) - np.maximum(boxes[best, :2], boxes[rest, :2])
        intersections = np.prod(np.maximum(sides, 0), axis=1)
        unions = areas[best] + areas[rest] - intersections
        # Multiplied out, so that two empty boxes do not divide by zero.
        stays = intersections <= iou_threshold * unions
        if classes is not None:
            stays |= classes[rest] != classes[best]
        groups.append(np.concatenate([order[:1], rest[~stays]]))
        order = rest[stays]
    return groups


def suppress_turned(
    boxes: np.ndarray, scores: np.ndarray, overlap_threshold: float, classes: np.ndarray | None = None
) -> np.ndarray:
    """Non-maximum suppression of turned boxes as in Ultralytics: the indices of the kept ones, best score first.

    Boxes are n x 5, x, y, width, height and the angle in radians. With `classes`, they suppress only those of their own
    class. A box is kept if none with a better score, itself kept or not, overlaps it by more than `overlap_threshold`
    (Fast NMS: Bolya et al., 2019, arXiv:1904.02689). The overlap of two boxes is that of the normal distributions with
    their centres and covariances: one minus the Hellinger distance (Llerena et al., 2021, arXiv:2106.06072).
    """
    order = np.argsort(-scores, kind="stable")
    stays = np.ones(len(order), bool)
    groups = [np.arange(len(order))]
    if classes is not None:
        groups = [np.flatnonzero(classes[order] == each) for each in np.unique(classes)]
    for group in groups:
        members = boxes[order[group]].astype(np.float64)
        for place in range(1, len(group)):
            stays[group[place]] = not (_overlaps(members[place], members[:place]) > overlap_threshold).any()
    return order[stays]


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The overlaps of a turned box (5) with others (n x 5); see `suppress_turned`."""
    tiny = 1e-7  # of the reference: it avoids divisions by zero
    (a, b, c), (others_a, others_b, others_c) = _covariance(box), _covariance(others)
    sum_a, sum_b, sum_c = a + others_a, b + others_b, c + others_c
    across, down = (others[:, :2] - box[:2]).T
    determinant = sum_a * sum_b - sum_c**2
    # Of two normal distributions: the Bhattacharyya distance.
    means = (sum_a * down**2 + sum_b * across**2 - 2 * sum_c * across * down) / (determinant + tiny) / 4
    each = np.maximum(a * b - c**2, 0) * np.maximum(others_a * others_b - others_c**2, 0)
    spreads = np.log(determinant / (4 * np.sqrt(each) + tiny) + tiny) / 2
    distance = np.clip(means + spreads, tiny, 100.0)
    return 1 - np.sqrt(1 - np.exp(-distance) + tiny)


def _covariance(boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of uniform distributions over turned boxes (..., 5): the variances along x and y, and the covariance."""
    width, height = boxes[..., 2] ** 2 / 12, boxes[..., 3] ** 2 / 12
    cosine, sine = np.cos(boxes[..., 4]), np.sin(boxes[..., 4])
    return (
        width * cosine**2 + height * sine**2,
        width * sine**2 + height * cosine**2,
        (width - height) * cosine * sine,
    )


@cache
def _warn_of_old_name() -> None:
    logging.getLogger(__name__).warning("the field `overlap` is called `iou_threshold` now; the old name will go")


@dataclass(frozen=True)
class Candidates:
    """Detections before thresholds and suppression."""

    scores: np.ndarray  # n
    boxes: np.ndarray  # n x 4, x1, y1, x2, y2 in pixels of the network's input
    classes: np.ndarray  # n class numbers, from 0
    points: np.ndarray  # n x p x 2 landmarks in pixels of the network's input; p may be 0
    extras: np.ndarray  # n x e further values, whose meaning the decoder knows; e may be 0

    @staticmethod
    def of(
        scores: np.ndarray,
        boxes: np.ndarray,
        classes: np.ndarray | None = None,
        points: np.ndarray | None = None,
        extras: np.ndarray | None = None,
    ) -> Candidates:
        """Candidates from arrays with any leading axes, all of class 0 and without points by default."""
        count = scores.size
        if boxes.size != 4 * count or (points is not None and (points.size % max(count, 1) or points.shape[-1] != 2)):
            raise not_of_this_kind("its outputs speak of different numbers of places")
        return Candidates(
            scores.reshape(count),
            boxes.reshape(count, 4),
            np.zeros(count, np.intp) if classes is None else classes.reshape(count),
            np.zeros((count, 0, 2), np.float32) if points is None else points.reshape(count, points.shape[-2], 2),
            np.zeros((count, 0), np.float32) if extras is None else extras.reshape(count, extras.shape[-1]),
        )

    @staticmethod
    def joined(parts: Sequence[Candidates]) -> Candidates:
        """The candidates of all parts, one after another."""
        return Candidates(*map(np.concatenate, zip(*(vars(part).values() for part in parts), strict=True)))

    def __getitem__(self, which: np.ndarray) -> Candidates:
        return Candidates(*(values[which] for values in vars(self).values()))


class Detector(Decoder):
    """Base of the decoders whose results are boxes; `names` are the classes' if the network's entry has no labels."""

    names: ClassVar[list[str]] = []

    threshold: Fraction
    iou_threshold: Fraction
    tie: Fraction = 0.0
    # As in the reference implementations of RetinaFace, EfficientDet and YuNet.
    candidates: Annotated[int, Field(gt=0)] = 5000
    clip: bool = True

    @model_validator(mode="before")
    @classmethod
    def _by_present_names(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "overlap" not in content:
            return content
        _warn_of_old_name()
        return {"iou_threshold" if name == "overlap" else name: value for name, value in content.items()}

    def find(self, outputs: Outputs, frame: Frame) -> Candidates:
        """All candidates, or those that reach the threshold."""
        raise NotImplementedError

    def decode(self, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        """The results, best score first."""
        # Damaged weights give infinite values and NaN: `_best` leaves them out.
        with np.errstate(all="ignore"):
            found = self._best(self.find(outputs, frame))
        return self._results(self.reduced(found), outputs, frame, labels)

    def _results(self, found: Candidates, outputs: Outputs, frame: Frame, labels: list[str]) -> list[Detection]:
        corners = frame.to_image(found.boxes.reshape(-1, 2, 2))
        if self.clip:
            height, width = frame.image
            corners = np.clip(corners, 0, np.array([width - 1, height - 1], np.float32))
            inside = (corners[:, 0] < corners[:, 1]).all(axis=1)
            found, corners = found[inside], corners[inside]
        return self._named(found, labels, box=corners.reshape(-1, 4), points=frame.to_image(found.points))

    def _named(self, found: Candidates, labels: list[str], **places: np.ndarray) -> list[Detection]:
        """The results of candidates; `places` are further fields, with a value for each of them."""
        fields = [found.classes.astype(int), found.scores, *places.values()]
        return [
            Detection(label=self.label(labels, row[0]), **dict(zip(("class_id", "score", *places), row, strict=True)))
            for row in zip(*(values.tolist() for values in fields), strict=True)
        ]

    def label(self, labels: list[str], class_id: int) -> str:
        """The name of a class."""
        return label_of(labels or self.names, class_id)

    def reduced(self, found: Candidates) -> Candidates:
        """The candidates without those that overlap a better one."""
        return found[self._kept(found)]

    def _kept(self, found: Candidates) -> np.ndarray:
        """The indices of candidates that survive suppression, best score first."""
        return suppress(found.boxes, found.scores, self.iou_threshold, tie=self.tie, classes=self._groups(found))

    def _groups(self, found: Candidates) -> np.ndarray | None:
        """The number of each candidate's group, within which boxes suppress each other; None is one group of all."""
        return None

    def _best(self, found: Candidates) -> Candidates:
        """The finite candidates that reach the threshold, at most `candidates`."""
        # NaN compares as false with everything, and would suppress every box.
        sound = (found.scores >= self.threshold) & np.isfinite(found.boxes).all(axis=1)
        found = found[sound & np.isfinite(found.points).all(axis=(1, 2))]
        if found.scores.size <= self.candidates:
            return found
        return found[np.sort(np.argsort(-found.scores, kind="stable")[: self.candidates])]


class ObjectDetector(Detector):
    """Base of the detectors of several classes."""

    suppression: Literal["agnostic", "class_aware"] = "agnostic"

    def _groups(self, found: Candidates) -> np.ndarray | None:
        return found.classes if self.suppression == "class_aware" else None

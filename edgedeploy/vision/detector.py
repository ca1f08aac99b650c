"""The base of detectors: from candidates, one for each anchor or cell, to the few that are reported."""

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
from edgedeploy.vision.nms import suppress
from edgedeploy.vision.results import Detection, label_of


@cache
def _warn_of_old_name() -> None:
    logging.getLogger(__name__).warning("the field `overlap` is called `iou_threshold` now; the old name will go")


@dataclass(frozen=True)
class Candidates:
    """Detections before thresholds and suppression.

    Attributes:
        scores: n.
        boxes: n x 4, x1, y1, x2, y2 in pixels of the network's input.
        classes: n class numbers, from 0.
        points: n x p x 2 landmarks in pixels of the network's input; p may be 0.
        extras: n x e further values, whose meaning the decoder knows; e may be 0.
    """

    scores: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    points: np.ndarray
    extras: np.ndarray

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
        fields = [(part.scores, part.boxes, part.classes, part.points, part.extras) for part in parts]
        return Candidates(*(np.concatenate(arrays) for arrays in zip(*fields, strict=True)))

    def __getitem__(self, which: np.ndarray) -> Candidates:
        return Candidates(
            self.scores[which], self.boxes[which], self.classes[which], self.points[which], self.extras[which]
        )


class Detector(Decoder):
    """Base of the decoders whose results are boxes.

    Attributes:
        names: the classes' names if the network's entry has no labels.
        threshold: the lowest score that is reported.
        iou_threshold: the largest intersection over union of two results.
        tie: scores that differ by less count as equal, and the larger box is kept; see `suppress`.
        candidates: the most candidates, those with the best scores, that enter suppression.
        clip: whether boxes are clipped to the image, and those outside of it left out.
    """

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
        """The results of the candidates that were kept."""
        corners = frame.to_image(found.boxes.reshape(-1, 2, 2))
        if self.clip:
            height, width = frame.image
            corners = np.clip(corners, 0, np.array([width - 1, height - 1], np.float32))
            inside = (corners[:, 0] < corners[:, 1]).all(axis=1)
            found, corners = found[inside], corners[inside]
        points = frame.to_image(found.points)
        return [
            Detection(
                label=self.label(labels, class_id),
                class_id=class_id,
                score=score,
                box=tuple(box),
                points=tuple((x, y) for x, y in landmarks),
            )
            for score, box, class_id, landmarks in zip(
                found.scores.tolist(),
                corners.reshape(-1, 4).tolist(),
                found.classes.astype(int).tolist(),
                points.tolist(),
                strict=True,
            )
        ]

    def label(self, labels: list[str], class_id: int) -> str:
        """The name of a class."""
        return label_of(labels or self.names, class_id)

    def reduced(self, found: Candidates) -> Candidates:
        """The candidates without those that overlap a better one."""
        return found[self._kept(found)]

    def _kept(self, found: Candidates) -> np.ndarray:
        """The indices of candidates that survive suppression, best score first."""
        return suppress(found.boxes, found.scores, self.iou_threshold, self.tie, self._groups(found))

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
    """Base of the detectors of several classes.

    Attributes:
        suppression: a box suppresses those of any class (`agnostic`) or of its own (`class_aware`: a rider and a
            horse both stay).
    """

    suppression: Literal["agnostic", "class_aware"] = "agnostic"

    def _groups(self, found: Candidates) -> np.ndarray | None:
        return found.classes if self.suppression == "class_aware" else None

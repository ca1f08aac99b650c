"""Tracking: results in one image give the crops for the next, so that the detector need not run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.base.documents import Record
from edgedeploy.vision.crop import Rectangle, RotatedCrop, overlap
from edgedeploy.vision.decoder import Fraction
from edgedeploy.vision.results import Detection


class Track(Record):
    """How results are tracked from image to image of a video, like in MediaPipe's graphs."""

    crop: RotatedCrop
    most: Annotated[int, Field(gt=0, le=1000)] = 1
    iou_threshold: Fraction = 0.5

    @model_validator(mode="after")
    def _around_points(self) -> Track:
        if self.crop.around == "box":
            raise ValueError("what is followed has points, but no box: its crop is around points, turned or circle")
        return self


@dataclass(frozen=True)
class Sighting:
    """A detection, or a result of the image before, and the next network's rectangle."""

    found: Detection
    rectangle: Rectangle


@dataclass
class Tracker:
    """The tracked results of the last image of one video."""

    track: Track
    followed: list[Sighting] = field(default_factory=list)

    @property
    def needs_detector(self) -> bool:
        """Whether there is room for more."""
        return len(self.followed) < self.track.most

    def joined(self, found: Sequence[Sighting]) -> list[Sighting]:
        """Detections and the tracked results; of two that overlap, the later one stays."""
        joined: list[Sighting] = []
        for new in [*found, *self.followed]:
            apart = [old for old in joined if overlap(old.rectangle, new.rectangle) <= self.track.iou_threshold]
            joined = [*apart, new]
        return joined

    def update(self, seen: Sequence[tuple[Sighting, Sequence[Detection]]]) -> None:
        """Track the network's results for each sighting in this image."""
        self.followed = [
            Sighting(_handed_on(sighting.found, detection), rectangle)
            for sighting, detections in seen
            for detection in detections[:1]
            if (rectangle := self.track.crop.rectangle(detection))
        ]


def _handed_on(found: Detection, seen: Detection) -> Detection:
    """The box around the points, with their score, in place of the detector's result."""
    low, high = (np.array(seen.points).min(axis=0), np.array(seen.points).max(axis=0))
    box = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    return Detection(label=found.label, class_id=found.class_id, score=seen.score, box=box, tracked=True)

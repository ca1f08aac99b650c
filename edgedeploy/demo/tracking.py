"""What a network saw in one image tells where to look in the next, so that the detector rests meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from edgedeploy.documents import Record
from edgedeploy.vision.crop import Rectangle, RotatedCrop, overlap
from edgedeploy.vision.decoder import Fraction
from edgedeploy.vision.results import Detection


class Track(Record):
    """How results are followed from image to image of a film, as MediaPipe's graphs do.

    Attributes:
        crop: how the points of one image become the rectangle that is looked at in the next.
        most: how many are followed: the detector looks at an image only where fewer were seen in the one before.
        iou_threshold: what the detector finds is left out where a followed rectangle overlaps it by more.
    """

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
    """Something that is to be looked at: what the detector, or the image before, said of it, and where it is.

    Attributes:
        found: the detector's result, or one made of that of the image before.
        rectangle: where the next network looks; None where there is nothing to look at.
    """

    found: Detection
    rectangle: Rectangle | None


@dataclass
class Tracker:
    """What was seen in the last image of one film.

    Attributes:
        track: how it is followed.
        followed: what the last image hands on.
    """

    track: Track
    followed: list[Sighting] = field(default_factory=list)

    @property
    def needs_detector(self) -> bool:
        """Whether there is room for more."""
        return len(self.followed) < self.track.most

    def joined(self, found: Sequence[Sighting]) -> list[Sighting]:
        """What is to be looked at: what the detector found, and what is followed.

        The detector's are the best ones, as many as are followed at most. Of two that overlap the later one stays,
        and those that are followed are the last.
        """
        joined: list[Sighting] = []
        for new in [*found[: self.track.most], *self.followed]:
            if new.rectangle is None:
                continue
            joined = [old for old in joined if not self._same(old, new)]
            joined.append(new)
        return joined

    def update(self, seen: Sequence[tuple[Sighting, Sequence[Detection]]]) -> None:
        """Take note of what the network made of each of those in this image."""
        self.followed = [
            Sighting(_handed_on(sighting.found, detection), rectangle)
            for sighting, detections in seen
            for detection in detections[:1]
            if (rectangle := self.track.crop.rectangle(detection)) is not None
        ]

    def _same(self, one: Sighting, other: Sighting) -> bool:
        assert one.rectangle is not None
        assert other.rectangle is not None
        return overlap(one.rectangle, other.rectangle) > self.track.iou_threshold


def _handed_on(found: Detection, seen: Detection) -> Detection:
    """In place of the detector's result: the box around the points that were seen, with their score."""
    low, high = (np.array(seen.points).min(axis=0), np.array(seen.points).max(axis=0))
    box = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    return Detection(label=found.label, class_id=found.class_id, score=seen.score, box=box, tracked=True)

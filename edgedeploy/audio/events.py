"""What is detected in a sound: from a score for each frame to where something begins and ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.documents import Record
from edgedeploy.vision.decoder import Fraction

Seconds = Annotated[float, Field(ge=0, le=60)]


class Detecting(Record):
    """When scores are a detection. With 0.35, 0.25 s, 0.1 s and 0.03 s these are Silero VAD's `get_speech_timestamps`.

    Attributes:
        label: what is detected.
        threshold: a score of at least that begins it.
        release: scores below that end it; the threshold unless stated.
        shortest_s: what is not longer is no detection.
        gap_s: for so long scores must be below `release`.
        margin_s: what is added before its beginning and after its end.
    """

    label: str
    threshold: Fraction = 0.5
    release: Fraction | None = None
    shortest_s: Seconds = 0.0
    gap_s: Seconds = 0.0
    margin_s: Seconds = 0.0

    @model_validator(mode="after")
    def _in_order(self) -> Detecting:
        if self.release is not None and self.release > self.threshold:
            raise ValueError("release is above threshold")
        if self.gap_s < 2 * self.margin_s:
            raise ValueError("gap_s must be at least twice margin_s, or detections overlap")
        return self

    def with_threshold(self, threshold: float) -> Detecting:
        """The same with another threshold, and a release as far below it."""
        release = None if self.release is None else max(0.0, threshold - (self.threshold - self.release))
        return self.model_copy(update={"threshold": threshold, "release": release})


@dataclass(frozen=True)
class Event:
    """A beginning or an end.

    Attributes:
        kind: which of the two.
        sample: when that was.
        score: the highest score until then.
    """

    kind: Literal["begin", "end"]
    sample: int
    score: float


class Detector:
    """Takes scores one after the other. Times are numbers of samples."""

    def __init__(self, how: Detecting, rate: int, frame: int) -> None:
        """Begin; a score is of `frame` samples, of which there are `rate` in a second."""
        self._threshold = how.threshold
        self._release = how.threshold if how.release is None else how.release
        self._shortest, self._gap, self._margin = (
            round(seconds * rate) for seconds in (how.shortest_s, how.gap_s, how.margin_s)
        )
        self._frame = frame
        self._begun: int | None = None
        self._told = False
        self._quiet_since: int | None = None
        self._best = 0.0

    def add(self, sample: int, score: float) -> list[Event]:
        """The score of the frame that begins at `sample`; what that tells."""
        if score >= self._threshold:
            self._quiet_since = None
            if self._begun is None:
                self._begun, self._told, self._best = sample, False, 0.0
        if self._begun is None:
            return []
        self._best = max(self._best, score)
        if score < self._release:
            if self._quiet_since is None:
                self._quiet_since = sample
            return self._end(self._quiet_since) if sample - self._quiet_since >= self._gap else []
        return (
            self._begin() if self._quiet_since is None and sample + self._frame - self._begun > self._shortest else []
        )

    def finish(self, samples: int) -> list[Event]:
        """The sound has ended, after `samples`."""
        if self._begun is None:
            return []
        begun = self._begin() if samples - self._begun > self._shortest else []
        return begun + [Event(each.kind, min(samples, each.sample), each.score) for each in self._end(samples)]

    def _begin(self) -> list[Event]:
        if self._told or self._begun is None:
            return []
        self._told = True
        # A margin does not reach before the beginning of the sound.
        return [Event("begin", max(min(0, self._begun), self._begun - self._margin), self._best)]

    def _end(self, sample: int) -> list[Event]:
        told = self._told
        self._begun = self._quiet_since = None
        return [Event("end", sample + self._margin, self._best)] if told else []

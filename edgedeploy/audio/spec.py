"""A demo on sounds as `demos/audio/*.yaml` states it; `docs/data-files.md` describes the fields."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.base.catalog import Catalog
from edgedeploy.base.documents import Record
from edgedeploy.vision.decoder import Fraction
from edgedeploy.zoo.entry import ZooFile

Count = Annotated[int, Field(gt=0, le=1_000_000)]
Seconds = Annotated[float, Field(ge=0, le=60)]


class Detecting(Record):
    """When scores are a detection; with 0.35, 0.25 s, 0.1 s and 0.03 s as in Silero VAD's `get_speech_timestamps`."""

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


class SoundStage(Record):
    """One network of a cascade. For each frame it takes the latest rows of the stage before it, and gives new rows.

    The rows of the first network are samples. Rows of a network are its output along the last axis: 8 x 32 values are
    8 rows of 32.
    """

    model: str
    window: Count
    before: float | Literal["silence"] = 0.0
    samples_per_row: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    scale: float = 1.0
    offset: float = 0.0
    states: dict[str, str] = {}


class SoundDemo(Record):
    """One demo: a cascade of networks that gives a score for each frame of a sound, and what scores mean."""

    description: str
    sound: ZooFile
    rate: Annotated[int, Field(ge=8_000, le=48_000)] = 16_000
    frame: Count
    full_scale: Annotated[float, Field(gt=0)] = 1.0
    silence_s: Seconds = 0.0
    warm_up: Annotated[int, Field(ge=0, le=1_000)] = 0
    stages: Annotated[list[SoundStage], Field(min_length=1, max_length=8)]
    detect: Detecting

    @model_validator(mode="after")
    def _windows_are_possible(self) -> SoundDemo:
        if self.stages[0].window < self.frame:
            raise ValueError("the first network's window is shorter than a frame")
        if self.stages[0].before == "silence" or any(stage.samples_per_row for stage in self.stages[1:]):
            raise ValueError("the first network alone has samples_per_row, and the others alone silence before them")
        return self


SOUND_DEMOS = Catalog("demo", "demos/audio", SoundDemo, listing="edgedeploy demo")

"""A demo on sounds as `demos/audio/*.yaml` states it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgedeploy.audio.events import Detecting, Seconds
from edgedeploy.catalog import Catalog
from edgedeploy.documents import Record
from edgedeploy.zoo.entry import ZooFile

Count = Annotated[int, Field(gt=0, le=1_000_000)]


class SoundStage(Record):
    """One network of a cascade. Each frame it is shown the latest rows of what comes before it, and gives new rows.

    The rows of the first network are samples. Rows of a network are its output along the last axis: 8 x 32 values are
    8 rows of 32.

    Attributes:
        model: the network, a name of the zoo.
        window: how many rows it is shown.
        before: what stands for rows from before the beginning: a value, or the rows that silence gives.
        samples_per_row: of the first network: rows that it gives for samples from before the beginning are left out;
            0 keeps them.
        scale, offset: what is made of its values: value * scale + offset.
        states: outputs that are inputs of the next inference, zeros at first: by input, the output.
    """

    model: str
    window: Count
    before: float | Literal["silence"] = 0.0
    samples_per_row: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    scale: float = 1.0
    offset: float = 0.0
    states: dict[str, str] = {}


class SoundDemo(Record):
    """One demo: a cascade of networks that gives a score for each frame of a sound, and what scores mean.

    Attributes:
        description: one line for people.
        sound: the WAV file that is heard unless another one is given; a bundled one lies beside the demo's file.
        rate: samples per second that the networks take.
        frame: samples from one score to the next.
        full_scale: what the largest 16-bit sample, 32768, is for the first network.
        silence_s: how much silence is heard before and after a file, so that the windows are full.
        warm_up: how many scores at the beginning count as 0.
        stages: the networks; the last one gives one value, the score.
        detect: when scores are a detection.
    """

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

"""What a demo needed for a sequence of images, altogether and in the mean."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from edgedeploy.demo.pipeline import Outcome, Parts


class Summary:
    """Counts images and their times, from the moment it is made.

    Attributes:
        frames: how many images were shown.
        seconds: how long it took until the last of them was done, with reading, drawing and saving.
    """

    def __init__(self) -> None:
        self._started = perf_counter()
        self._parts = Parts()
        self.frames = 0
        self.seconds = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count one image that is done."""
        self._parts += outcome.all_parts
        self.frames += 1
        self.seconds = perf_counter() - self._started

    @property
    def fps(self) -> float:
        """Images per second, over the whole time."""
        return self.frames / self.seconds if self.seconds else 0.0

    @property
    def mean(self) -> Parts:
        """The mean times of the parts."""
        return self._parts.per(max(1, self.frames))

    def line(self) -> str:
        """The same in one line for people."""
        return f"{self.frames} frames in {self.seconds:.2f} s, {self.fps:.2f} FPS; mean of each: {self.mean.line()}"

    def as_dict(self) -> dict[str, Any]:
        """The same as `--json` prints it."""
        return {"frames": self.frames, "seconds": self.seconds, "fps": self.fps, **self.mean.as_dict()}

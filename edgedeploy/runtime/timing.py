"""Statistics of repeated runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Timing:
    """The time of an inference in milliseconds, one value for each repetition."""

    runs_ms: tuple[float, ...]

    def __repr__(self) -> str:
        return f"<edgedeploy.Timing of {len(self.runs_ms)}: median {self.median_ms:.3f} ms, min {self.min_ms:.3f} ms>"

    @classmethod
    def of_seconds(cls, seconds: Sequence[float]) -> Timing:
        """Times that were measured in seconds."""
        return cls(tuple(value * 1e3 for value in seconds))

    @property
    def min_ms(self) -> float:
        """The shortest."""
        return min(self.runs_ms)

    @property
    def max_ms(self) -> float:
        """The longest."""
        return max(self.runs_ms)

    @property
    def mean_ms(self) -> float:
        """The arithmetic mean."""
        return statistics.fmean(self.runs_ms)

    @property
    def median_ms(self) -> float:
        """The median."""
        return statistics.median(self.runs_ms)

    @property
    def std_ms(self) -> float:
        """The population's standard deviation, as TVM's `BenchmarkResult` has it."""
        return statistics.pstdev(self.runs_ms)

    @property
    def p90_ms(self) -> float:
        """The 90th percentile, between neighbours in proportion, as numpy has it."""
        return self.percentile(90)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile."""
        return self.percentile(99)

    def percentile(self, percent: float) -> float:
        """The time that so many percent of the repetitions do not exceed."""
        ordered = sorted(self.runs_ms)
        place = (len(ordered) - 1) * percent / 100
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    def to_dict(self) -> dict[str, float]:
        """The five statistics under the names that `--json` prints."""
        return {name: getattr(self, name) for name in ("min_ms", "median_ms", "mean_ms", "max_ms", "std_ms")}

    as_dict = to_dict  # what it was called


@dataclass(frozen=True)
class EndToEnd:
    """Times of inferences that begin and end in the processor's memory, whatever device they run on.

    Attributes:
        total: from before inputs are copied to the device until the outputs are back from there.
        kernels: what of it the device's kernels took, by its own clock; None where the processor is the device.
    """

    total: Timing
    kernels: Timing | None = None

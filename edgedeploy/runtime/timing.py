"""Statistics of repeated runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, repr=False)
class Timing:
    """The time of an inference in milliseconds, one value per repetition."""

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
        """The population standard deviation, as in TVM's `BenchmarkResult`."""
        return statistics.pstdev(self.runs_ms)

    @property
    def p90_ms(self) -> float:
        """The 90th percentile."""
        return self.percentile(90)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile."""
        return self.percentile(99)

    def percentile(self, percent: float) -> float:
        """A percentile, interpolated linearly between neighbours."""
        return float(np.percentile(self.runs_ms, percent))

    def to_dict(self) -> dict[str, float]:
        """The five statistics under the names that `--json` prints."""
        return {name: getattr(self, name) for name in ("min_ms", "median_ms", "mean_ms", "max_ms", "std_ms")}

    as_dict = to_dict  # its old name


@dataclass(frozen=True)
class EndToEnd:
    """Times of inferences from inputs to outputs in the processor's memory, with copies to a device and back."""

    total: Timing
    kernels: Timing | None = None  # of the device's kernels, by its own clock; None for the processor

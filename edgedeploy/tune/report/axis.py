"""Axes of drawings: where a value lies, and which round values are marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# From this ratio of the largest value to the smallest on, equal distances mean equal ratios.
LOGARITHMIC_FROM = 5.0

_MOST_TICKS = 6
_MARGIN = 0.05


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, drawn from the pixel `start` to the pixel `end`.

    Attributes:
        low, high: the values at the ends.
        start, end: the places of those, in pixels.
        logarithmic: whether equal distances mean equal ratios; all values are positive then.
        whole: whether only whole numbers are marked.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    whole: bool = False

    @staticmethod
    def over(values: Sequence[float], start: float, end: float) -> Axis:
        """An axis with some room around positive values; logarithmic if they are far apart."""
        low, high = min(values), max(values)
        if high / low >= LOGARITHMIC_FROM:
            room = (high / low) ** _MARGIN
            return Axis(low / room, high * room, start, end, logarithmic=True)
        room = (high - low) * _MARGIN or high * _MARGIN
        return Axis(low - room, high + room, start, end)

    def place(self, value: float) -> float:
        """Where a value lies, in pixels."""
        low, high, here = (self._scale(each) for each in (self.low, self.high, value))
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """The values to mark, with their text."""
        return self._ratios() if self.logarithmic else self._steps()

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def _steps(self) -> list[tuple[float, str]]:
        """Multiples of 1, 2 or 5 times a power of ten."""
        exponent = math.floor(math.log10((self.high - self.low) / _MOST_TICKS))
        step = next(
            step
            for step in (factor * 10.0**power for power in (exponent, exponent + 1) for factor in (1, 2, 5))
            if (self.high - self.low) / step <= _MOST_TICKS
        )
        step = max(1.0, step) if self.whole else step
        decimals = max(0, -math.floor(math.log10(step)))
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [(number * step, f"{number * step:.{decimals}f}") for number in range(first, last + 1)]

    def _ratios(self) -> list[tuple[float, str]]:
        """1, 2 and 5 times powers of ten; over many powers, some of those alone."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = math.ceil((last - first) / _MOST_TICKS)
        factors = (1, 2, 5) if last - first <= _MOST_TICKS // 2 else (1,)
        values = [factor * 10.0**power for power in range(first, last + 1, every) for factor in factors]
        return [(value, f"{value:g}") for value in values if self.low <= value <= self.high]

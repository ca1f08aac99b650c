"""What every search offers, and the searches that learn nothing."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from typing_extensions import override

from edgedeploy.compile.configuration import Configuration


class Search(ABC):
    """A search among the candidates of one task.

    Attributes:
        candidates: all of them.
        seconds: what those that were tried took; infinite for those that failed.
    """

    def __init__(self, candidates: Sequence[Configuration], head: int, seed: int) -> None:
        """Begin.

        Args:
            candidates: all of them, without repetitions.
            head: how many of them, from the first on, are tried before any other.
            seed: of random choices.
        """
        self.candidates = list(candidates)
        self.seconds: dict[Configuration, float] = {}
        self._head = self.candidates[:head]
        self._random = random.Random(seed)

    def learn(self, results: Sequence[tuple[Configuration, float | None]]) -> None:
        """Take note of what candidates took, in seconds; None for one that failed."""
        for configuration, seconds in results:
            self.seconds[configuration] = float("inf") if seconds is None else seconds

    def propose(self, count: int) -> list[Configuration]:
        """Up to so many candidates that were not tried yet; none if there are none left."""
        chosen = [each for each in self._head if each not in self.seconds][:count]
        if len(chosen) < count:
            chosen += self._next(count - len(chosen), {*self.seconds, *chosen})
        return chosen

    @abstractmethod
    def _next(self, count: int, taken: set[Configuration]) -> list[Configuration]:
        """Up to so many candidates that are not taken."""

    def _untried(self, taken: set[Configuration]) -> list[Configuration]:
        return [each for each in self.candidates if each not in taken]


class Exhaustive(Search):
    """All candidates, in their order."""

    @override
    def _next(self, count: int, taken: set[Configuration]) -> list[Configuration]:
        return self._untried(taken)[:count]


class Shuffled(Search):
    """Candidates at random, each once."""

    @override
    def _next(self, count: int, taken: set[Configuration]) -> list[Configuration]:
        untried = self._untried(taken)
        return self._random.sample(untried, min(count, len(untried)))

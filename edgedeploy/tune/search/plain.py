"""Searches that learn nothing."""

from __future__ import annotations

from typing_extensions import override

from edgedeploy.compile.configuration import Configuration
from edgedeploy.tune.search.search import Search


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

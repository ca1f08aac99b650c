"""Evolutionary search: the best candidates so far are varied and crossed; a cost model may say which are worth a trial.

A candidate's genes are the fields of its configuration. Two candidates are crossed by taking each field from either;
one is varied by giving one field another value. What comes out is kept if it is a candidate of the task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from edgedeploy.compile.configuration import Configuration
from edgedeploy.tune.search.search import Search

# Candidates that have offspring, and generations between two batches.
PARENTS = 16
GENERATIONS = 4
# Offspring of a generation, where a model sorts them.
OFFSPRING = 128
# The part of a batch that is chosen at random, so that the search does not settle too early.
AT_RANDOM = 0.1

Genes = tuple[Any, ...]


class Evolution(Search):
    """Genetic search, with or without a cost model."""

    def __init__(
        self,
        candidates: Sequence[Configuration],
        head: int,
        seed: int,
        *,
        prior: Callable[[Configuration], float],
        score: Callable[[Sequence[Configuration]], Sequence[float] | None] | None = None,
    ) -> None:
        """Begin.

        Args:
            candidates, head, seed: as for `Search`.
            prior: what a model of the board expects a candidate to take; the first batch is chosen by it.
            score: predictions for several candidates, more being better, or None while nothing was learnt.
        """
        super().__init__(candidates, head, seed)
        self._score = score
        self._by_prior = sorted(self.candidates, key=prior)
        self._by_genes = {_genes(each): each for each in self.candidates}
        values: dict[tuple[str, int], dict[Any, None]] = defaultdict(dict)
        for genes in self._by_genes:
            for position, value in enumerate(genes):
                values[genes[0], position].setdefault(value)
        self._values = {key: list(found) for key, found in values.items()}

    @override
    def _next(self, count: int, taken: set[Configuration]) -> list[Configuration]:
        untried = self._untried(taken)
        if len(untried) <= count:
            return untried
        ranked = self._ranked(taken, count)
        by_chance = max(1, round(AT_RANDOM * count))
        chosen = list(dict.fromkeys(ranked))[: count - by_chance]
        rest = [each for each in untried if each not in set(chosen)]
        return chosen + self._random.sample(rest, count - len(chosen))

    def _ranked(self, taken: set[Configuration], count: int) -> list[Configuration]:
        """Untried candidates, the most promising first."""
        measured = sorted(
            (each for each, seconds in self.seconds.items() if seconds < float("inf")), key=self.seconds.__getitem__
        )
        likely = [each for each in self._by_prior if each not in taken]
        if len(measured) < count // 2:
            # Nothing to breed from: half of what the model of the board prefers, half from everywhere.
            half = likely[: max(1, count // 2)]
            return half + self._random.sample(likely, min(count, len(likely)))
        if self._score is None or self._score(measured[:1]) is None:
            return self._offspring(measured[:PARENTS], count, taken)
        population = measured[:PARENTS] + likely[:PARENTS]
        found: dict[Configuration, None] = {}
        for _ in range(GENERATIONS):
            found.update(dict.fromkeys(self._offspring(population, OFFSPRING, taken)))
            population = self._sorted([*measured[:PARENTS], *found])[:PARENTS]
        return self._sorted(list(found))

    def _sorted(self, configurations: list[Configuration]) -> list[Configuration]:
        assert self._score is not None
        scores = self._score(configurations)
        assert scores is not None
        order = sorted(range(len(configurations)), key=lambda index: -scores[index])
        return [configurations[index] for index in order]

    def _offspring(
        self, parents: Sequence[Configuration], count: int, taken: set[Configuration]
    ) -> list[Configuration]:
        """Untried candidates that come from parents; fewer where few attempts succeed."""
        children: dict[Configuration, None] = {}
        for _ in range(20 * count):
            if len(children) == count:
                break
            genes = list(_genes(self._random.choice(parents)))
            other = _genes(self._random.choice(parents))
            if other[0] == genes[0] and self._random.random() < 0.5:
                genes = [self._random.choice(pair) for pair in zip(genes, other, strict=True)]
            for _ in range(self._random.choice((1, 1, 2))):
                position = self._random.randrange(1, len(genes))
                genes[position] = self._random.choice(self._values[genes[0], position])
            child = self._by_genes.get(tuple(genes))
            if child is not None and child not in taken:
                children.setdefault(child)
        return list(children)


def _genes(configuration: Configuration) -> Genes:
    """The values of a configuration's fields, its form first."""
    return tuple(getattr(configuration, name) for name in type(configuration).model_fields)

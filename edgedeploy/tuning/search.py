"""Searches: which candidates of a task are tried next, by the times of earlier ones.

The evolutionary search varies and crosses the best candidates so far; a cost model may choose among the offspring.
A candidate's genes are the numbers of its configuration, by field. Two candidates of a form are crossed by taking each
gene from either; one is varied by giving a gene another value. The result is seldom a candidate itself, as sizes
depend on each other: the nearest candidate that was not tried takes its place.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache
from math import log2, prod
from typing import Any

import numpy as np
from typing_extensions import override

from edgedeploy.compile.backends import forms
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.ir.types import bytes_of
from edgedeploy.errors import UnsupportedError
from edgedeploy.tuning.task import Task

# Dimensions of data and of weights that the cost model knows, at most.
_DIMENSIONS = 4

# Fewer results than this teach nothing.
LEAST_RESULTS = 12

_PARAMETERS = {"max_depth": 6, "eta": 0.2, "subsample": 0.9, "objective": "reg:squarederror", "nthread": 1, "seed": 0}
_ROUNDS = 40

TUNERS = ("xgb", "ga", "random", "gridsearch")

# As many of the best from other records are tried right after the default.
MOST_KNOWN = 16

# Candidates that have offspring, and generations between two batches.
PARENTS = 16
GENERATIONS = 4
# Offspring of a generation, where a model sorts them.
OFFSPRING = 128
# The part of a batch that is chosen at random, so that the search does not settle too early.
AT_RANDOM = 0.1

# The weight of a difference in the varied gene, relative to differences in the others.
VARIED_WEIGHT = 4.0


class CostModel:
    """Gradient-boosted trees that predict how fast a candidate is compared with the best of its task.

    They learn from all tasks of a run, and from other records: features describe layer and candidate, not the task.
    Source of the approach: T. Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018.
    """

    def __init__(self) -> None:
        try:
            import xgboost
        except ImportError as error:
            raise UnsupportedError(
                "the tuner xgb needs XGBoost, which is not installed",
                hints=["pip install 'edgedeploy[tune]'", "take another: --tuner ga"],
            ) from error
        self._xgboost: Any = xgboost
        self._results: dict[str, dict[Configuration, tuple[np.ndarray, float]]] = {}
        self._booster: Any = None

    def learn(self, task: Task, results: Iterable[tuple[Configuration, float | None]]) -> None:
        """Learn the times of candidates of a task, in seconds; None for one that failed."""
        known = self._results.setdefault(task.key, {})
        for configuration, seconds in results:
            rate = 1 / seconds if seconds else 0.0
            known[configuration] = features(task, configuration), rate
        self._booster = None

    def predict(self, task: Task, configurations: Sequence[Configuration]) -> Sequence[float] | None:
        """How fast candidates are, the best being about 1; None while too little is known."""
        if self._booster is None:
            self._train()
        if self._booster is None:
            return None
        matrix = np.stack([features(task, each) for each in configurations])
        return [float(value) for value in self._booster.predict(self._xgboost.DMatrix(matrix))]

    def _train(self) -> None:
        rows, values = [], []
        for known in self._results.values():
            best = max((rate for _, rate in known.values()), default=0.0)
            for row, rate in known.values():
                rows.append(row)
                values.append(rate / best if best else 0.0)
        if len(rows) >= LEAST_RESULTS:
            data = self._xgboost.DMatrix(np.stack(rows), label=np.array(values))
            self._booster = self._xgboost.train(_PARAMETERS, data, _ROUNDS)


def features(task: Task, configuration: Configuration) -> np.ndarray:
    """Numbers that describe a candidate: its layer, its form and genes, and the estimate of the board's model."""
    layer, board = task.group.layer, task.processor.board
    estimates = log2(1 + task.strategy.estimate(configuration)), log2(1 + layer.operations)
    tile = configuration.register_tile
    weights = log2(bytes_of(layer.types.weights) * prod(layer.weights[:-1]) * tile.channels)
    return np.array(
        [
            *_logarithms(layer.data),
            *_logarithms(layer.weights),
            *(float(isinstance(configuration, form)) for form in forms()),
            *estimates,
            estimates[0] - estimates[1],
            *(log2(size) for size in (tile.rows, tile.columns, tile.channels)),
            *_genes(configuration),
            weights - log2(1024 * board.cache.l1_kib),
            weights - log2(1024 * board.cache.l2_kib),
        ],
        dtype=np.float32,
    )


def _logarithms(sizes: Sequence[int]) -> list[float]:
    if len(sizes) > _DIMENSIONS:
        raise ValueError(f"the cost model knows {_DIMENSIONS} dimensions, not {len(sizes)}")
    return [log2(size) for size in (*sizes, *[1] * (_DIMENSIONS - len(sizes)))]


def _genes(configuration: Configuration) -> list[float]:
    genes = configuration.genes
    if unknown := genes.keys() - set(_gene_names()):
        raise ValueError(f"the cost model knows no gene {', '.join(sorted(unknown))} of {type(configuration).__name__}")
    return [log2(1 + genes.get(name, 0)) for name in _gene_names()]


@cache
def _gene_names() -> list[str]:
    """The genes of all forms: a form lacks those of the others."""
    return list(dict.fromkeys(name for form in forms() for name in form.gene_names()))


class Search:
    """A search among the candidates of one task, each once; this one tries them in order."""

    def __init__(self, candidates: Sequence[Configuration]) -> None:
        self.candidates = list(candidates)
        # Of those that were tried; infinite if they failed.
        self.seconds: dict[Configuration, float] = {}

    def learn(self, results: Sequence[tuple[Configuration, float | None]]) -> None:
        """Learn what candidates took, in seconds; None for one that failed."""
        for configuration, seconds in results:
            self.seconds[configuration] = float("inf") if seconds is None else seconds

    def propose(self, count: int) -> list[Configuration]:
        """Up to `count` candidates that were not tried yet; none if all were."""
        return [each for each in self.candidates if each not in self.seconds][:count]


class Evolution(Search):
    """Genetic search, with or without a cost model."""

    def __init__(
        self, candidates: Sequence[Configuration], head: int, seed: int, task: Task, model: CostModel | None
    ) -> None:
        """Try the first `head` candidates before any other; `model` sorts the offspring, once it has learnt enough."""
        super().__init__(candidates)
        self._head, self._random = self.candidates[:head], random.Random(seed)
        self._task, self._model = task, model
        self._by_prior = sorted(self.candidates, key=task.strategy.estimate)
        self._populations = {
            form: _Population([each for each in self.candidates if type(each) is form])
            for form in dict.fromkeys(map(type, self.candidates))
        }

    @override
    def learn(self, results: Sequence[tuple[Configuration, float | None]]) -> None:
        super().learn(results)
        if self._model:
            self._model.learn(self._task, results)

    @override
    def propose(self, count: int) -> list[Configuration]:
        chosen = [each for each in self._head if each not in self.seconds][:count]
        if len(chosen) < count:
            chosen += self._next(count - len(chosen), {*self.seconds, *chosen})
        return chosen

    def _next(self, count: int, taken: set[Configuration]) -> list[Configuration]:
        """Up to `count` candidates that are not taken."""
        untried = [each for each in self.candidates if each not in taken]
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
        if len(measured) < max(1, count // 2):
            # Nothing to breed from: half are preferred by the model of the board, half are random.
            half = likely[: max(1, count // 2)]
            return half + self._random.sample(likely, min(count, len(likely)))
        if self._model is None or self._model.predict(self._task, measured[:1]) is None:
            return self._offspring(_parents(measured), count, taken)
        population = _parents(measured) + likely[:PARENTS]
        found: dict[Configuration, None] = {}
        for _ in range(GENERATIONS):
            found.update(dict.fromkeys(self._offspring(population, OFFSPRING, taken)))
            population = _parents(self._sorted([*measured, *found]))
        return self._sorted(list(found))

    def _sorted(self, configurations: list[Configuration]) -> list[Configuration]:
        assert self._model is not None
        scores = self._model.predict(self._task, configurations)
        assert scores is not None
        order = sorted(range(len(configurations)), key=lambda index: -scores[index])
        return [configurations[index] for index in order]

    def _offspring(
        self, parents: Sequence[Configuration], count: int, taken: set[Configuration]
    ) -> list[Configuration]:
        """Untried candidates that descend from parents; fewer if few attempts succeed."""
        free = {form: population.free(taken) for form, population in self._populations.items()}
        children: list[Configuration] = []
        for _ in range(2 * count):
            first, second = self._random.choice(parents), self._random.choice(parents)
            population, untried = self._populations[type(first)], free[type(first)]
            if len(children) == count or not untried.any():
                continue
            index = population.child(first, second if type(second) is type(first) else first, untried, self._random)
            untried[index] = False
            children.append(population.members[index])
        return children


def _parents(ranked: Sequence[Configuration]) -> list[Configuration]:
    """The best of all, and the best of each form: one form may look better only because it was tried first."""
    forms = list(dict.fromkeys(map(type, ranked)))
    each = [[one for one in ranked if type(one) is form][: PARENTS // len(forms)] for form in forms]
    return list(dict.fromkeys([*ranked[: PARENTS // 2], *(one for some in each for one in some)]))


class _Population:
    """The candidates of one form, with their genes as a matrix of candidates x genes."""

    def __init__(self, members: Sequence[Configuration]) -> None:
        self.members = list(members)
        self._index = {each: index for index, each in enumerate(self.members)}
        genes = np.log2(1 + np.array([list(each.genes.values()) for each in self.members], dtype=np.float64))
        self._genes = genes / np.maximum(np.ptp(genes, axis=0), 1e-9)
        self._values = [np.unique(column) for column in self._genes.T]
        self._variable = [gene for gene, values in enumerate(self._values) if len(values) > 1]

    def free(self, taken: set[Configuration]) -> np.ndarray:
        return np.array([each not in taken for each in self.members])

    def child(self, first: Configuration, second: Configuration, free: np.ndarray, chance: random.Random) -> int:
        """The index of the free member that is nearest to a cross of two, with a gene or two varied."""
        genes = self._genes[self._index[first]].copy()
        if chance.random() < 0.5:
            other = self._genes[self._index[second]]
            genes = np.where([chance.random() < 0.5 for _ in genes], genes, other)
        weights = np.ones(len(genes))
        for gene in chance.sample(self._variable, min(len(self._variable), chance.choice((1, 1, 2)))):
            genes[gene] = chance.choice([value for value in self._values[gene] if value != genes[gene]])
            weights[gene] = VARIED_WEIGHT
        distances = np.abs(self._genes - genes) @ weights
        return int(np.argmin(np.where(free, distances, np.inf)))


def search_for(
    tuner: str,
    task: Task,
    model: CostModel | None,
    known: Sequence[tuple[Configuration, float | None]] = (),
    seed: int = 0,
) -> Search:
    """The search that a tuner's name means, among the candidates of a task; the untuned default is first.

    `known` are times of candidates in other records, in seconds; None for one that failed. The model, which is that of
    all tasks of the run for `xgb`, learns from them, and the fastest are tried right after the default.
    """
    if model:
        model.learn(task, known)
    ranked = sorted((seconds, index) for index, (_, seconds) in enumerate(known) if seconds)
    fitting = dict.fromkeys(each for _, index in ranked if task.strategy.fits(each := known[index][0]))
    first = dict.fromkeys([task.candidates[0], *list(fitting)[:MOST_KNOWN]])
    others = [each for each in task.candidates if each not in first]
    if tuner == "random":
        random.Random(seed).shuffle(others)
    candidates = [*first, *others]
    if tuner in ("gridsearch", "random"):
        return Search(candidates)
    return Evolution(candidates, len(first), seed, task, model)

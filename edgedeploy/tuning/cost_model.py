"""The cost model: gradient-boosted trees that predict how fast a candidate is compared with the best of its task.

One model learns from all tasks of a run, and from other records where they are given: its features describe layer and
candidate, not the task. Source of the approach: T. Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from math import log2, prod
from typing import Any

import numpy as np

from edgedeploy.compile.backends import forms
from edgedeploy.compile.configuration import Configuration
from edgedeploy.compile.types import bytes_of
from edgedeploy.errors import UnsupportedError
from edgedeploy.tuning.task import Task

# Of data and of weights, at most.
_DIMENSIONS = 4

# Fewer results than this teach nothing.
LEAST_RESULTS = 12

_PARAMETERS = {"max_depth": 6, "eta": 0.2, "subsample": 0.9, "objective": "reg:squarederror", "nthread": 1, "seed": 0}
_ROUNDS = 40


def imported_xgboost() -> Any:
    """The module, or an error if it is not installed."""
    try:
        import xgboost
    except ImportError as error:
        raise UnsupportedError(
            "the tuner xgb needs XGBoost, which is not installed",
            hints=["pip install 'edgedeploy[tune]'", "take another: --tuner ga"],
        ) from error
    return xgboost


class CostModel:
    """A model of the results so far."""

    def __init__(self) -> None:
        self._xgboost = imported_xgboost()
        self._results: dict[str, dict[Configuration, tuple[np.ndarray, float]]] = {}
        self._booster: Any = None

    def learn(self, task: Task, results: Iterable[tuple[Configuration, float | None]]) -> None:
        """Learn the times of candidates of a task, in seconds; None for one that failed."""
        assert task.group is not None
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
    assert task.group is not None
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

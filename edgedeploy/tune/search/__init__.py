"""Searches: which candidates of a task are tried next, from what earlier ones took."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgedeploy.compile.configuration import Configuration
from edgedeploy.tune.search.evolution import Evolution
from edgedeploy.tune.search.model import CostModel
from edgedeploy.tune.search.plain import Exhaustive, Shuffled
from edgedeploy.tune.search.search import Search
from edgedeploy.tune.task import Task

TUNERS = ("xgb", "ga", "random", "gridsearch")


def search_for(
    tuner: str, task: Task, model: CostModel | None, first: Sequence[Configuration] = (), seed: int = 0
) -> Search:
    """The search that a tuner's name means.

    Args:
        tuner: one of `TUNERS`.
        task: whose candidates are searched.
        model: of all tasks of the run, for `xgb`.
        first: candidates to try right after the default: the best of other records.
        seed: of its random choices.
    """
    candidates = list(dict.fromkeys([task.candidates[0], *first, *task.candidates]))
    head = 1 + len(set(first) - {task.candidates[0]})
    if tuner == "gridsearch":
        return Exhaustive(candidates, head, seed)
    if tuner == "random":
        return Shuffled(candidates, head, seed)
    return Evolution(candidates, head, seed, prior=task.strategy.estimate, score=_score(model, task) if model else None)


def _score(model: CostModel, task: Task) -> Callable[[Sequence[Configuration]], Sequence[float] | None]:
    return lambda configurations: model.predict(task, configurations)


__all__ = ["TUNERS", "CostModel", "Search", "search_for"]

"""Searches: which candidates of a task are tried next, from what earlier ones took."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.compile.configuration import Configuration
from edgedeploy.tuning.search.evolution import Evolution
from edgedeploy.tuning.search.model import CostModel
from edgedeploy.tuning.search.search import Exhaustive, Search, Shuffled
from edgedeploy.tuning.task import Task

TUNERS = ("xgb", "ga", "random", "gridsearch")

# As many of the best from other records are tried right after the default.
MOST_KNOWN = 16


def search_for(
    tuner: str,
    task: Task,
    model: CostModel | None,
    known: Sequence[tuple[Configuration, float | None]] = (),
    seed: int = 0,
) -> Search:
    """The search that a tuner's name means.

    Args:
        tuner: one of `TUNERS`.
        task: whose candidates are searched, the untuned default first.
        model: of all tasks of the run, for `xgb`.
        known: what candidates took according to other records, in seconds; None for one that failed. The model learns
            from it, and the fastest are tried right after the default.
        seed: of its random choices.
    """
    if model:
        model.learn(task, known)
    ranked = sorted((seconds, index) for index, (_, seconds) in enumerate(known) if seconds)
    fitting = dict.fromkeys(each for _, index in ranked if task.strategy.fits(each := known[index][0]))
    first = list(dict.fromkeys([task.candidates[0], *list(fitting)[:MOST_KNOWN]]))
    candidates = list(dict.fromkeys([*first, *task.candidates]))
    if tuner == "gridsearch":
        return Exhaustive(candidates, len(first), seed)
    if tuner == "random":
        return Shuffled(candidates, len(first), seed)
    return Evolution(candidates, len(first), seed, task, model)


__all__ = ["TUNERS", "CostModel", "Search", "search_for"]

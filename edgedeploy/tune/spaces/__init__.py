"""Search spaces: what the candidates of a task are, and which are tried next."""

from __future__ import annotations

from collections.abc import Sequence

from edgedeploy.tune.search import CostModel
from edgedeploy.tune.spaces.space import Candidate, Space
from edgedeploy.tune.spaces.templates import TemplateSpace
from edgedeploy.tune.task import Task
from edgedeploy.tune.trial import Trial

SPACES = ("templates", "metaschedule")


def space_for(name: str, task: Task, tuner: str, model: CostModel | None, known: Sequence[Trial], seed: int) -> Space:
    """The space of a task.

    Args:
        name: one of `SPACES`.
        task: it.
        tuner: one of `search.TUNERS`.
        model: of all tasks of the run, for the tuner `xgb`.
        known: trials of the task from other records, to begin with.
        seed: of random choices.
    """
    assert name == "templates"
    return TemplateSpace(task, tuner, model, known, seed)


__all__ = ["SPACES", "Candidate", "Space", "space_for"]

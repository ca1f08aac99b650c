"""Search spaces: what the candidates of a task are, and which are tried next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgedeploy.board import Board
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.tune.records import Records
from edgedeploy.tune.search import CostModel
from edgedeploy.tune.spaces.space import Candidate, Space
from edgedeploy.tune.spaces.templates import TemplateSpace
from edgedeploy.tune.task import Task

SPACES = ("templates", "metaschedule")


def require_tuner(space: str, tuner: str) -> None:
    """Refuse a tuner that a space cannot be searched by.

    Raises:
        InputError: it needs a list of all candidates, which the space has not.
    """
    if (space, tuner) == ("metaschedule", "gridsearch"):
        raise InputError(
            "gridsearch does not go with --space metaschedule",
            why="nobody can list that space",
            hints=["--tuner xgb, ga or random", "list edgedeploy's own space: --space templates"],
        )


def require_space(space: str, board: Board) -> None:
    """Refuse a space that has no schedules for what a board's networks run on.

    Raises:
        UnsupportedError: it is MetaSchedule's, and they run on a device beside the CPU.
    """
    if space == "metaschedule" and board.device is not None:
        raise UnsupportedError(
            "--space metaschedule has schedules for CPUs only",
            why=f"the board runs its networks on a device ({board.device.name or 'the first one'})",
            hints=["search edgedeploy's own space: --space templates"],
        )


def model_for(space: str, tuner: str, seed: int) -> Any:
    """The cost model that the spaces of all tasks of a run learn with; None if the tuner has none.

    Raises:
        UnsupportedError: XGBoost is needed and not installed.
    """
    if space == "templates":
        return CostModel() if tuner == "xgb" else None
    from edgedeploy.tune.spaces import metaschedule

    return metaschedule.model_of(tuner, seed)


def space_for(
    name: str,
    task: Task,
    tuner: str,
    model: Any,
    records: Records | None = None,
    others: Sequence[Records] = (),
    seed: int = 0,
) -> Space:
    """The space of a task.

    Args:
        name: one of `SPACES`.
        task: it.
        tuner: one of `search.TUNERS`, which `require_tuner` allows.
        model: of `model_for`.
        records: those whose trials the search goes on from, if there are any.
        others: other records, to begin with what they know.
        seed: of random choices.
    """
    if name == "templates":
        known = [trial for each in others for trial in each.trials(task.key)]
        return TemplateSpace(task, tuner, model, known, seed)
    from edgedeploy.tune.spaces.metaschedule import MetaScheduleSpace

    return MetaScheduleSpace(task, model, records, others, seed)


__all__ = ["SPACES", "Candidate", "Space", "model_for", "require_space", "require_tuner", "space_for"]

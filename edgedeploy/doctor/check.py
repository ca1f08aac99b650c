"""What a check is: a name, a group, a function that looks, and what must be in order before it makes sense.

A check looks at one thing and says what it found; where that is not in order, its hints say what to do. `failed` is for
what building, pushing or running needs; what only slows them down, or serves something else, is a warning at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgedeploy.doctor.case import Case
    from edgedeploy.errors import EdgedeployError


class State(str, Enum):
    """How something is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


class Group(str, Enum):
    """What a check is about."""

    HOST = "host"
    BOARD = "board"
    OPENCL = "OpenCL"


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        state: how it is.
        found: what there is, for people.
        hints: what to do, each an imperative sentence or a command.
        details: the same for programs, where there is more than a sentence.
    """

    state: State
    found: str
    hints: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def ok(found: str, *hints: str, **details: Any) -> Finding:
    """All is well."""
    return Finding(State.OK, found, hints, details)


def warning(found: str, *hints: str, **details: Any) -> Finding:
    """It works, but less well than it could, or something else does not."""
    return Finding(State.WARNING, found, hints, details)


def failed(found: str, *hints: str, **details: Any) -> Finding:
    """Networks cannot be built, pushed or run."""
    return Finding(State.FAILED, found, hints, details)


def not_applicable(found: str, *hints: str) -> Finding:
    """There is nothing to look at here."""
    return Finding(State.NOT_APPLICABLE, found, hints)


def failure(error: EdgedeployError) -> Finding:
    """What an error says."""
    return failed(error.cause, *error.hints)


def _always(case: Case) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: unique among all checks.
        group: what it is about.
        look: finds out. It may raise an `EdgedeployError` or an `OSError`, which means `failed`.
        needs: names of the checks that must find all well, or a warning, before this one makes sense.
        applies: whether there is such a thing at all; if not, the check is left out.
        limit_s: how long it may take.
        if_stuck: what to do where it takes longer.
    """

    name: str
    group: Group
    look: Callable[[Case], Finding]
    needs: tuple[str, ...] = ()
    applies: Callable[[Case], bool] = _always
    limit_s: float = 10
    if_stuck: str = "try it again: the machine may be busy"


@dataclass(frozen=True)
class Result:
    """What a check found, and how many seconds it took."""

    check: Check
    finding: Finding
    seconds: float = 0.0


def check(name: str, group: Group, **options: Any) -> Callable[[Callable[[Case], Finding]], Check]:
    """Declare a function to be a check; the options are the attributes of `Check`."""
    return lambda look: Check(name, group, look, **options)

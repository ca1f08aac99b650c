"""Checks: a name, a group, a function that looks, and the checks that must be good first.

A check looks at one thing and reports it, with hints for faults. A fault that prevents building, pushing or running is
`failed`; a fault that only slows them down, or concerns something else, is a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from edgedeploy.doctor.case import Case
    from edgedeploy.errors import EdgedeployError


# The subject of a check.
Group = Literal["host", "board", "OpenCL"]


class State(str, Enum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Finding:
    """The finding of a check."""

    state: State
    found: str
    hints: tuple[str, ...] = ()  # what to do, each an imperative sentence or a command
    details: Mapping[str, Any] = field(default_factory=dict)  # further facts, for programs


def _finding(state: State, found: str, *hints: str, **details: Any) -> Finding:
    return Finding(state, found, hints, details)


ok = partial(_finding, State.OK)
warning = partial(_finding, State.WARNING)
failed = partial(_finding, State.FAILED)
not_applicable = partial(_finding, State.NOT_APPLICABLE)  # there is nothing to check here


def failure(error: EdgedeployError) -> Finding:
    """An error as a finding."""
    return failed(error.cause, *error.hints)


@dataclass(frozen=True)
class Check:
    """One check."""

    name: str  # unique among all checks
    group: Group
    look: Callable[[Case], Finding]  # an `EdgedeployError` or `OSError` from it means `failed`
    needs: tuple[str, ...] = ()  # names of checks that must be `ok` or a warning first
    applies: Callable[[Case], bool] = lambda case: True  # the check is left out if this is false
    limit_s: float = 10
    if_stuck: str = "try it again: the machine may be busy"  # a hint for exceeding `limit_s`


@dataclass(frozen=True)
class Result:
    """A check's finding, and its time in seconds."""

    check: Check
    finding: Finding
    seconds: float = 0.0


def check(name: str, group: Group, **options: Any) -> Callable[[Callable[[Case], Finding]], Check]:
    """Declare a function as a check; the options are the attributes of `Check`."""
    return lambda look: Check(name, group, look, **options)

"""Work on several items, such as networks, where one that fails does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from edgedeploy import interruption
from edgedeploy.errors import EdgedeployError, InternalError, ReaderGoneError
from edgedeploy.refusals import refusal

Item = TypeVar("Item")
Value = TypeVar("Value")


def attempted(work: Callable[[], Value], *, alone: bool = False) -> Value | EdgedeployError:
    """What the work returns, or the error that it ended with.

    Args:
        work: on one item.
        alone: whether there is no other item; errors are then raised.
    """
    try:
        return work()
    except Exception as error:
        interruption.check()
        if alone or isinstance(error, ReaderGoneError):
            raise
        logging.getLogger(__name__).debug("one of several failed", exc_info=error)
        return refusal(error) or InternalError.of(error)


def each_attempted(
    work: Callable[[Item], Value], items: Mapping[str, Item], failed: dict[str, EdgedeployError] | None
) -> list[Value]:
    """What the work returns of each item that it succeeds with.

    Args:
        work: on one item.
        items: by name.
        failed: gets the errors of the others, by name; None: errors are raised.
    """
    done: list[Value] = []
    for name, item in items.items():
        outcome = attempted(partial(work, item), alone=failed is None)
        if isinstance(outcome, EdgedeployError):
            assert failed is not None
            failed[name] = outcome
        else:
            done.append(outcome)
    return done


def first_failure(outcomes: Iterable[object]) -> EdgedeployError | None:
    """The error that all attempts together end with: the first fault. Without a fault, None if at least one succeeded,
    else the first error.

    Args:
        outcomes: of each item, what `attempted` returned.
    """
    found = list(outcomes)
    errors = [each for each in found if isinstance(each, EdgedeployError)]
    faults = [each for each in errors if not each.unavailable]
    return next(iter(faults or (errors if len(errors) == len(found) else [])), None)

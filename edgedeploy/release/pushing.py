"""Pushing to several boards at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeAlias

from edgedeploy.errors import EdgedeployError
from edgedeploy.progress import SILENT, Notes, Progress
from edgedeploy.release.layout import Release
from edgedeploy.release.push import Pushed, push
from edgedeploy.remote.address import Address
from edgedeploy.remote.connection import Connection

# Where, the model if a board was reached, and what came of it.
Result: TypeAlias = tuple[Address, str | None, Pushed | EdgedeployError]


def push_all(
    targets: Sequence[Address],
    releases_for_them: Callable[[], Sequence[Release]],
    options: dict[str, Any],
    *,
    strict: bool = False,
    progress: Progress = SILENT,
) -> list[Result]:
    """Push to all boards at the same time, to each one release after another.

    All are logged in to first: releases, which may take minutes to build, are asked for if one of them answers.
    Connections that ended meanwhile are made anew.

    Args:
        targets: the boards.
        releases_for_them: gives the releases.
        options: of `push`.
        strict: whether host keys must be known.
        progress: is told of each step; of notes alone where there are several boards.

    Returns:
        What came of each release on each board; what goes wrong is among it.
    """
    alone = len(targets) == 1
    shown = progress if alone else Notes(progress)

    def attempted(work: Callable[..., Any], *arguments: object, **how: Any) -> Any:
        try:
            return work(*arguments, progress=shown, **how)
        except EdgedeployError as error:
            return error

    def logged_in(address: Address) -> Connection | EdgedeployError:
        found: Connection | EdgedeployError = attempted(Connection, address, strict=strict)
        return stack.enter_context(found) if isinstance(found, Connection) else found

    def alive(address: Address, place: Connection | EdgedeployError) -> Connection | EdgedeployError:
        return logged_in(address) if isinstance(place, Connection) and not place.alive else place

    def serve(address: Address, place: Connection | EdgedeployError) -> list[Result]:
        if isinstance(place, EdgedeployError):
            return [(address, each.model if each else None, place) for each in releases]
        return [(address, each.model, attempted(push, place, each, **options)) for each in releases if each]

    # Connections are closed before the pool waits for its threads, which would go on after Ctrl-C.
    with ThreadPoolExecutor(len(targets)) as pool, ExitStack() as stack:
        at_once = map if alone else pool.map
        places = list(at_once(logged_in, targets))
        reached = any(isinstance(place, Connection) for place in places)
        releases: Sequence[Release | None] = releases_for_them() if reached else [None]
        places = list(at_once(alive, targets, places))
        return [result for results in at_once(serve, targets, places) for result in results]

"""Pushing to several boards at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

from edgedeploy.attempts import attempted
from edgedeploy.errors import EdgedeployError
from edgedeploy.progress import SILENT, Notes, Progress
from edgedeploy.release.layout import Release
from edgedeploy.release.push import Pushed, push
from edgedeploy.remote.address import Address
from edgedeploy.remote.connection import Connection

# Where, the model if one is known, and what came of it.
Result: TypeAlias = tuple[Address, str | None, Pushed | EdgedeployError]


def push_all(
    targets: Sequence[Address],
    releases_for_them: Callable[[], Mapping[str, Release | EdgedeployError]],
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
        releases_for_them: gives the release of each name that was given, or what keeps it from being built.
        options: of `push`.
        strict: whether host keys must be known.
        progress: is told of each step; of notes alone where there are several boards.

    Returns:
        What came of each release on each board; what goes wrong is among it.
    """
    alone = len(targets) == 1
    shown = progress if alone else Notes(progress)

    def logged_in(address: Address) -> Connection | EdgedeployError:
        found = attempted(partial(Connection, address, strict=strict, progress=shown))
        return stack.enter_context(found) if isinstance(found, Connection) else found

    def alive(address: Address, place: Connection | EdgedeployError) -> Connection | EdgedeployError:
        return logged_in(address) if isinstance(place, Connection) and not place.alive else place

    def serve(address: Address, place: Connection | EdgedeployError) -> list[Result]:
        if isinstance(place, EdgedeployError):
            return [(address, name, place) for name in names]
        return [
            (address, name, each)
            if isinstance(each, EdgedeployError)
            else (address, each.model, attempted(partial(push, place, each, progress=shown, **options)))
            for name, each in releases.items()
        ]

    # Connections are closed before the pool waits for its threads, which would go on after Ctrl-C.
    with ThreadPoolExecutor(len(targets)) as pool, ExitStack() as stack:
        at_once = map if alone else pool.map
        places = list(at_once(logged_in, targets))
        reached = any(isinstance(place, Connection) for place in places)
        releases = releases_for_them() if reached else {}
        names: list[str | None] = [each.model if isinstance(each, Release) else name for name, each in releases.items()]
        names = names or [None]
        places = list(at_once(alive, targets, places))
        return [result for results in at_once(serve, targets, places) for result in results]

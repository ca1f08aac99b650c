"""When images are looked at: at the rate at which they were taken, and not while a page is paused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic, perf_counter, sleep
from typing import TypeVar

from edgedeploy.live.showing import Showing

Item = TypeVar("Item")

# Who is later than this does not hurry to catch up, in seconds.
_LATEST_S = 0.5
_ASK_S = 0.1


def timed(images: Iterable[Item]) -> Iterator[tuple[Item, float]]:
    """Each image with how long it took to come, in milliseconds."""
    iterator = iter(images)
    while True:
        started = perf_counter()
        try:
            image = next(iterator)
        except StopIteration:
            return
        yield image, 1e3 * (perf_counter() - started)


def paced(
    images: Iterable[Item],
    showing: Showing,
    stopped: Callable[[], bool],
    *,
    rate: float | None = None,
    live: bool = False,
) -> Iterator[Item]:
    """Images when their time has come, until `stopped` says so.

    Args:
        images: they.
        showing: where they are shown, which browsers may pause.
        stopped: whether to end; asked ten times a second.
        rate: images per second; None: as fast as they come.
        live: images go by, as those of a camera: in a pause they are dropped. Others wait.
    """
    due = monotonic()
    for image in images:
        if live and showing.paused and not stopped():
            continue
        showing.wait_while_paused(stopped)
        while rate and (left := due - monotonic()) > 0 and not stopped():
            sleep(min(left, _ASK_S))
        if stopped():
            return
        yield image
        if rate:
            due = max(due, monotonic() - _LATEST_S) + 1 / rate

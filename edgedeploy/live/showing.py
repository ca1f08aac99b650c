"""What a live page shows at this moment. Whoever looks at images puts them here and never waits for a browser."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition
from time import monotonic
from typing import Any, Literal

from edgedeploy.live.seen import Seen

State = Literal["starting", "running", "paused", "ended"]

# Rates and times are means over that many seconds, and at most so many images.
_WINDOW_S = 2.0
_MOST_IMAGES = 512
# How soon who waits while it is paused asks whether to stop, in seconds.
_ASK_S = 0.1
# Of results that a page lists.
_MOST_RESULTS = 50


class Showing:
    """The newest image, whether browsers paused, and the rates. All threads may call it."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._newest: Seen | None = None
        self._recent: deque[tuple[float, Seen]] = deque(maxlen=_MOST_IMAGES)
        self._paused = False
        self._ended = False

    @property
    def paused(self) -> bool:
        """Whether a browser asked for a pause."""
        return self._paused

    def put(self, seen: Seen) -> None:
        """Show an image in the place of the one before."""
        now = monotonic()
        with self._changed:
            self._newest = seen
            self._recent.append((now, seen))
            while now - self._recent[0][0] > _WINDOW_S and len(self._recent) > 2:
                self._recent.popleft()
            self._changed.notify_all()

    def next(self, after: Seen | None, timeout_s: float) -> Seen | None:
        """The newest image if it is another one than `after`; waits for it, until the end, or for `timeout_s` at most.

        Who is slow misses those in between.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._newest is not after or self._ended, timeout_s)
            return self._newest if self._newest is not after else None

    @property
    def newest(self) -> Seen | None:
        """The image that is shown; None before the first."""
        return self._newest

    @property
    def ended(self) -> bool:
        """Whether no further image comes."""
        return self._ended

    def pause(self) -> None:
        """Have no further image looked at."""
        self._set_paused(True)

    def resume(self) -> None:
        """Go on after a pause."""
        self._set_paused(False)

    def wait_while_paused(self, stopped: Callable[[], bool]) -> None:
        """Wait as long as it is paused, until `stopped` says so."""
        with self._changed:
            while self._paused and not stopped():
                self._changed.wait(_ASK_S)

    def end(self) -> None:
        """No further image comes: whoever waits for one goes on."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def as_dict(self) -> dict[str, Any]:
        """The state, the rates and the results, as the page asks for them; times are means in milliseconds."""
        with self._changed:
            newest, recent = self._newest, list(self._recent)
            paused, ended = self._paused, self._ended
        state: State = "ended" if ended else "paused" if paused else "running" if newest else "starting"
        return {
            "state": state,
            "frame": newest.index if newest else None,
            "fps": _rate(recent),
            "times_ms": _means([seen for _, seen in recent]),
            "results": list(newest.results[:_MOST_RESULTS]) if newest else [],
        }

    def _set_paused(self, paused: bool) -> None:
        with self._changed:
            if self._paused and not paused:
                self._recent.clear()  # the pause is no part of the rate
            self._paused = paused
            self._changed.notify_all()


def _rate(recent: list[tuple[float, Seen]]) -> float | None:
    if len(recent) < 2 or recent[-1][0] == recent[0][0]:
        return None
    return (len(recent) - 1) / (recent[-1][0] - recent[0][0])


def _means(recent: list[Seen]) -> dict[str, float]:
    names = recent[-1].times_ms if recent else {}
    means = {name: sum(seen.times_ms[name] for seen in recent) / len(recent) for name in names}
    drawn = [seen.drawing_ms for seen in recent if seen.drawing_ms is not None]
    return means | ({"drawing": sum(drawn) / len(drawn)} if drawn else {})

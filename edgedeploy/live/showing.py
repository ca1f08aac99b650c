"""The state of a live page, and the pace of its images."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from threading import Condition, Lock
from time import monotonic, perf_counter, sleep
from typing import Any, Literal, TypeVar

import cv2
import numpy as np

from edgedeploy.errors import OutputError

# The longer side of streamed pictures, in pixels. Saved ones have the image's own size.
_STREAMED = 1280
_QUALITY = 85


class Seen:
    """An image with a line for each result, and the time of each part, drawn and encoded on the first request.

    Any thread may request it; `drawing_ms` is None before that.
    """

    def __init__(
        self, index: int, draw: Callable[[], np.ndarray], results: Sequence[str], times_ms: Mapping[str, float]
    ) -> None:
        """`draw` gives the image with the results on it: uint8, height x width x 3, B G R."""
        self.index, self.results, self.times_ms = index, results, times_ms
        self.drawing_ms: float | None = None
        self._draw = draw
        self._lock = Lock()
        self._streamed: bytes | None = None

    def streamed(self) -> bytes:
        """The drawn image as JPEG, scaled down for browsers."""
        with self._lock:
            if self._streamed is None:
                started = perf_counter()
                image = self._drawn
                scale = _STREAMED / max(image.shape[:2])
                if scale < 1:
                    image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
                self._streamed = _jpeg(image)
                self.drawing_ms = 1e3 * (perf_counter() - started)
            return self._streamed

    def whole(self) -> bytes:
        """The drawn image as JPEG in its own size."""
        with self._lock:
            return _jpeg(self._drawn)

    @cached_property
    def _drawn(self) -> np.ndarray:
        return self._draw()


def _jpeg(image: np.ndarray) -> bytes:
    done, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise OutputError(f"an image of {image.shape[1]}x{image.shape[0]} pixels cannot be written as JPEG")
    return encoded.tobytes()


State = Literal["starting", "running", "paused", "ended"]

# Rates and times are means over so many seconds, and at most so many images.
_WINDOW_S = 2.0
_MOST_IMAGES = 512
_MOST_RESULTS = 50  # listed on a page
_ASK_S = 0.1  # how often `stopped` is called in a pause, in seconds
_LATEST_S = 0.5  # a larger delay is not caught up, in seconds


class Showing:
    """The newest image, whether browsers paused, and the rates. Thread-safe; callers never wait for browsers.

    Without a `rate`, images are as fast as they come; `live` ones, such as those of a camera, are dropped in a pause.
    """

    def __init__(self, *, rate: float | None = None, live: bool = False) -> None:
        self.rate, self.live = rate, live
        self._changed = Condition()
        self.newest: Seen | None = None
        self._recent: deque[tuple[float, Seen]] = deque(maxlen=_MOST_IMAGES)
        self.paused = False
        self.ended = False

    def put(self, seen: Seen) -> None:
        """Show the next image."""
        now = monotonic()
        with self._changed:
            self.newest = seen
            self._recent.append((now, seen))
            while now - self._recent[0][0] > _WINDOW_S and len(self._recent) > 2:
                self._recent.popleft()
            self._changed.notify_all()

    def next(self, after: Seen | None, timeout_s: float) -> Seen | None:
        """Wait for an image other than `after`, for at most `timeout_s`; None at the end. Slow callers skip images."""
        with self._changed:
            self._changed.wait_for(lambda: self.newest is not after or self.ended, timeout_s)
            return self.newest if self.newest is not after else None

    def set_paused(self, paused: bool) -> None:
        """Pause the demo, or go on."""
        with self._changed:
            if self.paused and not paused:
                self._recent.clear()  # the rate excludes the pause
            self.paused = paused
            self._changed.notify_all()

    def wait_while_paused(self, stopped: Callable[[], bool]) -> None:
        """Wait until the end of a pause, or until `stopped` returns true."""
        with self._changed:
            while self.paused and not stopped():
                self._changed.wait(_ASK_S)

    def end(self) -> None:
        """There are no more images: wake all waiting threads."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def as_dict(self) -> dict[str, Any]:
        """The page's state, rates and results; times are means in milliseconds."""
        with self._changed:
            newest, recent = self.newest, list(self._recent)
            paused, ended = self.paused, self.ended
        state: State = "ended" if ended else "paused" if paused else "running" if newest else "starting"
        return {
            "state": state,
            "frame": newest.index if newest else None,
            "fps": _rate(recent),
            "times_ms": _means([seen for _, seen in recent]),
            "results": list(newest.results[:_MOST_RESULTS]) if newest else [],
        }


def _rate(recent: list[tuple[float, Seen]]) -> float | None:
    if len(recent) < 2 or recent[-1][0] == recent[0][0]:
        return None
    return (len(recent) - 1) / (recent[-1][0] - recent[0][0])


def _means(recent: list[Seen]) -> dict[str, float]:
    names = recent[-1].times_ms if recent else {}
    means = {name: sum(seen.times_ms[name] for seen in recent) / len(recent) for name in names}
    drawn = [seen.drawing_ms for seen in recent if seen.drawing_ms is not None]
    return means | ({"drawing": sum(drawn) / len(drawn)} if drawn else {})


Item = TypeVar("Item")


def timed(images: Iterable[Item]) -> Iterator[tuple[Item, float]]:
    """Each image with the time until it came, in milliseconds."""
    started = perf_counter()
    for image in images:
        yield image, 1e3 * (perf_counter() - started)
        started = perf_counter()


def paced(images: Iterable[Item], showing: Showing, stopped: Callable[[], bool]) -> Iterator[Item]:
    """Images at the rate of `showing`, where browsers may pause, until `stopped` returns true.

    `stopped` is called ten times a second.
    """
    due, rate = monotonic(), showing.rate
    for image in images:
        if showing.live and showing.paused and not stopped():
            continue
        showing.wait_while_paused(stopped)
        while rate and (left := due - monotonic()) > 0 and not stopped():
            sleep(min(left, _ASK_S))
        if stopped():
            return
        yield image
        if rate:
            due = max(due, monotonic() - _LATEST_S) + 1 / rate

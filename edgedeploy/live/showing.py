"""What a live page shows at this moment, and when images are looked at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Condition, Lock
from time import monotonic, perf_counter, sleep
from typing import Any, Literal, TypeVar

import cv2
import numpy as np

from edgedeploy.errors import OutputError

# The longer side of what browsers are sent all the time, in pixels. What they save has the image's own size.
_STREAMED = 1280
_QUALITY = 85


class Seen:
    """An image with its results and times. Any thread may ask for pictures of it; it is drawn once.

    Attributes:
        index: which image of the source it is, from 0.
        results: one line for each result.
        times_ms: how long each part took, in milliseconds, by the part's name.
        drawing_ms: how long drawing took; None as long as nobody has asked for a picture.
    """

    def __init__(
        self, index: int, draw: Callable[[], np.ndarray], results: Sequence[str], times_ms: Mapping[str, float]
    ) -> None:
        """`draw` gives the image with the results on it: uint8, height x width x 3, B G R."""
        self.index, self.results, self.times_ms = index, results, times_ms
        self.drawing_ms: float | None = None
        self._draw = draw
        self._lock = Lock()
        self._drawn: np.ndarray | None = None
        self._streamed: bytes | None = None

    def streamed(self) -> bytes:
        """The drawn image as JPEG, no larger than a browser needs."""
        with self._lock:
            if self._streamed is None:
                started = perf_counter()
                image = self._image()
                scale = _STREAMED / max(image.shape[:2])
                if scale < 1:
                    image = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
                self._streamed = _jpeg(image)
                self.drawing_ms = 1e3 * (perf_counter() - started)
            return self._streamed

    def whole(self) -> bytes:
        """The same in the image's own size."""
        with self._lock:
            return _jpeg(self._image())

    def _image(self) -> np.ndarray:
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn


def _jpeg(image: np.ndarray) -> bytes:
    done, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise OutputError(f"an image of {image.shape[1]}x{image.shape[0]} pixels cannot be written as JPEG")
    return encoded.tobytes()


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

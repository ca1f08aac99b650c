"""Progress of long work, reported without knowing who listens.

Library code takes a `Progress`; the command line shows bars and lines (`edgedeploy.cli.console`), and a program that
calls the library need not pass any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

# How often progress is printed without a bar.
SECONDS_PER_LINE = 10.0


class Progress:
    """A listener that ignores everything; the command line derives from it."""

    def stage(self, title: str) -> AbstractContextManager[None]:
        """A step of unknown length, such as "compile"."""
        return nullcontext()

    def transfer(self, title: str, total: int, done: int = 0) -> AbstractContextManager[Callable[[int], None]]:
        """A transfer of `total` bytes, `done` of which are finished; call the result with each further count."""
        return nullcontext(lambda count: None)

    def steps(self, title: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """Work in `total` equal steps; call the result after each, from any thread."""
        return nullcontext(lambda: None)

    def note(self, text: str) -> None:
        """One line that the user should see: a decision taken, a default used."""


class Notes(Progress):
    """Passes on notes alone: for work in several threads, whose bars would overwrite each other."""

    def __init__(self, listener: Progress) -> None:
        self._listener = listener

    def note(self, text: str) -> None:
        """Pass it on."""
        self._listener.note(text)


SILENT = Progress()


def paced(tell: Callable[[int], None], clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Count steps, from any thread, and call `tell` with their number at most every `SECONDS_PER_LINE` of the clock."""
    lock, done, told_at = threading.Lock(), 0, clock()

    def advance() -> None:
        nonlocal done, told_at
        with lock:
            done += 1
            if clock() - told_at >= SECONDS_PER_LINE:
                told_at = clock()
                tell(done)

    return advance

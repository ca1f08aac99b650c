"""Keeps what users are told meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from edgedeploy.base.progress import Progress


class Notebook(Progress):
    """A listener that keeps all notes, a line each, and how far each work in steps came: done, and of how many."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: dict[str, tuple[int, int]] = {}

    @contextmanager
    def steps(self, title: str, total: int) -> Iterator[Callable[[], None]]:
        self.counts[title] = (0, total)

        def advance() -> None:
            done, _ = self.counts[title]
            self.counts[title] = (done + 1, total)

        yield advance

    def note(self, text: str) -> None:
        self.lines.append(text)

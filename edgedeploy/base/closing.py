"""Resources and threads that end with a block, and what is undone if it fails."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from typing_extensions import Self


class Closing(ABC):
    """A context manager whose block ends with `close`, however it ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Release it. Once more does nothing."""


@contextmanager
def on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block fails, or is interrupted."""
    try:
        yield
    except BaseException:
        undo()
        raise


@contextmanager
def beside(work: Callable[[], object], end: Callable[[], object], wait_s: float | None = None) -> Iterator[None]:
    """Run `work` in a thread beside the block; then call `end`, after which it returns, and wait `wait_s` at most."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end()
        thread.join(wait_s)

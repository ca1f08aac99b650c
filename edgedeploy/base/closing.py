"""Resources that are closed at the end of a block."""

from __future__ import annotations

from abc import ABC, abstractmethod

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

"""Keeps what users are told meanwhile."""

from __future__ import annotations

from edgedeploy.progress import Progress


class Notebook(Progress):
    """A listener that keeps all notes, a line each."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)

"""The command line in tests, where it is to do what it is asked for."""

from __future__ import annotations

from collections.abc import Callable


def output_of(command: Callable[..., tuple[int, str, str]], *arguments: object) -> str:
    """What a command prints, which must succeed; `command` is one of the fixtures that run the command line."""
    code, out, err = command(*arguments)
    assert code == 0, out + err
    return out

"""Options and completions that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_board(incomplete: str) -> list[str]:
    """Names of boards that begin with what was typed."""
    from edgedeploy.board import BOARDS

    return [name for name in BOARDS.names() if name.startswith(incomplete)]


BoardOption = Annotated[
    str,
    typer.Option("--board", "-b", help="A board's name, or a path to its YAML file.", autocompletion=complete_board),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value for scripts.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", "-t", min=1, help="Threads to use; the board's cores by default.")
]

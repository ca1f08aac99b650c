"""Options and completions that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer


def complete_board(incomplete: str) -> list[str]:
    """Names of boards that begin with what was typed."""
    from edgedeploy.board import BOARDS

    return [name for name in BOARDS.names() if name.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Names of the zoo that begin with what was typed; the shell itself completes paths."""
    from edgedeploy.zoo.entry import MODELS

    return [name for name in MODELS.names() if name.startswith(incomplete)]


def complete_toolchain(incomplete: str) -> list[str]:
    """Names of toolchains that begin with what was typed."""
    from edgedeploy.toolchain import TOOLCHAINS

    return [name for name in TOOLCHAINS.names() if name.startswith(incomplete)]


def parse_shapes(options: list[str] | None) -> dict[str, list[int]]:
    """The values of `--input-shape`, `NAME:1,3,224,224` each, as shapes by input name.

    Raises:
        InputError: a value has another form.
    """
    from edgedeploy.errors import InputError

    shapes = {}
    for option in options or []:
        name, _, sizes = option.rpartition(":")
        try:
            shapes[name] = [int(size) for size in sizes.strip("[]").split(",")]
        except ValueError:
            name = ""
        if not name:
            raise InputError(f"{option!r} is not a shape", hints=["write it as NAME:1,3,224,224"])
    return shapes


BoardOption = Annotated[
    str,
    typer.Option("--board", "-b", help="A board's name, or a path to its YAML file.", autocompletion=complete_board),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value for scripts.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", "-t", min=1, help="Threads to use; the board's cores by default.")
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:D,D,...", help="The shape of an input; may be given for each input."),
]

"""`edgedeploy new`: files to start from."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from edgedeploy.cli.options import JsonOption, complete_model

app = typer.Typer()


class Language(str, Enum):
    """What programs are written in."""

    C = "c"
    CPP = "cpp"
    PYTHON = "python"


@app.callback()
def new() -> None:
    """Write files to start from."""


@app.command("app")
def new_app(
    *,
    language: Annotated[Language, typer.Option(help="What the program is written in.")],
    model: Annotated[
        str, typer.Option(help="The network that it runs, by the name of its releases.", autocompletion=complete_model)
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Write to this folder; MODEL-app by default."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Write a program that shows images to a network on a board, and prints what it sees there.

    Example: edgedeploy new app --language cpp --model yolo-fastest
    """
    from edgedeploy.agent.library import write_program
    from edgedeploy.cli.console import print_json, stdout

    folder = output or Path(f"{model}-app")
    files = write_program(language.value, model, folder)
    if json_output:
        print_json({"model": model, "folder": str(folder), "files": [str(name) for name in files]})
        return
    for name in files:
        stdout().print(str(folder / name))
    recipe = folder / next((name for name in files if name.name == "CMakeLists.txt"), files[0])
    stdout().print(f"{recipe} says how it is built; `edgedeploy push {model}` puts the network on a board, and")
    stdout().print("`edgedeploy library` writes what programs are built with")

"""`edgedeploy new`: files to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Option

from edgedeploy.cli.console import print_result
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import complete_model

app = Commands()


@app.callback()
def new() -> None:
    """Write files to start from."""


@app.command("app")
def new_app(
    *,
    language: Literal["c", "cpp", "python"] = Option(..., help="The program's language."),
    model: str = Option(..., help="The network to run: the name of its releases.", autocompletion=complete_model),
    output: Path | None = Option(None, "--output", "-o", metavar="FOLDER", help="Folder to write; default: MODEL-app."),
) -> None:
    """Write a program that runs a network on images on a board, and prints the results.

    Example: edgedeploy new app --language cpp --model yolo-fastest
    """
    from edgedeploy.agent.library import write_program

    folder = output or Path(f"{model}-app")
    files = write_program(language, model, folder)
    recipe = folder / next((name for name in files if name.name == "CMakeLists.txt"), files[0])
    print_result(
        {"model": model, "folder": str(folder), "files": [str(name) for name in files]},
        *(str(folder / name) for name in files),
        f"{recipe} says how to build it; `edgedeploy push {model}` puts the network on a board, and",
        "`edgedeploy library` writes the library to build it with",
    )

"""`edgedeploy demo`: pictures through networks, with results to read, to save or to compare with Tengine's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.options import (
    HostOption,
    JsonOption,
    LastBoardOption,
    StrictOption,
    ThreadsOption,
    VirtualOption,
    Weights,
    WeightsOption,
    board_or_last,
    complete_model,
    import_options,
)
from edgedeploy.cli.overrides import overridable

if TYPE_CHECKING:
    from edgedeploy.board import Overrides
    from edgedeploy.demo.program import Screening

ALL = "all"


def complete_demo(incomplete: str) -> list[str]:
    """Names of demos that begin with what was typed."""
    from edgedeploy.demo.spec import DEMOS

    return [name for name in [*DEMOS.names(), ALL] if name.startswith(incomplete)]


@overridable
def demo(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A demo's name or file, or `all`; without it the demos are listed.", autocompletion=complete_demo
        ),
    ] = None,
    image: Annotated[
        Path | None, typer.Option("--image", help="Show this picture, of any size, instead of the demo's.")
    ] = None,
    board: LastBoardOption = None,
    host: HostOption = None,
    virtual: VirtualOption = False,
    strict_host_key: StrictOption = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Use this network, a name of the zoo or a file, instead of the demo's.",
            autocompletion=complete_model,
        ),
    ] = None,
    weights: WeightsOption = Weights.file,
    repeat: Annotated[int, typer.Option("--repeat", "-r", min=1, help="How many inferences to time.")] = 1,
    threads: ThreadsOption = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save", help="Save the picture with its results; `all` puts each demo's name into the file's name."
        ),
    ] = None,
    *,
    overrides: Overrides,
    json_output: JsonOption = False,
) -> None:
    """Show a picture to a network and print what it sees, in the format of Tengine's examples.

    On a board the network alone runs there; the picture is prepared and the outputs are read here. Without
    --board it is the last board that was built for in this folder, or this machine.

    The results go to standard output, progress to standard error. `all` runs the demos one after another,
    goes on when one fails, and ends with the exit code of the first that failed.

    Example: edgedeploy demo retinaface --save faces.jpg

    Example: edgedeploy demo retinaface --board rpi4 --virtual

    Example: edgedeploy demo yolo-fastest --image street.jpg --json

    Example: edgedeploy demo all | tee demo.log
    """
    if name is None:
        _list(json_output)
        return
    from edgedeploy.cli.console import print_error, print_json, quiet_if
    from edgedeploy.demo.program import play
    from edgedeploy.demo.spec import DEMOS
    from edgedeploy.errors import EdgedeployError, InputError
    from edgedeploy.runtime.opening import Place
    from edgedeploy.vision.picture import check_writable, write_picture

    if name == ALL and model:
        raise InputError("--model needs one demo", hints=["name the demo that the network is for, instead of all"])
    if save:
        check_writable(save)
    names = DEMOS.names() if name == ALL else [name]
    progress = quiet_if(json_output)
    place = Place(board_or_last(board, progress, otherwise="local"), host, virtual, strict_host_key)
    shown: list[Screening] = []
    first_code = 0
    for each in names:
        try:
            screening = play(
                each,
                place=place,
                model=model,
                image=image,
                repeat=repeat,
                threads=threads,
                overrides=overrides,
                options=import_options(weights),
                progress=progress,
            )
            if save:
                write_picture(_with_name(save, each) if name == ALL else save, screening.drawn())
        except EdgedeployError as error:
            if name != ALL:
                raise
            print_error(error)
            first_code = first_code or error.exit_code
            continue
        if not json_output:
            print(*([""] if shown else []), *screening.log(), sep="\n", flush=True)
        shown.append(screening)
    if json_output:
        objects = [screening.as_dict() for screening in shown]
        print_json(objects if name == ALL else objects[0])
    if first_code:
        raise typer.Exit(first_code)


def _with_name(path: Path, name: str) -> Path:
    return path.with_name(f"{path.stem}-{name}{path.suffix}")


def _list(json_output: bool) -> None:
    from edgedeploy.cli.console import print_json, readable, stdout
    from edgedeploy.demo.spec import DEMOS

    demos = {path.stem: each for path, each in readable(DEMOS)}
    if json_output:
        print_json(
            [{"name": name, "model": each.model, "description": each.description} for name, each in demos.items()]
        )
        return
    from rich.table import Table

    table = Table("demo", "model", "description", box=None, pad_edge=False)
    for name, each in demos.items():
        table.add_row(name, each.model, each.description)
    stdout().print(table)

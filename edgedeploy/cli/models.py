"""`edgedeploy models`: the networks of the zoo, and their files on this machine."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgedeploy.cli.console import print_error, print_json, print_table, quiet_if, readable, stdout
from edgedeploy.cli.options import (
    InputShapeOption,
    JsonOption,
    SetOption,
    complete_model,
    file_option,
    parse_numbers,
    parse_shapes,
    parse_values,
)
from edgedeploy.errors import DownloadError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edgedeploy.zoo.entry import ZooFile, ZooModel


app = typer.Typer(invoke_without_command=True)

ModelName = Annotated[str, typer.Argument(help="A model's name or file.", autocompletion=complete_model)]
ModelNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Models' names or files.", autocompletion=complete_model)
]


class Preset(str, Enum):
    """Means and deviations that have a name."""

    imagenet = "imagenet"


@app.callback()
def list_models(context: typer.Context, json_output: JsonOption = False) -> None:
    """List the known networks, and where their files are.

    A network's files are bundled (inside edgedeploy), in a mirror (a folder that EDGEDEPLOY_MODELS names), cached
    (downloaded before) or absent; "partly" means that some of them are absent. "architecture" has none: edgedeploy
    writes it itself, with random weights. "yours" stands for networks of your own, which a demo takes by --model.

    Example: edgedeploy models
    """
    if context.invoked_subcommand is not None:
        return

    summaries = [_summary(path, model) for path, model in _all_entries()]
    if json_output:
        print_json(summaries)
        return
    from rich.filesize import decimal

    rows = ([each["name"], each["task"], decimal(each["size"]), each["state"]] for each in summaries)
    print_table(["model", "task", "size", "files"], rows, right=["size"])


@app.command()
def show(
    name: ModelName,
    graph: Annotated[
        Path | None,
        file_option(
            "--graph", what="Draw its layers, with shapes and parameters: svg, png, pdf or dot.", metavar="FILE"
        ),
    ] = None,
    input_shape: InputShapeOption = None,
    set_inputs: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show one network: its inputs and outputs, its licence, and where its files are.

    With --graph it is downloaded if it is not here yet, and Graphviz draws its layers; NAME may then be any network's
    file. A convolution shares its box with its normalisation and activation, and a block that follows itself has one
    box.

    Examples: edgedeploy models show yunet; edgedeploy models show net.onnx --graph net.svg
    """
    if graph:
        from edgedeploy.frontends.format import ImportOptions
        from edgedeploy.zoo.drawing import draw
        from edgedeploy.zoo.source import find_source

        # A drawing needs no weights.
        options = ImportOptions(weights="random", values=parse_values(set_inputs))
        drawn = draw(find_source(name, parse_shapes(input_shape), quiet_if(json_output), options), graph)
        if json_output:
            print_json({"name": name, "graph": str(graph), "layers": drawn.layers, "boxes": drawn.boxes})
        else:
            boxes = "" if drawn.boxes == drawn.layers else f" in {drawn.boxes} boxes"
            stdout().print(f"{graph}: {drawn.layers} layers{boxes}")
        return
    path, model = _entry(name)
    summary = _summary(path, model)
    if json_output:
        content = model.model_dump(exclude_none=True, exclude={"files"})
        print_json({"name": path.stem, "file": str(path), **content, **summary})
        return
    import yaml

    console = stdout()
    console.print(f"# {path}")
    document = yaml.safe_dump(model.model_dump(exclude_defaults=True), sort_keys=False, width=1000)
    console.print(*document.rstrip().split("\n"), "", sep="\n")
    for file in summary["files"]:
        where = f"{file['state']}, {file['path']}" if file["path"] else "absent"
        console.print(f"{file['name']}: {where}")


@app.command()
def pull(
    names: ModelNames = None,
    everything: Annotated[bool, typer.Option("--all", help="Fetch every network that has a download.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Download networks that are not on this machine yet; interrupted downloads are resumed.

    Example: edgedeploy models pull yunet pfld
    """
    from edgedeploy.zoo import store

    if bool(names) == everything:
        raise InputError("which models?", why="name some, or give --all", hints=["list them with `edgedeploy models`"])
    progress = quiet_if(json_output)
    failures: list[DownloadError] = []
    had: list[dict[str, Any]] = []
    entries = _all_entries() if everything else [_entry(name) for name in names or ()]
    for path, model in entries:
        if not model.has_form:
            progress.note(f"{path.stem}: nothing to fetch, it stands for a network of your own")
            continue
        if not model.files:
            progress.note(f"{path.stem}: nothing to fetch, it is an architecture; use it with --weights random")
            continue
        unavailable = [file for file in model.files if not file.has_download and not store.locate(file, path.parent)]
        if everything and unavailable:
            progress.note(f"{path.stem}: left out, {unavailable[0].name} has no download")
            continue
        try:
            source, obtained = store.obtainable(path, model, progress)
            copies = store.pull(obtained, folder=source.parent, progress=progress)
            had.append({"name": path.stem, "files": list(map(str, copies))})
            for copy in copies if not json_output else ():
                stdout().print(f"{path.stem}: {copy}")
        except DownloadError as error:
            if len(entries) == 1:
                raise
            print_error(error)
            had.append({"name": path.stem, "files": [], "error": error.cause})
            failures.append(error)
    if json_output:
        print_json(had)
    if failures:
        _fail(DownloadError(f"{len(failures)} of {len(entries)} models could not be had"), json_output)


@app.command(name="import")
def import_model(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="A network's file, or all of its files.")],
    name: Annotated[str, typer.Option("--name", help="The network's name in the zoo.")],
    task: Annotated[
        str | None,
        typer.Option("--task", help="What it does, such as `classification`; `edgedeploy models` lists tasks."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            metavar="FILE|NAME",
            help="A .txt file with the name of a class on each line; or imagenet, coco, voc.",
        ),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            "--mean",
            metavar="M[,M,M]",
            help="What is subtracted from each channel, as torchvision's Normalize has it: for pixels from 0 to 1, or "
            "from 0 to 255 if a value of --mean or --std exceeds 1.",
        ),
    ] = None,
    std: Annotated[
        str | None, typer.Option("--std", metavar="S[,S,S]", help="What each channel is then divided by.")
    ] = None,
    preset: Annotated[
        Preset | None, typer.Option("--preset", help="The mean and standard deviation of ImageNet's images.")
    ] = None,
    input_shape: InputShapeOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a network of this name.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Add a network of your own to the zoo: its files are copied beside an entry in your configuration folder.

    The entry holds what the files and the options state, and marked guesses for the rest: task, colour, mean, scale,
    labels. Edit them there.

    Example: edgedeploy models import net.onnx --name mine --task classification --labels classes.txt --preset imagenet

    Example: edgedeploy models import my.cfg my.weights --name mine --mean 0.5 --std 0.5
    """
    from edgedeploy.zoo.importing import PRESETS, Stated, import_network

    if preset and (mean or std):
        raise InputError("--preset does not go with --mean and --std", why="it is both of them")
    pixels = PRESETS[preset.value] if preset else (parse_numbers("--mean", mean), parse_numbers("--std", std))
    stated = Stated(task, labels, *pixels)
    shapes = parse_shapes(input_shape)
    path = import_network(name, files, shapes, stated, replace=force, progress=quiet_if(json_output))
    _, model = _entry(str(path))
    if json_output:
        about = model.input.model_dump(include={"mean", "scale"})
        print_json({"name": name, "file": str(path), "task": model.task, "labels": model.labels, **about})
        return
    console = stdout()
    console.print(f"{name}: {path}")
    console.print(f"task: {model.task}{'' if task else ', guessed'}")
    if labels:
        console.print(f"labels: {model.labels}")
    else:
        guess = f"{model.labels}, guessed by their number" if model.labels else "none"
        console.print(f"labels: {guess}; --labels FILE takes a file with the name of a class on each line")
    mean_of, scale = (" ".join(f"{each:g}" for each in values) for values in (model.input.mean, model.input.scale))
    guess = "" if {"mean", "scale"} <= stated.fields else ", guessed"
    console.print(f"of pixels from 0 to 255: mean {mean_of}, scale {scale}{guess}")
    console.print("check what that file marks as guessed: it decides what a demo shows")


@app.command()
def verify(names: ModelNames = None, json_output: JsonOption = False) -> None:
    """Check the copies on this machine against size and SHA-256; of all networks if none is named.

    A named network without files on this machine counts as a failure.

    Example: edgedeploy models verify
    """
    from edgedeploy.zoo import store

    console = stdout()
    failed, found = 0, list[dict[str, Any]]()
    for path, model in [_entry(name) for name in names] if names else _all_entries():
        for file, copies in store.verify(model, path.parent).items():
            for copy in copies:
                verdict = f"ok, {copy.place}" if copy.sound else f"DAMAGED, {copy.place}"
                found.append({"name": path.stem, "file": file.name, "state": "ok" if copy.sound else "damaged"})
                found[-1] |= {"path": str(copy.path), "place": copy.place}
                if not json_output:
                    console.print(f"{path.stem}: {verdict}: {copy.path}")
                failed += not copy.sound
            if not copies and names:
                found.append({"name": path.stem, "file": file.name, "state": "absent"})
                if not json_output:
                    console.print(f"{path.stem}: absent: {file.name}")
                failed += 1
    if json_output:
        print_json(found)
    if failed:
        hint = "`edgedeploy models pull NAME` replaces what is damaged in the cache"
        many = f"{failed} file{'s are' if failed > 1 else ' is'} damaged or absent"
        _fail(DownloadError(many, hints=[hint]), json_output)


@app.command(name="rm")
def remove(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME", help="Models' names or files.", autocompletion=complete_model)
    ],
    json_output: JsonOption = False,
) -> None:
    """Remove networks' files from the cache, and networks of your own altogether; mirrors are never touched.

    Example: edgedeploy models rm yunet
    """
    from edgedeploy.zoo import store
    from edgedeploy.zoo.importing import forget, own_models

    progress = quiet_if(json_output)
    done: list[dict[str, Any]] = []

    def say(name: str, file: Path | str, removed: bool, text: str, stays: Sequence[Path] = ()) -> None:
        done.append({"name": name, "file": str(file), "removed": removed, "stays": list(map(str, stays))})
        if not json_output:
            stdout().print(f"{name}: {text}")

    for path, model in [_entry(name) for name in names]:
        if path.parent == own_models():
            for removed_file in forget(path.stem):
                say(path.stem, removed_file, True, f"removed: {removed_file}")
            continue
        for file in model.files:
            removed = store.remove(file, progress)
            text = "removed from the cache" if removed else "nothing removed, it is not in the cache"
            copies = store.copies(file, path.parent)
            for copy in copies:
                text += f"; the {'copy in a mirror' if copy.place == 'mirror' else 'bundled copy'} stays: {copy.path}"
            say(path.stem, file.name, bool(removed), f"{file.name}: {text}", [copy.path for copy in copies])
    if json_output:
        print_json(done)


def _fail(error: DownloadError, json_output: bool) -> None:
    """End with an error; after results that are one JSON value, it is told on standard error alone."""
    if not json_output:
        raise error

    print_error(error)
    raise typer.Exit(error.exit_code)


def _entry(name: str) -> tuple[Path, ZooModel]:
    from edgedeploy.zoo.entry import MODELS

    return MODELS.find(name), MODELS.load(name)


def _all_entries() -> list[tuple[Path, ZooModel]]:
    from edgedeploy.zoo.entry import MODELS

    return readable(MODELS)


def _summary(path: Path, model: ZooModel) -> dict[str, Any]:
    """What the listing says of a model, as JSON has it."""
    files = [_file_summary(file, path.parent) for file in model.files]
    return {
        "name": path.stem,
        "task": model.task,
        "description": model.description,
        "licence": model.licence,
        "size": sum(file.size for file in model.files),
        "state": _state([file["state"] for file in files]) if model.has_form else "yours",
        "files": files,
    }


def _state(states: list[str]) -> str:
    """Where a network is, from where its files are."""
    if not states:
        return "architecture"
    return "partly" if len(set(states)) > 1 and "absent" in states else states[0]


def _file_summary(file: ZooFile, folder: Path) -> dict[str, Any]:
    from edgedeploy.zoo import store

    copy = next((copy for copy in store.copies(file, folder) if copy.sound), None)
    return {
        **file.model_dump(exclude_none=True),
        "state": copy.place if copy else "absent",
        "path": str(copy.path) if copy else None,
    }

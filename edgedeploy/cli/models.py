"""`edgedeploy models`: the networks of the zoo, and their files on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option

from edgedeploy.base.text import count
from edgedeploy.cli import options
from edgedeploy.cli.console import as_json, as_table, print_error, print_result, print_text, readable, shown_progress
from edgedeploy.cli.groups import Commands
from edgedeploy.errors import DownloadError, InputError

if TYPE_CHECKING:
    from edgedeploy.zoo.entry import ZooModel


app = Commands()

ModelName = Annotated[str, Argument(help="A model's name or file.", autocompletion=options.complete_model)]
ModelNames = Annotated[
    list[str] | None, Argument(metavar="NAME", help="Models' names or files.", autocompletion=options.complete_model)
]


@app.listing
def list_models() -> None:
    """List the known networks, and where their files are.

    A network's files are bundled (inside edgedeploy), in a mirror (a folder in EDGEDEPLOY_MODELS), cached (downloaded
    before) or absent; "partly" means that some of them are absent. "architecture" has none: edgedeploy creates it, with
    random weights. "yours" stands for your own networks, which a demo takes by --model.

    Example: edgedeploy models
    """
    from rich.filesize import decimal

    summaries = [_summary(path, model) for path, model in _entries(None)]
    rows = ([each["name"], each["task"], decimal(each["size"]), each["state"]] for each in summaries)
    print_result(summaries, as_table(["model", "task", "size", "files"], rows, right=["size"]))


@app.command()
def show(
    name: ModelName,
    graph: Path | None = options.file_option(
        None, "--graph", what="Draw the layers, with shapes and parameters: svg, png, pdf or dot.", metavar="FILE"
    ),
    input_shape: options.ShapeOption = None,
    set_inputs: options.SetOption = None,
) -> None:
    """Show one network: its inputs and outputs, its licence, and where its files are.

    --graph downloads the network if needed, and has Graphviz draw its layers; NAME may then be any network's file. A
    convolution shares its box with its normalisation and activation, and a repeated block has one box.

    Examples: edgedeploy models show yunet; edgedeploy models show net.onnx --graph net.svg
    """
    import yaml

    if graph:
        from edgedeploy.frontends.format import ImportOptions
        from edgedeploy.zoo.drawing import draw
        from edgedeploy.zoo.source import find_source

        # A drawing needs no weights.
        reading = ImportOptions(weights="random", values=options.parse_values(set_inputs))
        source = find_source(name, options.parse_shapes(input_shape), shown_progress(), reading)
        layers, boxes = draw(source, graph)
        about = {"name": name, "graph": str(graph), "layers": layers, "boxes": boxes}
        print_result(about, f"{graph}: {layers} layers" + (f" in {boxes} boxes" if boxes != layers else ""))
        return
    [(path, model)] = _entries([name])
    summary = _summary(path, model)
    content = model.model_dump(exclude_none=True, exclude={"files"})
    document = yaml.safe_dump(model.model_dump(exclude_defaults=True), sort_keys=False, width=1000)
    lines = [f"# {path}", *document.rstrip().split("\n"), ""]
    for file in summary["files"]:
        lines.append(f"{file['name']}: " + (f"{file['state']}, {file['path']}" if file["path"] else "absent"))
    print_result({"name": path.stem, "file": str(path), **content, **summary}, *lines)


@app.command()
def pull(
    names: ModelNames = None,
    everything: bool = Option(False, "--all", help="Download every network that has a download."),
) -> None:
    """Download networks that are not on this machine yet; interrupted downloads are resumed.

    Example: edgedeploy models pull yunet pfld
    """
    from edgedeploy.zoo import store

    if bool(names) == everything:
        raise InputError("which models?", why="name some, or give --all", hints=["list them with `edgedeploy models`"])
    progress = shown_progress()
    pulled: list[dict[str, Any]] = []
    entries = _entries(names)
    for path, model in entries:
        if not model.has_form:
            progress.note(f"{path.stem}: nothing to download, it stands for your own network")
            continue
        if not model.files:
            progress.note(f"{path.stem}: nothing to download, it is an architecture; use it with --weights random")
            continue
        unavailable = [file for file in model.files if not file.has_download and not store.locate(file, path.parent)]
        if everything and unavailable:
            progress.note(f"{path.stem}: left out, {unavailable[0].name} has no download")
            continue
        try:
            source, obtained = store.obtainable(path, model, progress)
            copies = store.pull(obtained, folder=source.parent, progress=progress)
            pulled.append({"name": path.stem, "files": list(map(str, copies))})
            print_text(*(f"{path.stem}: {copy}" for copy in copies))
        except DownloadError as error:
            if len(entries) == 1:
                raise
            print_error(error)
            pulled.append({"name": path.stem, "files": [], "error": error.cause})
    print_result(pulled)
    if failures := sum("error" in each for each in pulled):
        _fail(DownloadError(f"{failures} of {len(entries)} models could not be downloaded"))


@app.command(name="import")
def import_model(
    files: list[Path] = Argument(..., metavar="FILE...", help="A network's file, or all of its files."),
    name: str = Option(..., help="The network's name in the zoo."),
    task: str | None = Option(None, help="Its task, such as `classification`; `edgedeploy models` lists tasks."),
    labels: str | None = Option(
        None, metavar="FILE|NAME", help="A .txt file with a class name on each line; or imagenet, coco, voc."
    ),
    mean: str | None = Option(
        None,
        metavar="M[,M,M]",
        help="Subtract this from each channel, as torchvision's Normalize: of pixels from 0 to 1, or from 0 to 255 "
        "if a value of --mean or --std exceeds 1.",
    ),
    std: str | None = Option(None, metavar="S[,S,S]", help="Then divide each channel by this."),
    preset: Literal["imagenet"] | None = Option(None, help="Use ImageNet's mean and standard deviation."),
    input_shape: options.ShapeOption = None,
    force: bool = Option(False, "--force", help="Replace an existing network of this name."),
) -> None:
    """Add your own network to the zoo: copy its files and an entry to your configuration folder.

    The entry holds what the files and the options state, and marked guesses for the rest: task, colour, mean, scale,
    labels. Edit them there.

    Example: edgedeploy models import net.onnx --name mine --task classification --labels classes.txt --preset imagenet

    Example: edgedeploy models import my.cfg my.weights --name mine --mean 0.5 --std 0.5
    """
    from edgedeploy.zoo.importing import PRESETS, Stated, import_network

    if preset and (mean or std):
        raise InputError("--preset does not go with --mean and --std", why="it is both of them")
    pixels = PRESETS[preset] if preset else (options.parse_numbers("--mean", mean), options.parse_numbers("--std", std))
    stated = Stated(task, labels, *pixels)
    shapes = options.parse_shapes(input_shape)
    path = import_network(name, files, shapes, stated, replace=force, progress=shown_progress())
    [(_, model)] = _entries([str(path)])
    guess = f"{model.labels}, guessed by their number" if model.labels else "none"
    guess += "; --labels FILE takes a file with a class name on each line"
    mean_of, scale = (" ".join(f"{each:g}" for each in values) for values in (model.input.mean, model.input.scale))
    guessed = "" if {"mean", "scale"} <= stated.fields else ", guessed"
    about = model.input.model_dump(include={"mean", "scale"})
    print_result(
        {"name": name, "file": str(path), "task": model.task, "labels": model.labels, **about},
        f"{name}: {path}",
        f"task: {model.task}{'' if task else ', guessed'}",
        f"labels: {model.labels if labels else guess}",
        f"of pixels from 0 to 255: mean {mean_of}, scale {scale}{guessed}",
        "check the guesses marked in that file: they decide what a demo shows",
    )


@app.command()
def verify(names: ModelNames = None) -> None:
    """Check size and SHA-256 of the copies on this machine; of all networks if none is named.

    A named network without files on this machine counts as a failure.

    Example: edgedeploy models verify
    """
    from edgedeploy.zoo import store

    found: list[dict[str, Any]] = []
    for path, model in _entries(names):
        for file, copies in store.verify(model, path.parent).items():
            about = {"name": path.stem, "file": file.name}
            for copy in copies:
                state = "ok" if copy.sound else "damaged"
                found.append({**about, "state": state, "path": str(copy.path), "place": copy.place})
                print_text(f"{path.stem}: {'ok' if copy.sound else 'DAMAGED'}, {copy.place}: {copy.path}")
            if not copies and names:
                found.append({**about, "state": "absent"})
                print_text(f"{path.stem}: absent: {file.name}")
    print_result(found)
    if failed := sum(each["state"] != "ok" for each in found):
        hint = "`edgedeploy models pull NAME` replaces damaged files in the cache"
        many = f"{count(failed, 'file')} {'is' if failed == 1 else 'are'} damaged or absent"
        _fail(DownloadError(many, hints=[hint]))


@app.command(name="rm")
def remove(
    names: list[str] = Argument(
        ..., metavar="NAME", help="Models' names or files.", autocompletion=options.complete_model
    ),
) -> None:
    """Remove networks' files from the cache, and your own networks altogether; mirrors are never touched.

    Example: edgedeploy models rm yunet
    """
    from edgedeploy.zoo import store
    from edgedeploy.zoo.importing import forget, own_models

    progress = shown_progress()
    done: list[dict[str, Any]] = []

    def say(name: str, file: Path | str, removed: bool, text: str, stays: Iterable[Path] = ()) -> None:
        done.append({"name": name, "file": str(file), "removed": removed, "stays": list(map(str, stays))})
        print_text(f"{name}: {text}")

    for path, model in _entries(names):
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
    print_result(done)


def _fail(error: DownloadError) -> None:
    """End with an error; after results in JSON, it goes to standard error alone."""
    if not as_json():
        raise error
    print_error(error)
    raise Exit(error.exit_code)


def _entries(names: list[str] | None) -> list[tuple[Path, ZooModel]]:
    """The named entries of the zoo with their files, or all."""
    from edgedeploy.zoo.entry import MODELS

    return [(MODELS.find(name), MODELS.load(name)) for name in names] if names else readable(MODELS)


def _summary(path: Path, model: ZooModel) -> dict[str, Any]:
    from edgedeploy.zoo import store

    files = []
    for file in model.files:
        copy = next((copy for copy in store.copies(file, path.parent) if copy.sound), None)
        place = {"state": copy.place if copy else "absent", "path": str(copy.path) if copy else None}
        files.append({**file.model_dump(exclude_none=True), **place})
    states = [file["state"] for file in files]
    state = "partly" if len(set(states)) > 1 and "absent" in states else next(iter(states), "architecture")
    return {
        "name": path.stem,
        "task": model.task,
        "description": model.description,
        "licence": model.licence,
        "size": sum(file.size for file in model.files),
        "state": state if model.has_form else "yours",
        "files": files,
    }

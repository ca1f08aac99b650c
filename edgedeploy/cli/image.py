"""`edgedeploy image`: images as inputs of networks, for programs that take arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Argument, Option

from edgedeploy.cli.console import print_result
from edgedeploy.cli.groups import Commands
from edgedeploy.cli.options import complete_model, file_option
from edgedeploy.errors import InputError

app = Commands(help="Turn images into network inputs.", no_args_is_help=True)


@app.command("to-npz")
def to_npz(
    image: Path = Argument(..., metavar="IMAGE", help="The image: JPEG, PNG and others."),
    model: str = Option(
        ...,
        "--model",
        "-m",
        metavar="NAME",
        help="Take size, colours, mean and scale from this zoo network, or from the file of an entry.",
        autocompletion=complete_model,
    ),
    output: Path = file_option(..., "--output", "-o", what="The .npz file to write."),
    name: str | None = Option(None, metavar="INPUT", help="The input's name; default: the entry's."),
    fit: Literal["stretch", "fill", "pad", "letterbox", "cover", "contain"] = Option(
        "stretch", help="How to fit the image to the network's input: `fit` of a demo."
    ),
) -> None:
    """Write an image as the input of a network, for `edgedeploy run --inputs`.

    `--fit stretch` resizes both sides independently; `cover` keeps the proportions and crops the rest, as is usual for
    classification.

    Example: edgedeploy image to-npz cat.png --model resnet50 -o in.npz
    """
    from edgedeploy.runtime.arrays import write_arrays
    from edgedeploy.vision.image import read_image
    from edgedeploy.vision.preprocess import place, to_tensor
    from edgedeploy.zoo.entry import MODELS

    spec = MODELS.load(model).input
    if spec.kind != "image":
        raise InputError(f"{model} takes no images", why=f"its input {spec.name!r} is a tensor")
    pixels, _ = place(read_image(image), spec.size, fit)
    tensor, name = to_tensor(pixels, spec), name or spec.name
    write_arrays(output, {name: tensor})
    about = {"input": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape), "file": str(output)}
    print_result(about, f"{name}: {tensor.dtype}{list(tensor.shape)} written to {output}")

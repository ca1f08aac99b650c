"""`edgedeploy image`: images as inputs of networks, for programs that take arrays."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from edgedeploy.cli.console import print_json, stdout
from edgedeploy.cli.options import JsonOption, complete, file_option
from edgedeploy.errors import InputError

app = typer.Typer(help="Turn images into inputs of networks.", no_args_is_help=True)


class Fit(str, Enum):
    """How an image is brought to the network's size."""

    stretch = "stretch"
    fill = "fill"
    pad = "pad"
    letterbox = "letterbox"
    cover = "cover"
    contain = "contain"


@app.command("to-npz")
def to_npz(
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="The image: JPEG, PNG and others.")],
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="The network of the zoo, or the file of such an entry, that says size, colours, mean and scale.",
            autocompletion=complete("models"),
        ),
    ],
    output: Annotated[Path, file_option("--output", "-o", what="The .npz file to write.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="INPUT", help="The input's name, if it is not the entry's.")
    ] = None,
    fit: Annotated[
        Fit, typer.Option("--fit", help="How the image is brought to the network's size, as `fit` of a demo says it.")
    ] = Fit.stretch,
    json_output: JsonOption = False,
) -> None:
    """Write an image as the input of a network, for `edgedeploy run --inputs`.

    `--fit stretch` resizes both sides on their own; `cover` keeps the proportions and cuts off what reaches out, as
    networks that classify are often shown images.

    Example: edgedeploy image to-npz cat.png --model resnet50 -o in.npz
    """
    import numpy as np

    from edgedeploy.runtime.arrays import write_arrays
    from edgedeploy.vision.image import read_image
    from edgedeploy.vision.preprocess import place, to_tensor
    from edgedeploy.zoo.entry import MODELS

    spec = MODELS.load(model).input
    if spec.kind != "image":
        raise InputError(f"{model} takes no images", why=f"its input {spec.name!r} is a tensor")
    pixels, _ = place(read_image(image), spec.size, fit.value)
    tensor: np.ndarray = to_tensor(pixels, spec)
    write_arrays(output, {name or spec.name: tensor})
    if json_output:
        said = {"input": name or spec.name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        print_json({**said, "file": str(output)})
        return
    stdout().print(f"{name or spec.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}] written to {output}")

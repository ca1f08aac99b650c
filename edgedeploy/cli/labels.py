"""`edgedeploy labels`: the classes that networks' outputs stand for."""

from __future__ import annotations

from pathlib import Path

from typer import Argument, Option

from edgedeploy.cli.console import print_result
from edgedeploy.cli.options import MOST, completing
from edgedeploy.errors import InputError


def labels(
    outputs: Path = Argument(..., metavar="OUTPUTS", help="The .npz file from `edgedeploy run --outputs`."),
    label_set: str = Option(
        "imagenet",
        "--labels",
        metavar="SET|FILE",
        help="A label set of the zoo, or a .txt file with a name on each line.",
        autocompletion=completing("edgedeploy.zoo.entry:label_sets"),
    ),
    output: str | None = Option(None, metavar="NAME", help="The output with the scores; default: the first."),
    top: int = Option(5, metavar="N", min=1, max=MOST, help="How many classes to print."),
    softmax: bool = Option(True, "--softmax/--no-softmax", help="Turn the scores into probabilities first."),
) -> None:
    """Print the names of the classes with the highest scores.

    For outputs that are probabilities already, use `--no-softmax`.

    Example: edgedeploy labels out.npz --labels imagenet --top 5
    """
    from edgedeploy.runtime.arrays import read_arrays, top_values
    from edgedeploy.vision.decoder import softmax as probabilities
    from edgedeploy.vision.results import label_of
    from edgedeploy.zoo.entry import load_labels

    names, arrays = load_labels(label_set), read_arrays(outputs)
    name = output or next(iter(arrays), "")
    if name not in arrays:
        raise InputError(f"{outputs} has no output {name!r}", why=f"it has {', '.join(arrays) or 'none'}")
    scores = arrays[name].ravel()
    if scores.size != max(arrays[name].shape, default=1):
        raise InputError(f"output {name!r} is not one score for each class", why=f"its shape is {arrays[name].shape}")
    if softmax:
        scores = probabilities(scores.astype("float64"))
    found = [{**each, "label": label_of(names, int(each["index"]))} for each in top_values(scores, top)]
    print_result(found, *(f"{each['value']:.6f}  {each['index']}  {each['label']}" for each in found))

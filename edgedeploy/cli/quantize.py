"""`edgedeploy quantize`: float networks into networks of 8-bit integers."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgedeploy.cli.console import foreign, print_json, print_table, quiet_if, stdout
from edgedeploy.cli.options import (
    DemoOption,
    EpsilonOption,
    InputShapeOption,
    JsonOption,
    complete_model,
    file_option,
    parse_shapes,
)
from edgedeploy.errors import InputError

if TYPE_CHECKING:
    from edgedeploy.quantisation.making import Made


class RangeMethod(str, Enum):
    """How ranges of activations are chosen."""

    minmax = "minmax"
    entropy = "entropy"
    percentile = "percentile"


def quantize(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="A name of the zoo, or a network's file.", autocompletion=complete_model
        ),
    ],
    calibrate: Annotated[
        Path,
        typer.Option(
            "--calibrate",
            metavar="FOLDER",
            help="What the ranges of activations are measured with: images below a folder, a video, or .npz files with "
            "one array for each input.",
        ),
    ],
    output: Annotated[
        Path | None, file_option("--output", "-o", what="The ONNX file to write; NETWORK-int8.onnx by default.")
    ] = None,
    demo: DemoOption = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(
            "--evaluate",
            metavar="FOLDER",
            help="State the accuracy before and after on labelled images: in folders named after their classes, or "
            "with boxes in a .json file as COCO has it.",
        ),
    ] = None,
    method: Annotated[
        RangeMethod, typer.Option("--method", help="How ranges of activations are chosen.")
    ] = RangeMethod.minmax,
    images: Annotated[
        int | None,
        typer.Option(
            "--images", metavar="N", min=1, help="Calibrate with at most N images, evenly chosen; 300 unless given."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="LAYER",
            help="Leave this layer in float; a name, or a pattern such as '/model.22/*'. May be given several times.",
        ),
    ] = None,
    auto: Annotated[
        bool,
        typer.Option("--auto", help="Leave the layers that hurt most in float until the loss is at most --max-loss."),
    ] = False,
    max_loss: Annotated[
        float | None,
        typer.Option(
            "--max-loss",
            metavar="X",
            min=0.0,
            max=1.0,
            help="The loss that --auto allows: of accuracy with --evaluate, else of agreement; 0.01 unless given.",
        ),
    ] = None,
    all_pairs: Annotated[
        bool,
        typer.Option(
            "--all-pairs",
            help="Round to bytes behind every operator, for the kernels of other engines. Compiled code computes a "
            "layer, its activation and a sum in one loop; without the roundings inside it is quicker and more exact.",
        ),
    ] = False,
    input_shape: InputShapeOption = None,
    epsilon: EpsilonOption = None,
    json_output: JsonOption = False,
) -> None:
    """Quantise a float network to 8-bit integers, and say what that costs.

    The ranges of activations are measured on images that are prepared as the network's demo prepares them. The ONNX
    file that is written goes wherever a network goes: build, demo, bench, push. It records how it was quantised.

    Reported are the agreement with the float network (the best class, or boxes that overlap by half), the outputs'
    signal to noise, the layers that lose the most, and the sizes; with --evaluate the accuracy before and after.

    Example: edgedeploy quantize mobilenet_v1 --calibrate photos/

    Example: edgedeploy quantize net.onnx --demo yolo --calibrate street.mp4 --auto --max-loss 0.02 -o net-int8.onnx

    Example: edgedeploy quantize mobilenet_v1 --calibrate photos/ --evaluate labelled/ --method percentile --json

    Example: edgedeploy quantize sounds.onnx --calibrate inputs/ --keep '/decoder/*'
    """
    from edgedeploy.api.quantising import quantize as quantized
    from edgedeploy.frontends.format import ImportOptions
    from edgedeploy.quantisation.making import MAX_LOSS, MOST_SAMPLES

    if max_loss is not None and not auto:
        raise InputError("--max-loss goes with --auto", why="without it, all layers but those of --keep are quantised")
    made = quantized(
        network,
        calibrate,
        output=output,
        demo=demo,
        evaluate=evaluate,
        method=method.value,
        images=images or MOST_SAMPLES,
        keep=keep or (),
        max_loss=(MAX_LOSS if max_loss is None else max_loss) if auto else None,
        all_pairs=all_pairs,
        shapes=parse_shapes(input_shape),
        options=ImportOptions(epsilon=epsilon),
        progress=quiet_if(json_output),
    )
    if json_output:
        print_json(made.to_dict())
    else:
        _print(made.made, made.path, made.bytes)


def _print(made: Made, path: Path, written: int) -> None:
    from edgedeploy.api.quantising import MOST_WORST

    kept = {layer.name for layer in made.kept}
    rows = [
        [
            foreign(each.layer.name),
            each.layer.operator,
            f"{each.ratio_db:.1f}",
            "float" if each.layer.name in kept else "",
        ]
        for each in made.worst[:MOST_WORST]
    ]
    print_table(
        ["layer", "operator", "signal to noise, dB", ""], rows, right=["signal to noise, dB"], title="worst layers"
    )
    outputs = [[foreign(name), f"{noise.ratio_db:.1f}"] for name, noise in made.comparison.noise.items()]
    print_table(["output", "signal to noise, dB"], outputs, right=["signal to noise, dB"])
    console = stdout()
    console.print(foreign(*made.record.lines()))
    for name, values in _further(made).items():
        console.print(f"{name}: {values[0]:.2%} before, {values[1]:.2%} after")
    console.print(
        f"{path}  {written:,} bytes, {written / made.bytes_before:.0%} of {made.bytes_before:,}; "
        f"{made.layers - len(made.kept)} of {made.layers} layers quantised"
    )


def _further(made: Made) -> dict[str, tuple[float, float]]:
    """Numbers of an evaluation beside the one that is recorded, before and after."""
    if made.scores is None:
        return {}
    before, after = made.scores
    return {name: (value, after.more[name]) for name, value in before.more.items()}

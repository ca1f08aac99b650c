"""`edgedeploy quantize`: float networks into networks of 8-bit integers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from typer import Argument, Option

from edgedeploy.cli.console import as_table, foreign, print_result, shown_progress
from edgedeploy.cli.options import DemoOption, EpsilonOption, ShapeOption, complete_model, file_option, parse_shapes


def quantize(
    network: str = Argument(..., help="A zoo name, or a network's file.", autocompletion=complete_model),
    calibrate: Path = Option(
        ...,
        metavar="FOLDER",
        help="Measure the ranges of activations on this: images below a folder, a video, or .npz files with an "
        "array for each input.",
    ),
    output: Path | None = file_option(None, "--output", "-o", what="ONNX file to write; default: NETWORK-int8.onnx."),
    demo: DemoOption = None,
    evaluate: Path | None = Option(
        None,
        metavar="FOLDER",
        help="Report the accuracy before and after on labelled images: in folders named after classes, or with "
        "boxes in a COCO .json file.",
    ),
    method: Literal["minmax", "entropy", "percentile"] = Option("minmax", help="How to choose activations' ranges."),
    images: int | None = Option(None, metavar="N", min=1, help="Use at most N images, evenly chosen; default: 300."),
    keep: list[str] | None = Option(
        None, metavar="LAYER", help="Leave this layer in float: a name, or a pattern such as '/model.22/*'; repeatable."
    ),
    auto: bool = Option(False, "--auto", help="The same as --max-loss 0.01."),
    max_loss: float | None = Option(
        None,
        metavar="X",
        min=0.0,
        max=1.0,
        help="Leave the worst layers in float until the loss is at most X: of accuracy with --evaluate, else of "
        "agreement; default: 0.03 for boxes, else 1, which leaves none.",
    ),
    all_pairs: bool = Option(
        False,
        "--all-pairs",
        help="Round to bytes after every operator, for other engines' kernels. edgedeploy computes a layer, its "
        "activation and a sum in one loop: without the roundings inside it is faster and more accurate.",
    ),
    own_scales: bool = Option(
        False,
        "--own-scales",
        help="Let each tensor of a concatenation have its own scale. By default they share one where that costs no "
        "more than two bits: the concatenation moves bytes, which saves 4% of YOLO11n's time.",
    ),
    input_shape: ShapeOption = None,
    epsilon: EpsilonOption = None,
) -> None:
    """Quantise a float network to 8 bits, and report the loss.

    The ranges of activations are measured on images that are preprocessed as in the network's demo. The ONNX file works
    everywhere a network does: build, demo, bench, push. It records how it was quantised.

    The report has the agreement with the float network (the best class, or boxes that overlap by half), the outputs'
    signal-to-noise ratio, the worst layers, and the sizes; with --evaluate the accuracy before and after.

    Example: edgedeploy quantize mobilenet_v1 --calibrate photos/

    Example: edgedeploy quantize net.onnx --demo yolo --calibrate street.mp4 --max-loss 0.02 -o net-int8.onnx

    Example: edgedeploy quantize mobilenet_v1 --calibrate photos/ --evaluate labelled/ --method percentile --json

    Example: edgedeploy quantize sounds.onnx --calibrate inputs/ --keep '/decoder/*'
    """
    from edgedeploy.api.quantising import MOST_WORST
    from edgedeploy.api.quantising import quantize as quantized
    from edgedeploy.frontends.format import ImportOptions
    from edgedeploy.quantisation.making import MAX_LOSS, MOST_SAMPLES

    written = quantized(
        network,
        calibrate,
        output=output,
        demo=demo,
        evaluate=evaluate,
        method=method,
        images=images or MOST_SAMPLES,
        keep=keep or (),
        max_loss=MAX_LOSS if auto and max_loss is None else max_loss,
        all_pairs=all_pairs,
        own_scales=own_scales,
        shapes=parse_shapes(input_shape),
        options=ImportOptions(epsilon=epsilon),
        progress=shown_progress(),
    )
    made = written.made
    ratio, kept = "signal to noise, dB", {layer.name for layer in made.kept}
    rows = []
    for each in made.worst[:MOST_WORST]:
        left = "float" if each.layer.name in kept else ""
        rows.append([foreign(each.layer.name), each.layer.operator, f"{each.ratio_db:.1f}", left])
    outputs = [[foreign(name), f"{noise.ratio_db:.1f}"] for name, noise in made.comparison.noise.items()]
    # What was evaluated besides the recorded accuracy.
    before, after = (score.more for score in made.scores) if made.scores else ({}, {})
    print_result(
        written.to_dict(),
        as_table(["layer", "operator", ratio, ""], rows, right=[ratio], title="worst layers"),
        as_table(["output", ratio], outputs, right=[ratio]),
        *made.record.lines(),
        *(f"{name}: {value:.2%} before, {after[name]:.2%} after" for name, value in before.items()),
        f"{written.path}  {written.bytes:,} bytes, {written.bytes / made.bytes_before:.0%} of {made.bytes_before:,}; "
        f"{made.layers - len(made.kept)} of {made.layers} layers quantised",
    )

"""From a picture to results: preprocessing, inference with its times, postprocessing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedeploy.demo.spec import Demo
from edgedeploy.errors import InputError
from edgedeploy.runtime.interface import Runner, TensorSpec
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.preprocess import Frame, input_size, place, to_tensor
from edgedeploy.vision.results import Detection
from edgedeploy.zoo.entry import ModelInput


@dataclass(frozen=True)
class Outcome:
    """What a demo's run gave.

    Attributes:
        detections: the results, in pixels of the picture.
        timing: the times of the inferences, without pre- and postprocessing.
        threads: how many threads the network ran with.
        frame: the sizes of the picture and of the network's input.
        model_input: how the picture became the input.
    """

    detections: list[Detection]
    timing: Timing
    threads: int
    frame: Frame
    model_input: ModelInput


def see(
    picture: np.ndarray,
    demo: Demo,
    runner: Runner,
    model_input: ModelInput,
    *,
    labels: list[str],
    output_names: Sequence[str] = (),
    repeat: int = 1,
) -> Outcome:
    """Show `picture` (uint8, height x width x 3, B G R) to the network in `runner`.

    The first inference gives the results and is not timed; `repeat` more are.

    Args:
        model_input: how a picture becomes the network's input; the size is the runner's.
        labels: the names of the classes; numbers stand for those it does not reach.
        output_names: what the demo's own network calls its outputs. A network that has as many, none of them by
            such a name, is taken to give the same in the same order.

    Raises:
        InputError: the network's input or outputs are not of the kind that the demo makes and reads.
    """
    tensor = _picture_input(runner, model_input)
    pixels, frame = place(picture, input_size(model_input, tensor), demo.fit)
    tensors = {tensor.name: to_tensor(pixels, model_input, tensor.dtype)}
    outputs = runner.run(tensors)
    if len(outputs) == len(output_names) and outputs.keys().isdisjoint(output_names):
        outputs = dict(zip(output_names, outputs.values(), strict=True))
    detections = demo.decoder.decode(outputs, frame, labels)
    timing = runner.measure(tensors, repeat=repeat)
    return Outcome(detections, timing, runner.threads, frame, model_input)


def _picture_input(runner: Runner, model_input: ModelInput) -> TensorSpec:
    if len(runner.inputs) == 1:
        return runner.inputs[0]
    names = ", ".join(tensor.name for tensor in runner.inputs)
    raise InputError(
        "a demo shows a network one picture",
        why=f"this network has {len(runner.inputs)} inputs: {names}",
        hints=[f"run it with `edgedeploy run`, giving each input, {model_input.name!r} among them"],
    )

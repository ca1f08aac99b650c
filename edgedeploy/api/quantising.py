"""Quantising: float networks into networks of 8-bit integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from edgedeploy.base.progress import SILENT, Progress
from edgedeploy.errors import InputError
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions, Shapes
from edgedeploy.model.quantised import Method
from edgedeploy.quantisation.making import MOST_SAMPLES, Made, Settings, find_task, make
from edgedeploy.vision.image import check_place

# The number of worst layers in reports.
MOST_WORST = 10


@dataclass(frozen=True, repr=False)
class Quantised:
    """A quantised network that was written."""

    network: str  # the float network, as it was named
    path: Path  # the ONNX file
    bytes: int  # its size
    made: Made  # the details of quantising

    @property
    def loss(self) -> float | None:
        """The loss: of accuracy if that was evaluated, else of agreement with the float network."""
        return self.made.record.loss

    def __fspath__(self) -> str:
        return fspath(self.path)

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss {self.loss:g}"
        return f"<edgedeploy.Quantised {self.path}: {self.bytes:,} bytes{loss}>"

    def to_dict(self) -> dict[str, Any]:
        """The object that `quantize --json` prints."""
        made = self.made
        scores = made.scores
        return {
            "network": self.network,
            "output": str(self.path),
            "bytes_before": made.bytes_before,
            "bytes": self.bytes,
            "quantisation": made.record.model_dump(mode="json"),
            "loss": self.loss,
            "signal_to_noise_db": {name: noise.ratio_db for name, noise in made.comparison.noise.items()},
            "accuracy": scores
            and {
                which: {"value": score.value, **score.more}
                for which, score in zip(("before", "after"), scores, strict=True)
            },
            "layers": made.layers,
            "worst_layers": [
                {"layer": each.layer.name, "operator": each.layer.operator, "signal_to_noise_db": each.ratio_db}
                for each in made.worst[:MOST_WORST]
            ],
        }


def quantize(
    network: str | PathLike[str],
    calibrate: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    demo: str | None = None,
    evaluate: str | PathLike[str] | None = None,
    method: Method = "minmax",
    images: int = MOST_SAMPLES,
    keep: Sequence[str] = (),
    max_loss: float | None = None,
    all_pairs: bool = False,
    own_scales: bool = False,
    shapes: Shapes | None = None,
    options: ImportOptions = AS_THE_FILE_SAYS,
    progress: Progress = SILENT,
) -> Quantised:
    """Quantise a float network to 8-bit integers, and report the loss.

    Args:
        network: a name of the zoo, or a network's file.
        calibrate: what to measure the ranges of activations on: images below a folder, a video, or .npz files with an
            array for each input.
        output: the ONNX file to write; `NETWORK-int8.onnx` unless given.
        demo: the demo that defines preprocessing and decoding; the network's own unless given.
        evaluate: labelled images, for the accuracy before and after.
        method: how to choose the ranges of activations.
        images: the most images to calibrate with.
        keep: layers that stay in float: names, or patterns of them.
        max_loss: the most harmful layers are left in float until the loss is at most this; None for 0.03 of a
            detector's boxes, and any loss of other networks.
        all_pairs: whether to round results to bytes after every operator, for other engines' kernels.
        own_scales: whether tensors that meet in a concatenation keep scales of their own, and it rounds once more.
        shapes: shapes of inputs that the network's file leaves open, by name.
        options: what else it leaves open.

    Raises:
        InputError: the output is the float network itself, or the loss stays larger than allowed.
    """
    task = find_task(
        fspath(network),
        Path(calibrate),
        demo=demo,
        evaluation=Path(evaluate) if evaluate else None,
        shapes=shapes,
        options=options,
        most=images,
        progress=progress,
    )
    path = Path(output) if output else Path(f"{task.source.name}-int8.onnx")
    check_place(path)
    if path.resolve() in [file.resolve() for file in task.source.files]:
        raise InputError(f"{path} is the float network itself", hints=["name another file with --output"])
    made = make(task, Settings(method, keep, max_loss, all_pairs, own_scales), progress)
    return Quantised(fspath(network), path, made.write(path), made)

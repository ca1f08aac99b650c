"""Networks of 8 bits for benchmarks: what others quantised, and what `edgedeploy quantize` makes of some."""

from __future__ import annotations

from pathlib import Path

from edgedeploy.base.progress import Progress
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.quantisation.making import Settings, find_task, make

# Of the zoo; ResNets have random weights.
IN_FLOAT = ["mobilenet_v1", "squeezenet_v1.1-onnx", "retinaface", "yolo-fastest-1.1", "yunet"]
RESNETS = ["resnet18", "resnet50"]
RANDOM = ImportOptions(weights="random")

# Quantised by others.
READY = ["mobilenet_v2-int8", "mobilenet_v2_quant", "mobilenet_v1_0.25_quant"]


def options_of(name: str) -> ImportOptions:
    """How a network in float is read."""
    return RANDOM if name in RESNETS else AS_THE_FILE_SAYS


def quantised(name: str, images: Path, folder: Path, progress: Progress) -> Path:
    """The file of a network by the defaults of `edgedeploy quantize`: `NAME-int8.onnx` in a folder."""
    return _made(name, images, folder, progress, [""])[0]


def quantised_for_all(name: str, images: Path, folder: Path, progress: Progress) -> list[Path]:
    """The same, and `NAME-int8-all-pairs.onnx` with the pairs that kernels of other engines want, if those are more."""
    return _made(name, images, folder, progress, ["", "-all-pairs"])


def _made(name: str, images: Path, folder: Path, progress: Progress, kinds: list[str]) -> list[Path]:
    task = find_task(name, images, options=options_of(name), progress=progress)
    nodes, paths = set[int](), list[Path]()
    for kind in kinds:
        made = make(task, Settings(max_loss=1, all_pairs=bool(kind)), progress)
        if len(made.model.graph.node) not in nodes:
            paths.append(folder / f"{name}-int8{kind}.onnx")
            made.write(paths[-1])
        nodes.add(len(made.model.graph.node))
    return paths

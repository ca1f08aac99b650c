"""Predicts networks of the sweep in 8 bits beside single and half precision, for docs/quantisation.md.

    python benchmarks/quantised_arm.py --json FILE --sweep FOLDER --images FOLDER [--networks NAMES] [--write]

Weights are random, as the sweep's; what a network takes does not depend on them. `edgedeploy quantize` puts all layers
into bytes, calibrated with the images. A file keeps the results as they come, and a later run predicts what it lacks;
--write writes the page's table from all of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
import onnx
from arm_engines import ROOT
from arm_engines_tables import page
from errors import ending_with_errors
from results import as_table, read_results, write_results
from sweep_networks import LEGACY, read_cases

from edgedeploy import predict, quantize
from edgedeploy.base.files import replacing
from edgedeploy.cli.console import ConsoleProgress
from edgedeploy.target.resolved import resolve

PAGE = ROOT / "docs" / "quantisation.md"
BEGIN = "<!-- networks written by benchmarks/quantised_arm.py -->"
NETWORKS = ["yolov8n", "yolo11n", "yolo26n", "mobilenet_v3_large", "efficientnet_lite0", "googlenet"]
NETWORKS += ["inception_v3", "vit_tiny_patch16_224"]
INTEGERS = "8 bits"
KINDS = {"rpi5": [INTEGERS, "half", "single"], "rpi4": [INTEGERS, "single"]}
IMAGES = 20  # to calibrate with


@dataclass(frozen=True)
class Result:
    """The predicted time of a network on one thread."""

    network: str
    board: str
    kind: str  # of `KINDS`
    ms: float


def quantised(file: Path, images: Path, folder: Path) -> Path:
    """A network with all layers in 8 bits, calibrated with images in its size, of values from 0 to 1."""
    data = onnx.load(file, load_external_data=False).graph.input[0]
    *_, height, width = (each.dim_value for each in data.type.tensor_type.shape.dim)
    for path in sorted(images.rglob("*.jpg"))[:IMAGES]:
        image = cv2.resize(cv2.imread(str(path)), (width, height))[..., ::-1].transpose(2, 0, 1)
        np.savez(folder / path.stem, **{data.name: image[np.newaxis].astype(np.float32) / 255})
    output = folder / f"{file.stem}-int8.onnx"
    quantize(file, folder, output=output, max_loss=1.0, progress=ConsoleProgress())
    return output


def predicted(file: Path, images: Path, wanted: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, float]]:
    """The milliseconds of each board and kind."""
    with TemporaryDirectory() as folder:
        in_bytes = quantised(file, images, Path(folder)) if any(kind == INTEGERS for _, kind in wanted) else file
        for board, kind in wanted:
            network = in_bytes if kind == INTEGERS else file
            options = {} if kind == INTEGERS else {"precision": kind}
            yield board, kind, predict(network, resolve(board, options), progress=ConsoleProgress()).ms


def table(results: Sequence[Result]) -> str:
    """A row for each network: the times in bytes, and as fractions of those in other kinds."""
    ms = {(each.network, each.board, each.kind): each.ms for each in results}
    pairs = [(board, kind) for board, kinds in KINDS.items() for kind in kinds if kind != INTEGERS]
    heads = [f"`{board}`: ms" for board in KINDS] + [f"`{board}`: of {kind}" for board, kind in pairs]
    rows = [["network", *heads]]
    for network in dict.fromkeys(each.network for each in results):
        of_bytes = {board: ms.get((network, board, INTEGERS)) for board in KINDS}
        times = [f"{time:.3g}" if time else "" for time in of_bytes.values()]
        both = [(of_bytes[board], ms.get((network, board, kind))) for board, kind in pairs]
        rows.append([network, *times, *(f"{mine / other:.2f}" if mine and other else "" for mine, other in both)])
    return as_table(rows)


def main() -> None:
    """Parse the command line, and do as it says."""
    parser = argparse.ArgumentParser(description="Predict networks of the sweep in 8 bits, half and single precision.")
    parser.add_argument("--json", type=Path, required=True, help="the results, written as they come")
    parser.add_argument("--sweep", type=Path, metavar="FOLDER", required=True, help="the files of the sweep")
    parser.add_argument("--images", type=Path, metavar="FOLDER", required=True, help="images to calibrate with")
    parser.add_argument("--networks", type=lambda text: text.split(","), default=NETWORKS, help="which of the sweep")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    arguments = parser.parse_args()
    known = read_results(arguments.json, Result)
    files = {case.network.name: case.file(arguments.sweep) for case in read_cases() if case.exporter == LEGACY}
    with ending_with_errors():
        for network in arguments.networks:
            done = {(each.board, each.kind) for each in known if each.network == network}
            wanted = [(board, kind) for board, kinds in KINDS.items() for kind in kinds if (board, kind) not in done]
            for board, kind, ms in predicted(files[network], arguments.images, wanted) if wanted else ():
                known.append(Result(network, board, kind, ms))
                write_results(arguments.json, known)
        if arguments.write:
            with replacing(PAGE) as temporary:
                temporary.write_text(page(PAGE.read_text(encoding="utf-8"), table(known), BEGIN), encoding="utf-8")


if __name__ == "__main__":
    main()

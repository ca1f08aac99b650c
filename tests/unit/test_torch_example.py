"""The example of the tutorial: what draws its images, and what trains its network."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from edgedeploy.model.onnxruntime_session import cpu_session
from edgedeploy.vision.decoders.yolo import Yolox
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import read_image

EXAMPLE = ROOT / "examples" / "torch"


def test_the_picture_is_the_one_that_the_script_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLE / "images.py"], cwd=tmp_path, check=True)
    drawn, kept = read_image(tmp_path / "desk.jpg"), read_image(EXAMPLE / "desk.jpg")
    assert np.abs(drawn.astype(int) - kept).mean() < 1
    assert len(list((tmp_path / "photos").iterdir())) == 40


def seen(network: Path) -> dict[int, list[int]]:
    image = read_image(EXAMPLE / "desk.jpg")[2::4, 2::4, ::-1].astype(np.float32) / 255
    [cells] = cpu_session(network).run(None, {"image": image.transpose(2, 0, 1)[None]})
    decoder = Yolox(kind="yolox", output="cells", strides=[8], threshold=0.5, iou_threshold=0.5)
    found = decoder.decode({"cells": cells}, Frame((96, 96), (96, 96), (1, 1)), [])
    return {each.class_id: [round(side) for side in each.box or ()] for each in found}


# What images.py drew: 0 is a circle, 1 a square, 2 a triangle.
DRAWN = {2: [4, 41, 42, 79], 1: [24, 16, 44, 36], 0: [47, 11, 75, 39]}


def agrees(found: dict[int, list[int]]) -> bool:
    return found.keys() == DRAWN.keys() and all(
        max(abs(a - b) for a, b in zip(found[kind], box, strict=True)) <= 4 for kind, box in DRAWN.items()
    )


def test_the_network_that_lies_there_sees_what_was_drawn() -> None:
    assert agrees(seen(EXAMPLE / "shapes.onnx"))


@pytest.mark.slow
def test_the_network_is_trained_in_a_minute(tmp_path: Path) -> None:
    for module in ("torch", "onnxscript"):
        pytest.importorskip(module, reason=f"the example is trained with {module}, which is not installed")
    subprocess.run([sys.executable, EXAMPLE / "train.py"], cwd=tmp_path, check=True)
    assert agrees(seen(tmp_path / "shapes.onnx"))

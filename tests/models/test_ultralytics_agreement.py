"""Decoders of Ultralytics' networks against Ultralytics' own predictors, on the same outputs.

EDGEDEPLOY_ULTRALYTICS names a Python that has the package `ultralytics`, with torchvision.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import originals
from support.commands import python_with
from support.heads import channels, chosen, fitted, places

from edgedeploy.vision.decoders.ultralytics import Ultralytics
from edgedeploy.vision.preprocess import place, to_tensor
from edgedeploy.vision.results import Detection
from edgedeploy.zoo.entry import MODELS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NETWORK = (256, 320)
CLASSES = 5
NAMES = {number: f"class {number}" for number in range(CLASSES)}
IMAGES = pytest.mark.parametrize("size", [(480, 640), (333, 217), (100, 900)], ids=str)
CRAFTED = pytest.mark.parametrize("crafted", [True, False], ids=["crafted", "random"])
FORMS = pytest.mark.parametrize("form", ["channels", "chosen"])

Ask = Callable[[Path, Path], None]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Has Ultralytics write the results of a case, in one process for all cases."""
    python = python_with("EDGEDEPLOY_ULTRALYTICS", "ultralytics, torchvision")
    folder = tmp_path_factory.mktemp("ultralytics")
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(folder), "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
    program, pipe = [python, originals.__file__, "ultralytics"], subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, env=environment) as process:

        def write(case: Path, result: Path) -> None:
            print(case, result, sep="\t", file=process.stdin, flush=True)
            while (line := process.stdout.readline()) != "done\n":
                assert line, "Ultralytics' process has ended"

        yield write
        process.stdin.close()


def picture(size: tuple[int, int]) -> np.ndarray:
    """Noise on smooth colours: what a resize does to both is seen."""
    generator = np.random.default_rng(1)
    rows, columns = np.ogrid[: size[0], : size[1]]
    smooth = [127 + 100 * np.sin(rows / 31 + shift) * np.cos(columns / 47) for shift in range(3)]
    return np.clip(np.stack(smooth, axis=-1) + generator.normal(0, 25, (*size, 3)), 0, 255).astype(np.uint8)


def both(
    ask: Ask,
    folder: Path,
    task: str,
    outputs: dict[str, np.ndarray],
    size: tuple[int, int],
    *,
    network: tuple[int, int] = NETWORK,
    agnostic: bool = False,
    end2end: bool = False,
) -> tuple[list[Detection], dict[str, np.ndarray]]:
    """Our results, and theirs; the inputs that both make of an image are compared on the way."""
    image = picture(size)
    case = {"task": task, "names": list(NAMES.values()), "end2end": end2end, "agnostic": agnostic}
    np.savez(folder / "case.npz", image=image, network=network, **case, **outputs)
    ask(folder / "case.npz", folder / "result.npz")
    theirs = dict(np.load(folder / "result.npz"))
    decoder = Ultralytics(kind="ultralytics", suppression="agnostic" if agnostic else "class_aware")
    suited = fitted(decoder, outputs, task=task, names=NAMES, kpt_shape=[17, 3], end2end=end2end, stride=32)
    assert suited.fit
    assert suited.labels == list(NAMES.values())
    pixels, frame = place(image, network, suited.fit)
    ours = to_tensor(pixels, MODELS.load("ultralytics").input)
    level = 1 / 255
    assert ours.shape == theirs["input"].shape
    assert np.abs(ours - theirs["input"]).max() < 1.01 * level
    assert np.abs(ours - theirs["input"]).mean() < 0.05 * level
    return suited.decoder.decode(outputs, frame, suited.labels), theirs


def output(form: str, boxes: np.ndarray, scores: np.ndarray, extras: np.ndarray) -> np.ndarray:
    return channels(boxes, scores, extras) if form == "channels" else chosen(boxes, scores, extras)


def assert_boxes(ours: list[Detection], theirs: np.ndarray) -> None:
    assert len(theirs) >= 5
    assert [each.class_id for each in ours] == theirs[:, 5].astype(int).tolist()
    assert [each.label for each in ours] == [NAMES[number] for number in theirs[:, 5].astype(int)]
    np.testing.assert_allclose([each.score for each in ours], theirs[:, 4], rtol=1e-6)
    np.testing.assert_allclose([each.box for each in ours], theirs[:, :4], atol=2e-3)


@IMAGES
@CRAFTED
@FORMS
@pytest.mark.parametrize("agnostic", [False, True])
def test_boxes(ask: Ask, tmp_path: Path, size: tuple[int, int], crafted: bool, form: str, agnostic: bool) -> None:
    boxes, scores, _ = places(NETWORK, CLASSES, 3, crafted=crafted)
    outputs = {"output0": output(form, boxes, scores, boxes[:, :0])}
    ours, theirs = both(ask, tmp_path, "detect", outputs, size, agnostic=agnostic, end2end=form == "chosen")
    assert_boxes(ours, theirs["boxes"])


@IMAGES
@CRAFTED
@FORMS
def test_masks(ask: Ask, tmp_path: Path, size: tuple[int, int], crafted: bool, form: str) -> None:
    boxes, scores, generator = places(NETWORK, CLASSES, 4, crafted=crafted)
    coefficients = generator.normal(0, 1, (len(boxes), 32)).astype(np.float32)
    prototypes = generator.normal(0, 1, (1, 32, 8, 10)).repeat(8, axis=2).repeat(8, axis=3).astype(np.float32)
    outputs = {"output0": output(form, boxes, scores, coefficients), "output1": prototypes}
    ours, theirs = both(ask, tmp_path, "segment", outputs, size, end2end=form == "chosen")
    assert_boxes(ours, theirs["boxes"])
    for detection, mask in zip(ours, theirs["masks"], strict=True):
        pixels = detection.mask.pixels()
        assert pixels.shape == mask.shape == size
        # Where a sum is zero to the last bit, rounding decides.
        assert np.count_nonzero(pixels != mask) <= 1e-3 * np.count_nonzero(mask) + 1


@IMAGES
@FORMS
def test_points(ask: Ask, tmp_path: Path, size: tuple[int, int], form: str) -> None:
    boxes, scores, generator = places(NETWORK, CLASSES, 5, crafted=True)
    points = np.concatenate(
        [generator.uniform(-20, 350, (len(boxes), 17, 2)), generator.random((len(boxes), 17, 1))], axis=2
    )
    extras = points.reshape(len(boxes), 51).astype(np.float32)
    outputs = {"output0": output(form, boxes, scores, extras)}
    ours, theirs = both(ask, tmp_path, "pose", outputs, size, end2end=form == "chosen")
    assert_boxes(ours, theirs["boxes"])
    np.testing.assert_allclose([each.points for each in ours], theirs["keypoints"][..., :2], atol=2e-3)
    np.testing.assert_allclose([each.point_scores for each in ours], theirs["keypoints"][..., 2], rtol=1e-6)


@IMAGES
@CRAFTED
@FORMS
def test_turned_boxes(ask: Ask, tmp_path: Path, size: tuple[int, int], crafted: bool, form: str) -> None:
    boxes, scores, generator = places(NETWORK, CLASSES, 6, crafted=crafted)
    angles = generator.uniform(-np.pi / 4, 3 * np.pi / 4, (len(boxes), 1)).astype(np.float32)
    table = output(form, boxes, scores, angles)
    if form == "chosen":  # these have centres and sizes here too
        table[0, :, :4] = boxes[np.argsort(-scores.max(axis=1), kind="stable")[:300]]
    ours, theirs = both(ask, tmp_path, "obb", {"output0": table}, size, end2end=form == "chosen")
    assert len(ours) == len(theirs["turned"]) >= 5
    assert [each.class_id for each in ours] == theirs["turned"][:, 6].astype(int).tolist()
    np.testing.assert_allclose([each.score for each in ours], theirs["turned"][:, 5], rtol=1e-6)
    np.testing.assert_allclose([each.corners for each in ours], theirs["corners"], atol=5e-3)


@IMAGES
def test_classes(ask: Ask, tmp_path: Path, size: tuple[int, int]) -> None:
    scores = np.random.default_rng(7).random((1, CLASSES)).astype(np.float32)
    ours, theirs = both(ask, tmp_path, "classify", {"output0": scores}, size, network=(224, 224))
    assert [each.class_id for each in ours] == theirs["top5"].tolist()


@IMAGES
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_classes_of_pixels(ask: Ask, tmp_path: Path, size: tuple[int, int], dtype: str) -> None:
    generator = np.random.default_rng(8)
    coarse = generator.normal(0, 1, (1, CLASSES, 16, 20)).repeat(16, axis=2).repeat(16, axis=3).astype(np.float32)
    output0: Any = coarse if dtype == "float32" else coarse.argmax(axis=1)
    ours, theirs = both(ask, tmp_path, "semantic", {"output0": output0}, size)
    found = np.full(size, -1)
    for each in ours:
        found[each.mask.pixels()] = each.class_id
    assert np.mean(found != theirs["classes"]) < 1e-3

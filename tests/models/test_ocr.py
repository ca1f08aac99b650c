"""Text of images is what RapidOCR reads, with the same corners, from the same files."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import ROOT, SHARED
from support.agreement import OnnxruntimeRunner

from edgedeploy.demo.pipeline import Network, SizedNetwork, infer_with
from edgedeploy.demo.program import Program
from edgedeploy.frontends.format import AS_THE_FILE_SAYS, ImportOptions
from edgedeploy.vision.decoders.text import TextRegions
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection
from edgedeploy.zoo.source import find_source

pytestmark = pytest.mark.slow

SIGN = ROOT / "demos" / "ocr.png"


@pytest.fixture(scope="module", autouse=True)
def rapidocr() -> Any:
    """RapidOCR's module; the zoo finds the networks in its package."""
    module = pytest.importorskip("rapidocr_onnxruntime", reason="needs rapidocr-onnxruntime to compare with")
    with pytest.MonkeyPatch.context() as patch:
        folders = [str(Path(module.__file__).parent / "models"), os.environ.get("EDGEDEPLOY_MODELS", "")]
        patch.setenv("EDGEDEPLOY_MODELS", ":".join(filter(None, folders)))
        yield module


@pytest.fixture(scope="module")
def networks(rapidocr: Any) -> list[Network | SizedNetwork]:
    """The demo's networks on onnxruntime, in any size, and told how much of a line's width counts."""

    def network(part: Any) -> Network | SizedNetwork:
        source = find_source(part.model)
        stage = part.stage
        labels = part.labels or source.metadata().get("character", "").splitlines()
        content, name = source.file.read_bytes(), part.entry.input.name
        lengths = part.lengths(name) if part.sized_input(AS_THE_FILE_SAYS) else {}

        @cache
        def of_size(size: tuple[int, int]) -> Network:
            shapes = {name: part.entry.input.shape_of(size)}
            options = ImportOptions(lengths=lengths)
            built = (
                source.format.convert(source.files, shapes, options).model.SerializeToString() if lengths else content
            )
            runner = OnnxruntimeRunner(built, 1, shapes)
            return Network(stage, part.model, part.entry.input, labels, [], source.file, runner)

        if stage.fit.one_size:
            return of_size(part.entry.input.size)
        return SizedNetwork(stage, part.model, source.file, part.entry.input.size, of_size)

    return [network(part) for part in Program.of("ocr").parts]


@pytest.fixture(scope="module")
def engine(rapidocr: Any) -> Any:
    return rapidocr.RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)


def sign() -> np.ndarray:
    return cv2.imread(str(SIGN))


def turned(angle: float) -> np.ndarray:
    image = sign()
    height, width = image.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), angle, 0.8)
    return cv2.warpAffine(image, turn, (width, height), borderValue=(200, 210, 220))


def lines() -> np.ndarray:
    """Lines of several sizes and slopes, some upside down."""
    canvas = np.full((900, 1200, 3), 240, np.uint8)
    texts = ["Invoice 2024-117", "Total: 1,299.00", "thank you for your order", "ISO 9001", "Net weight 250 g"]
    for index, text in enumerate(texts):
        layer = np.zeros(canvas.shape[:2], np.uint8)
        cv2.putText(layer, text, (200, 450), cv2.FONT_HERSHEY_SIMPLEX, 1 + 0.3 * index, 255, 2, cv2.LINE_AA)
        turn = cv2.getRotationMatrix2D((500, 450), [0, 6, 180, -9, 3][index], 1)
        turn[1, 2] += 150 * index - 300
        layer = cv2.warpAffine(layer, turn, layer.shape[::-1])
        canvas[layer > 0] = (canvas[layer > 0] * (1 - layer[layer > 0][:, None] / 255)).astype(np.uint8)
    return canvas


def scanned(name: str) -> np.ndarray:
    folder = pytest.importorskip("skimage.data", reason="needs scikit-image for its images").__path__[0]
    return cv2.imread(str(Path(folder) / name))


def shared(name: str) -> np.ndarray:
    path = SHARED / "images" / name
    if not path.is_file():
        pytest.skip(f"needs {path}")
    return cv2.imread(str(path))


IMAGES = {
    "sign": sign,
    "sign on its side": lambda: np.ascontiguousarray(np.rot90(sign())),
    "sign upside down": lambda: np.ascontiguousarray(np.rot90(sign(), 2)),
    "sign turned by 15 degrees": lambda: turned(15),
    "sign turned by -33 degrees": lambda: turned(-33),
    "large sign": lambda: cv2.resize(sign(), (2600, 1950)),
    "small sign": lambda: cv2.resize(sign(), (213, 160)),
    "strip": lambda: sign()[0:60],
    "low strip": lambda: cv2.resize(sign()[10:74, 0:520], (210, 26)),
    "lines": lines,
    "no text": lambda: np.full((120, 160, 3), 128, np.uint8),
    "scikit-image's page": lambda: scanned("page.png"),
    "scikit-image's text": lambda: scanned("text.png"),
    "bike": lambda: shared("bike.jpg"),
    "face5": lambda: shared("face5.jpg"),
}


def corners(results: list[Detection]) -> list[list[list[float]]]:
    return [[list(corner) for corner in result.corners or ()] for result in results]


@pytest.mark.parametrize("name", IMAGES)
def test_text_scores_and_corners_are_rapidocrs(name: str, networks: list[Network | SizedNetwork], engine: Any) -> None:
    image = IMAGES[name]()
    wanted = engine(image)[0] or []
    found = infer_with(image, networks, repeat=0, page=Program.of("ocr").demo.page).all_detections
    assert [each.label for each in found] == [text for _, text, _ in wanted]
    assert np.array(corners(found)) == pytest.approx(np.array([place for place, *_ in wanted]), abs=1e-3)
    assert [each.score for each in found] == pytest.approx([score for *_, score in wanted], abs=1e-3)
    assert bool(found) == (name != "no text")


def test_regions_of_any_map_are_rapidocrs(rapidocr: Any, engine: Any) -> None:
    values = np.random.default_rng(0)
    post = engine.text_det.postprocess_op
    regions = TextRegions(kind="text-regions")
    count = 0
    for _ in range(60):
        network, image = (int(x) * 32 for x in values.integers(5, 30, 2)), (int(x) for x in values.integers(60, 900, 2))
        (rows, columns), size = tuple(network), tuple(image)
        probabilities = np.zeros((rows, columns), np.float32)
        for _ in range(12):
            centre, sides = values.uniform(0, (columns, rows)), values.uniform(2, (200, 40))
            angle = float(values.choice([0, 90, values.uniform(0, 180)]))
            corners_of = cv2.boxPoints((tuple(map(float, centre)), tuple(map(float, sides)), angle))
            cv2.fillPoly(probabilities, [corners_of.astype(np.int32)], float(values.uniform(0.25, 1)))
        probabilities += values.normal(0, 0.03, probabilities.shape).astype(np.float32)
        boxes, _ = post(probabilities[None, None], size)
        wanted = rapidocr.RapidOCR.sorted_boxes(engine.text_det.filter_tag_det_res(boxes, size))
        frame = Frame(size, (rows, columns), (columns / size[1], rows / size[0]))
        found = regions.decode({"map": probabilities[None, None]}, frame, [])
        assert corners(found) == [box.tolist() for box in wanted]
        count += len(found)
    assert count > 100


@pytest.mark.compiles
def test_compiled_networks_of_a_few_widths_read_the_same(rapidocr: Any) -> None:
    command = [sys.executable, "-m", "edgedeploy", "demo", "ocr", "--image", str(SIGN), "--json"]
    output = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
    found = [
        text for region in json.loads(output)["results"] for direction in region["then"] for text in direction["then"]
    ]
    wanted = rapidocr.RapidOCR()(sign())[0]
    assert [each["corners"] for each in found] == [np.array(place, float).tolist() for place, *_ in wanted]
    assert [each["label"] for each in found] == [text for _, text, _ in wanted]
    assert [each["score"] for each in found] == pytest.approx([score for *_, score in wanted], abs=1e-3)

"""The demos on real networks and images, against the numbers that Tengine published, and on weights of other files.

`RUNNERS` lists the ways of running a network that are tested; each is a function from the network's entry in
the zoo and its file to a `Runner`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Command
from support.agreement import OnnxruntimeRunner
from support.commands import output_of
from support.demo_runs import demo_network, on_onnxruntime

from edgedeploy.building import prepare
from edgedeploy.demo.pipeline import Network, Outcome, infer
from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.demo.tengine_log import log_lines
from edgedeploy.frontends import tengine
from edgedeploy.runtime.opening import Runner
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.zoo.entry import MODELS, ZooModel, load_labels


def from_tmfile(entry: ZooModel, path: Path) -> Runner:
    """The network that lies beside an ONNX file as a tmfile."""
    tmfile = next(path.parent.glob("*.tmfile"), None) if path.suffix == ".onnx" else None
    if tmfile is None:
        pytest.skip(f"there is no tmfile beside {path.name}")
    open_input = tengine.FORMAT.open_input([tmfile], {})
    shapes = {open_input: entry.input.shape} if open_input else {}
    return OnnxruntimeRunner(tengine.FORMAT.convert([tmfile], shapes).model.SerializeToString())


RUNNERS: dict[str, Callable[[ZooModel, Path], Runner]] = {
    "onnxruntime": on_onnxruntime,
    "compiled": lambda entry, path: prepare(
        str(path), resolve("local"), input_shapes={entry.input.name: entry.input.shape}
    ).open(1),
    "tmfile": from_tmfile,
}

Infer = Callable[..., Outcome]


@pytest.fixture(scope="module", params=RUNNERS)
def show(request: pytest.FixtureRequest, shared: Path) -> Infer:
    """Show an image of the shared folder to a demo's network or to another one, which is opened once."""

    @cache
    def network(demo_name: str, model: str | None) -> Network:
        return demo_network(shared, demo_name, model, RUNNERS[request.param])

    def run(demo_name: str, image: str, model: str | None = None) -> Outcome:
        return infer(read_image(shared / image), network(demo_name, model))

    return run


@pytest.fixture(scope="module")
def published(shared: Path) -> dict[str, Any]:
    """Tengine's published numbers, by a part of the title."""
    records = json.loads((shared / "reference" / "published_tengine.json").read_text())
    return {title.split()[0]: record for title, record in records.items()}


def transcript(outcome: Outcome) -> list[str]:
    renamed = replace(outcome, network=replace(outcome.network, file=Path("MODEL")))
    lines = log_lines(renamed, Path("IMAGE"), "tengine")
    return [re.sub(r"\d+\.\d+ ms", "# ms", line) for line in lines[1:]]


def boxes(outcome: Outcome) -> np.ndarray:
    return np.array([detection.box for detection in outcome.detections])


REPEAT = "Repeat 1 times, thread 1, avg time # ms, max_time # ms, min_time # ms"
RULE = "-" * 38


class TestRetinaFace:
    @pytest.mark.parametrize(
        ("model", "pixels"), [(None, 0.01), pytest.param("retinaface-ncnn", 0.05, id="the half precision of ncnn's")]
    )
    def test_published_results(self, show: Infer, published: dict[str, Any], model: str | None, pixels: float) -> None:
        outcome = show("retinaface", "reference/stb_decoded/mtcnn_face4.png", model)
        expected = np.array(published["retinaface"]["boxes_score_x_y_w_h"])
        found = boxes(outcome)
        found[:, 2:] -= found[:, :2]
        assert np.abs(found - expected[:, 1:]).max() < pixels
        assert [round(each.score or 0, 2) for each in outcome.detections] == expected[:, 0].tolist()

    def test_transcript(self, show: Infer) -> None:
        lines = transcript(show("retinaface", "reference/stb_decoded/mtcnn_face4.png"))
        assert lines[:4] == ["img_h, img_w : 316, 474", REPEAT, RULE, "detected face num: 4"]
        number = r"\d+(\.\d+)?"
        face = rf"BOX [01]\.\d\d:\( {number} , {number} \),\( {number} , {number} \)"
        assert len(lines) == 8
        assert all(re.fullmatch(face, line) for line in lines[4:])

    def test_landmarks_lie_in_their_faces(self, show: Infer) -> None:
        for face in show("retinaface", "reference/stb_decoded/mtcnn_face4.png").detections:
            points = np.array(face.points)
            assert points.shape == (5, 2)
            # These heads are turned: an eye may reach a little beyond the side of its box.
            assert (points >= np.array(face.box[:2]) - 5).all()
            assert (points <= np.array(face.box[2:]) + 5).all()
            eyes, nose, mouth = points[:2, 1], points[2, 1], points[3:, 1]
            assert eyes.max() < nose < mouth.min()

    def test_the_jpeg_gives_the_same_faces(self, show: Infer) -> None:
        from_png = show("retinaface", "reference/stb_decoded/mtcnn_face4.png")
        from_jpeg = show("retinaface", "images/mtcnn_face4.jpg")
        assert np.abs(boxes(from_png) - boxes(from_jpeg)).max() < 0.1

    def test_a_larger_image_is_scaled_down_and_its_boxes_up(self, show: Infer, shared: Path) -> None:
        outcome = show("retinaface", "images/mtcnn_face6.jpg")
        height, width = read_image(shared / "images/mtcnn_face6.jpg").shape[:2]
        assert (height, width) != (316, 474)
        found = boxes(outcome)
        assert len(found) >= 5
        assert found.min() >= 0
        assert found[:, 2].max() > 474
        assert (found <= [width, height, width, height]).all()


class TestYoloFastest:
    def test_published_lines(self, show: Infer) -> None:
        lines = transcript(show("yolo-fastest", "reference/stb_decoded/dog.png"))
        assert lines == [
            REPEAT,
            RULE,
            " 3:  93%, [ 454,   77,  684,  180], car",
            "17:  75%, [ 122,  221,  366,  516], dog",
            " 2:  54%, [ 243,  187,  589,  422], bicycle",
            " 3:  53%, [ 690,  117,  729,  155], car",
            " 1:  53%, [  64,   73,  114,  118], person",
        ]

    def test_the_jpeg_gives_the_same_objects(self, show: Infer) -> None:
        from_png = show("yolo-fastest", "reference/stb_decoded/dog.png")
        from_jpeg = show("yolo-fastest", "images/dog.jpg")
        for one, other in zip(from_png.detections, from_jpeg.detections, strict=True):
            assert one.label == other.label
            assert one.score == pytest.approx(other.score, abs=0.01)
        assert np.abs(boxes(from_png) - boxes(from_jpeg)).max() < 0.5


class TestClassification:
    # ncnn's file pads the last layer with zeros, so that the mean is taken over places that see nothing, too.
    @pytest.mark.parametrize(("model", "difference"), [(None, 0.003), ("squeezenet_v1.1", 0.05)])
    def test_published_probabilities(
        self, show: Infer, published: dict[str, Any], model: str | None, difference: float
    ) -> None:
        outcome = show("classification", "reference/stb_decoded/cat.png", model)
        # The fifth and sixth of Tengine's are near each other and change places with these fp16 weights.
        expected = published["squeezenet"]["top5_prob_class"][:4]
        assert [each.class_id for each in outcome.detections[:4]] == [class_id for _, class_id in expected]
        for detection, (probability, _) in zip(outcome.detections, expected, strict=False):
            assert detection.score == pytest.approx(probability, abs=difference)
        assert outcome.detections[1].label.startswith("tiger cat")

    def test_transcript(self, show: Infer) -> None:
        lines = transcript(show("classification", "reference/stb_decoded/cat.png"))
        assert lines[:6] == [
            "",
            "model file : MODEL",
            "image file : IMAGE",
            "img_h, img_w, scale[3], mean[3] : 227 227 , 1.000 1.000 1.000, 104.0 116.7 122.7",
            REPEAT,
            RULE,
        ]
        assert [line.split(", ")[1] for line in lines[6:-1]] == ["281", "282", "278", "285", "277"]
        assert lines[-1] == RULE

    def test_the_jpeg_gives_the_same_classes(self, show: Infer) -> None:
        outcome = show("classification", "images/cat.jpg")
        assert [each.class_id for each in outcome.detections[:4]] == [281, 282, 278, 285]


class TestLandmark:
    # Read off the enlarged image by eye.
    PUPILS = {104: (37.5, 51), 105: (73, 50.5)}

    def test_the_points_lie_on_the_face(self, show: Infer) -> None:
        [face] = show("landmark", "reference/stb_decoded/mobileface02.png").detections
        points = np.array(face.points)
        assert points.shape == (106, 2)
        for index, place in self.PUPILS.items():
            assert np.hypot(*(points[index] - place)) < 2.5
        contour = points[:33]
        assert (np.diff(contour[:, 0]) > 0).mean() > 0.8  # from ear to ear
        assert contour[16, 1] == pytest.approx(contour[:, 1].max(), abs=2)  # the chin
        brows, nose, mouth = points[33:43, 1], points[46, 1], points[84:104, 1]
        assert brows.max() < nose < mouth.min()

    def test_every_runner_gives_onnxruntimes_points(self, show: Infer, shared: Path) -> None:
        [face] = show("landmark", "reference/stb_decoded/mobileface02.png").detections
        image = read_image(shared / "reference/stb_decoded/mobileface02.png")
        [expected] = infer(image, demo_network(shared, "landmark")).detections
        size = np.array(image.shape[1::-1])
        assert (np.abs(np.array(face.points) - np.array(expected.points)) / size).max() < 1e-4

    def test_the_jpeg_gives_the_same_points(self, show: Infer) -> None:
        [from_png] = show("landmark", "reference/stb_decoded/mobileface02.png").detections
        [from_jpeg] = show("landmark", "images/mobileface02.jpg").detections
        assert np.abs(np.array(from_png.points) - np.array(from_jpeg.points)).max() < 0.5

    def test_transcript(self, show: Infer) -> None:
        lines = transcript(show("landmark", "images/mobileface02.jpg"))
        assert lines == ["Repeat [1] min # ms, max # ms, avg # ms"]


# Demos whose weights no public file has.
WITHOUT = sorted(set(all_demos("random")) - set(all_demos()))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_they_are_those_of_the_architectures_and_of_darknets_configurations() -> None:
    assert WITHOUT == ["efficientdet", "nanodet", "yolov2-tiny", "yolov3", "yolov3-tiny", "yolox"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("shared_zoo")
@pytest.mark.parametrize("name", WITHOUT)
def test_it_shows_random_results_and_says_so(command: Command, name: str) -> None:
    demo = ("demo", name, "--weights", "random")
    shown = json.loads(output_of(command, *demo, "--json"))
    assert shown["weights"] == "random"
    labels = load_labels(MODELS.load(DEMOS.load(name).model).labels or "")
    for result in shown["results"]:
        assert result["label"] == labels[result["class_id"]]
        x1, y1, x2, y2 = result["box"]
        assert 0 <= x1 < x2
        assert 0 <= y1 < y2
    assert shown["results"]
    *lines, last = output_of(command, *demo).splitlines()
    assert last == "weights : random, seeded: what it sees means nothing"
    number = r" *\d+(\.\d+)?"
    line = rf"[ \d]\d:{number}%, \[{number}, {number}, {number}, {number}\], .+"
    assert len([each for each in lines if re.fullmatch(line, each)]) == len(shown["results"])


# Each demo, and a line that it prints.
DEMO_LINES = {
    "classification": ", 281",
    "retinaface": "detected face num: 4",
    "landmark": "Repeat [1]",
    "yolo-fastest": "car",
    "yolo-lite": "dog",
}


@pytest.mark.quick("retinaface", "landmark")  # faces, of one file, and points, of another
@pytest.mark.parametrize("demo", DEMO_LINES)
def test_a_demo_runs_from_public_files_alone(
    demo: str, shared: Path, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = MODELS.load(DEMOS.load(demo).model)
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for file in MODELS.load(entry.same_as).files:
        assert file.url
        [copy] = (shared / "models").rglob(file.name)
        (mirror / file.name).symlink_to(copy)
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{mirror}:{shared / 'images'}")
    code, out, err = command("demo", demo)
    assert code == 0, err
    assert f"taking {entry.same_as}, of the same weights" in err
    assert DEMO_LINES[demo] in out

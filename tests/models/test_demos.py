"""The demos on real networks and images, against the numbers that Tengine published, and on weights of other files.

`RUNNERS` lists the ways of running a network that are tested; each is a function from the network's entry in
the zoo and its file to a `Runner`.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import ROOT, Command
from support.agreement import OnnxruntimeRunner
from support.commands import output_of
from support.demo_runs import demo_network, on_onnxruntime
from support.pages import run, snippets
from support.recordings import moving, write_film

from edgedeploy.building import prepare
from edgedeploy.demo.pipeline import Network, Outcome, infer
from edgedeploy.demo.program import DemoSession, Program
from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.demo.tengine_log import log_lines
from edgedeploy.frontends import tengine
from edgedeploy.runtime.opening import Place, Runner
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.vision.source import Shot, open_source
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


# Faces, and the landmarks of each, against onnxruntime; on images, on a video, and by the Python of the README.


@pytest.fixture(scope="module")
def facepipe(shared: Path) -> Iterator[DemoSession]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
        with Program.of("facepipe").opened(Place(resolve("local")), threads=1) as show:
            yield show


def reference(shared: Path, demo_name: str, image: np.ndarray) -> Outcome:
    return infer(image, demo_network(shared, demo_name), repeat=0)


@pytest.mark.parametrize(("name", "count"), [("mtcnn_face4.jpg", 4), ("mtcnn_face6.jpg", 5)])
def test_faces_and_landmarks_match_onnxruntime(facepipe: DemoSession, shared: Path, name: str, count: int) -> None:
    image = read_image(shared / "images" / name)
    size = np.array(image.shape[1::-1])
    outcome = facepipe.infer(Shot(0, Path(name), image)).outcome
    expected = reference(shared, "retinaface", image)
    assert len(outcome.detections) == len(outcome.then) == len(expected.detections) >= count
    for face, wanted, then in zip(outcome.detections, expected.detections, outcome.then, strict=True):
        assert face.score == pytest.approx(wanted.score, abs=1e-4)
        corners, wanted_corners = np.reshape(face.box, (2, 2)), np.reshape(wanted.box or (), (2, 2))
        assert (np.abs(corners - wanted_corners) / size).max() < 1e-4
        # The crop, cut out a second time: a square of 1.1 times the longer side around the box, black outside.
        side = round(1.1 * float((corners[1] - corners[0]).max()))
        corner = np.rint(corners.mean(axis=0) - side / 2).astype(int)
        border = 1000
        wide = cv2.copyMakeBorder(image, border, border, border, border, cv2.BORDER_CONSTANT, value=0)
        left, top = corner + border
        crop = wide[top : top + side, left : left + side]
        [landmarks] = reference(shared, "landmark", crop).detections
        [found] = then.detections
        assert len(found.points) == 106
        difference = np.array(found.points) - (np.array(landmarks.points) + corner)
        assert (np.abs(difference) / size).max() < 1e-4


def test_landmarks_lie_where_retinaface_sees_eyes_and_mouth(facepipe: DemoSession, shared: Path) -> None:
    image = read_image(shared / "images" / "mtcnn_face4.jpg")
    outcome = facepipe.infer(Shot(0, Path("image"), image)).outcome
    for face, then in zip(outcome.detections, outcome.then, strict=True):
        size = max(face.box[2] - face.box[0], face.box[3] - face.box[1])
        points = np.array(then.detections[0].points)
        coarse = np.array(face.points)  # eyes, nose, corners of the mouth
        for place, fine in [(coarse[0], points[104]), (coarse[1], points[105]), (coarse[2], points[46])]:
            assert np.hypot(*(place - fine)) < 0.2 * size
        assert np.hypot(*(coarse[3:].mean(axis=0) - points[84:104].mean(axis=0))) < 0.2 * size


def test_an_image_without_faces_has_none(facepipe: DemoSession, shared: Path) -> None:
    image = read_image(shared / "images" / "dog.jpg")
    result = facepipe.infer(Shot(0, Path("dog.jpg"), image))
    assert result.outcome.then == ()
    assert result.log()[-1] == "detected face num: 0"


def test_faces_of_a_video_move_with_the_image(facepipe: DemoSession, shared: Path, tmp_path: Path) -> None:
    image = read_image(shared / "images" / "mtcnn_face4.jpg")
    film = write_film(tmp_path / "party.avi", moving(image, 6, (316, 440), step=4))
    [boy] = [each for each in facepipe.infer(Shot(0, film, image)).outcome.detections if 280 < each.box[0] < 300]
    with open_source(film) as source:
        outcomes = [facepipe.infer(shot, repeat=0).outcome for shot in source.shots]
    assert len(outcomes) == 6
    for index, outcome in enumerate(outcomes):
        pairs = zip(outcome.detections, outcome.then, strict=True)
        [(face, then)] = [pair for pair in pairs if abs(pair[0].box[0] + 4 * index - boy.box[0]) < 3]
        assert np.array(face.box) == pytest.approx(np.array(boy.box) - [4 * index, 0, 4 * index, 0], abs=3)
        points = np.array(then.detections[0].points)
        assert points.mean(axis=0) == pytest.approx(np.reshape(face.box, (2, 2)).mean(axis=0), abs=12)


@pytest.mark.usefixtures("shared_zoo")
def test_the_snippet_of_the_readme_finds_faces(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(shared / "images" / "mtcnn_face4.jpg", tmp_path / "party.jpg")
    page = ROOT / "README.md"
    parts = snippets(page)
    assert parts
    run(page, parts, {})
    assert len(capsys.readouterr().out.splitlines()) == 4

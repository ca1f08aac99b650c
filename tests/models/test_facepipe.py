"""Faces, and the landmarks of each, against onnxruntime; on images, on a video, and by the Python of the README."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import ROOT
from support.demo_runs import demo_network
from support.pages import run, snippets
from support.recordings import moving, write_film

from edgedeploy.demo.pipeline import Outcome, infer
from edgedeploy.demo.program import DemoSession, Program
from edgedeploy.runtime.opening import Place
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.image import read_image
from edgedeploy.vision.source import Shot, open_source


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

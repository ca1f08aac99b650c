"""What the second network saw in one image tells where it looks in the next; the first one rests meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgedeploy.demo.pipeline import Network
from edgedeploy.demo.program import DemoSession
from edgedeploy.demo.spec import DEMOS, Demo
from edgedeploy.errors import ConfigurationError
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.package.usage import ModelInput
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.preprocess import Page
from edgedeploy.vision.source import Shot

SIDE = 64

# The detector finds bright spots in cells of 16 pixels; the second network finds the spot in a crop of 32.
TEXT = f"""\
description: bright spots
model: digits
image: {{name: digit.png, sha256: "{"0" * 64}", size: 1, bundled: true}}
fit: contain
decoder:
  kind: blaze
  scores: scores
  boxes: boxes
  points: 0
  levels: [{{stride: 16}}]
  name: spot
log: yolov3
then:
  model: digits
  crop: {{kind: rotated, around: box}}
  track:
    most: 1
    crop: {{kind: rotated, around: points}}
  decoder: {{kind: landmarks, output: points, values: 2, score: score, names: [spot]}}
  log: points
"""


class Seeing:
    """A network that looks at its image."""

    def __init__(self, side: int, *outputs: str) -> None:
        self.inputs = [TensorSpec(name="data", shape=[1, 3, side, side], dtype="float32")]
        self.outputs = [TensorSpec(name=name, shape=[1], dtype="float32") for name in outputs]
        self.threads = 1
        self.runs = 0

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        return Timing((1.0,) * repeat)

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        return {}

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        self.runs += 1
        return self.see(tensors["data"][0].mean(axis=0))

    def see(self, image: np.ndarray) -> dict[str, np.ndarray]:
        raise NotImplementedError


class Cells(Seeing):
    """The detector."""

    def see(self, image: np.ndarray) -> dict[str, np.ndarray]:
        brightest = image.reshape(4, 16, 4, 16).max(axis=(1, 3)).reshape(1, 16, 1)
        sizes = np.tile(np.array([0, 0, 32, 32], np.float32), (1, 16, 1))
        return {"scores": (brightest - 100).astype(np.float32), "boxes": sizes}


class Spot(Seeing):
    """The middle of what is bright."""

    def see(self, image: np.ndarray) -> dict[str, np.ndarray]:
        bright = np.argwhere(image > 100)[:, ::-1]
        middle = bright.mean(axis=0) if len(bright) else np.zeros(2)
        # Two points, so that the box around them has an extent.
        points = np.array([middle - 16, middle + 16], np.float32).reshape(1, 4)
        return {"points": points, "score": np.array([[min(1, len(bright))]], np.float32)}


def shot(index: int, *spots: tuple[int, int]) -> Shot:
    image = np.zeros((SIDE, SIDE, 3), np.uint8)
    for x, y in spots:
        image[y - 1 : y + 2, x - 1 : x + 2] = 255
    return Shot(index, Path("film"), image)


@pytest.fixture
def session(tmp_path: Path) -> DemoSession:
    return opened(tmp_path, TEXT)


def opened(folder: Path, text: str) -> DemoSession:
    demo = load(folder, text)
    assert demo.then
    anything = ModelInput(name="data", shape=[1, 3, 1, 1])
    runners = Cells(SIDE, "scores", "boxes"), Spot(32, "points", "score")
    stages = demo, demo.then
    networks = [
        Network(stage, "network", Path("file"), runner, anything, [])
        for stage, runner in zip(stages, runners, strict=True)
    ]
    return DemoSession("own", networks, "local", None)


def load(folder: Path, text: str) -> Demo:
    path = folder / "own.yaml"
    path.write_text(text)
    return DEMOS.load(str(path))


def runs(session: DemoSession) -> list[int]:
    """How often each network ran."""
    return [network.runner.runs for network in session.networks]  # type: ignore[attr-defined]


def test_a_spot_is_followed_without_the_detector(session: DemoSession) -> None:
    tracker = session.tracker()
    for index in range(6):
        place = (20 + 4 * index, 24 + index)
        result = session.infer(shot(index, place), repeat=0, tracker=tracker)
        [found], [seen] = result.outcome.detections, result.outcome.then[0].detections
        assert np.mean(seen.points, axis=0) == pytest.approx(place, abs=1)
        assert found.tracked == (index > 0)
    assert runs(session) == [1, 6]


def test_the_detector_looks_again_once_it_is_lost(session: DemoSession) -> None:
    tracker = session.tracker()
    films = [[(24, 24)], [(24, 24)], [], [(50, 50)], [(50, 50)]]
    seen = [session.infer(shot(index, *spots), repeat=0, tracker=tracker) for index, spots in enumerate(films)]
    assert [len(each.outcome.all_detections) for each in seen] == [2, 2, 1, 2, 2]
    # Not in the second and third image, where one is followed, nor in the last.
    assert runs(session)[0] == 2
    assert [each.outcome.detections[0].tracked for each in seen] == [False, True, True, False, True]


def test_a_spot_is_followed_on_pages_too(session: DemoSession) -> None:
    session = replace(session, page=Page())
    tracker = session.tracker()
    for index in range(3):
        session.infer(shot(index, (24, 24)), repeat=0, tracker=tracker)
    assert runs(session) == [1, 3]


def test_unrelated_images_are_searched_afresh(session: DemoSession) -> None:
    for index in range(3):
        session.infer(shot(index, (24, 24)), repeat=0)
    assert runs(session) == [3, 3]


def test_a_film_has_as_many_results_as_are_followed_and_an_image_all(session: DemoSession) -> None:
    spots = (8, 8), (56, 56)
    assert len(session.infer(shot(0, *spots), repeat=0).outcome.then) == 2
    assert len(session.infer(shot(0, *spots), repeat=0, tracker=session.tracker()).outcome.then) == 1


def test_what_is_followed_stands_for_what_the_detector_finds_at_the_same_place(tmp_path: Path) -> None:
    session = opened(tmp_path, TEXT.replace("most: 1", "most: 2"))
    tracker = session.tracker()
    for index, spots in enumerate([[(8, 8)], [(8, 8)], [(8, 8), (56, 56)], [(9, 9), (55, 55)]]):
        result = session.infer(shot(index, *spots), repeat=0, tracker=tracker)
        places = sorted(np.mean(then.detections[0].points, axis=0).round().tolist() for then in result.outcome.then)
        assert places == pytest.approx(np.array(sorted(map(list, spots))), abs=1)
    # As long as there is room for a second one, the detector looks for it.
    assert runs(session) == [3, 6]
    assert [each.tracked for each in result.outcome.detections] == [True, True]


def test_logs_and_json_tell_what_is_followed(session: DemoSession) -> None:
    tracker = session.tracker()
    session.infer(shot(0, (24, 24)), repeat=0, tracker=tracker)
    result = session.infer(shot(1, (24, 24)), repeat=0, tracker=tracker)
    times, count, box, points = result.frame_log("frame 1")
    assert times.startswith("frame 1: ")
    assert (count, points.partition(":")[0]) == ("detection num: 1", "spot 100%, 2 points")
    assert box.endswith(", spot")
    [found] = result.frame_dict()["results"]
    assert found["tracked"] is True
    assert len(found["then"][0]["points"]) == 2
    assert "tracked" not in found["then"][0]


def test_a_demo_without_it_does_not_follow(tmp_path: Path) -> None:
    start, _, rest = TEXT.partition("  track:")
    demo = start + rest[rest.index("  decoder") :]
    assert opened(tmp_path, demo).tracker() is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("kind: landmarks, output: points, values: 2, score: score, names: [spot]", "kind: landmark, points: 2"),
            "log",
        ),
        (("most: 1", "most: 0"), "most"),
        (("around: points", "around: circle"), "a circle needs upright"),
        (("around: points", "around: box"), "what is followed has points, but no box"),
        (("kind: rotated, around: box}\n  track", "kind: round}\n  track"), "crop"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path, TEXT.replace(*change))


def test_points_without_a_score_cannot_be_followed(tmp_path: Path) -> None:
    decoder = "{kind: landmarks, output: points, values: 2, score: score, names: [spot]}\n  log: points"
    with pytest.raises(ConfigurationError, match="track needs points and a score, which a landmark does not give"):
        load(tmp_path, TEXT.replace(decoder, "{kind: landmark, points: 2}\n  log: landmark"))

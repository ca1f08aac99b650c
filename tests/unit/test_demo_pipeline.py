"""From an image to results, with small networks in the place of a demo's own, one or two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from onnx import helper
from support.demo_runs import MODEL, ROOT
from support.networks import Graph
from support.onnxruntime_runner import OnnxruntimeRunner

from edgedeploy.demo.pipeline import Network, Outcome, infer, infer_with
from edgedeploy.demo.program import DemoSession
from edgedeploy.demo.spec import DEMOS, Demo, NextStage
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.package.usage import ModelInput
from edgedeploy.runtime.interface import Runner
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.draw import draw
from edgedeploy.vision.source import Shot
from edgedeploy.zoo.entry import MODELS

DIGIT = cv2.imread(str(ROOT / "models" / "digit.png"))
SIDE = len(DIGIT)
PAIR = np.hstack([DIGIT, DIGIT])

DECODER = f"{{kind: yolo, threshold: 0.5, heads: [{{output: head, anchors: [[{SIDE}, {SIDE}]]}}]}}"
DETECTOR = f"""\
description: two halves of an image
model: digits
image: {{name: digit.png, sha256: "{"0" * 64}", size: 1, bundled: true}}
decoder: {DECODER}
log: yolov3
then:
  model: digits
  crop: {{margin: 0, square: false}}
"""
DIGITS = DETECTOR + "  decoder: {kind: classification, top: 2}\n  log: classification\n"
POINTS = DETECTOR + "  decoder: {kind: landmark, points: 2}\n  log: landmark\n"


class Fixed:
    """A network that takes an image and always gives the same."""

    def __init__(self, height: int, width: int, name: str, output: np.ndarray) -> None:
        self.inputs = [TensorSpec(name="data", shape=[1, 3, height, width], dtype="float32")]
        self.outputs = [TensorSpec(name=name, shape=list(output.shape), dtype="float32")]
        self.threads = 1
        self._output = output.astype(np.float32)

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        assert list(tensors) == ["data"]
        return {self.outputs[0].name: self._output}

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        return Timing((1.0,) * repeat)


def halves(*, found: bool = True) -> Fixed:
    """Finds the left and the right half: one cell and one box of an anchor's size for each."""
    head = np.zeros((1, 6, 1, 2))
    head[0, 4] = 9 if found else -9  # objectness
    head[0, 5] = 9
    return Fixed(SIDE, 2 * SIDE, "head", head)


def load(folder: Path, text: str) -> Demo:
    path = folder / "own.yaml"
    path.write_text(text)
    return DEMOS.load(str(path))


Make = Callable[[str, Runner, Runner], DemoSession]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def show(text: str, first: Runner, second: Runner) -> DemoSession:
        demo = load(tmp_path, text)
        assert demo.then
        anything = ModelInput(name="data", shape=[1, 3, 1, 1])
        second_input = MODELS.load("digits").input if isinstance(second, OnnxruntimeRunner) else anything
        networks = [
            Network(demo, "first", Path("first.onnx"), first, anything, ["half"]),
            Network(demo.then, "second", Path("second.onnx"), second, second_input, []),
        ]
        return DemoSession("own", networks, "local", None)

    return show


def test_it_makes_of_each_crop_what_it_makes_of_that_image_alone(make: Make) -> None:
    show = make(DIGITS, halves(), OnnxruntimeRunner(MODEL))
    outcome = infer_with(PAIR, show.networks)
    assert [each.box for each in outcome.detections] == [(0, 0, SIDE, SIDE), (SIDE, 0, 2 * SIDE, SIDE)]
    alone = infer(DIGIT, show.networks[1])
    for then in outcome.then:
        assert [(each.label, each.score) for each in then.detections] == [
            (each.label, each.score) for each in alone.detections
        ]
        assert then.detections[0].label == "3"


def test_what_has_no_place_of_its_own_has_that_of_the_box(make: Make) -> None:
    outcome = infer_with(PAIR, make(DIGITS, halves(), OnnxruntimeRunner(MODEL)).networks)
    for found, then in zip(outcome.detections, outcome.then, strict=True):
        assert {each.box for each in then.detections} == {found.box}


def points_outcome(make: Make) -> tuple[DemoSession, Outcome]:
    fractions = np.array([[0.5, 0.25, 1, 1]])
    show = make(POINTS, halves(), Fixed(8, 8, "points", fractions))
    return show, infer_with(PAIR, show.networks)


def test_points_are_moved_to_where_they_lie_in_the_image(make: Make) -> None:
    _, outcome = points_outcome(make)
    left, right = (then.detections[0].points for then in outcome.then)
    assert left == ((SIDE / 2, SIDE / 4), (SIDE, SIDE))
    assert right == ((1.5 * SIDE, SIDE / 4), (2 * SIDE, SIDE))


def test_all_results_are_drawn(make: Make) -> None:
    show, outcome = points_outcome(make)
    drawn = show.infer(Shot(0, Path("pair.png"), PAIR)).drawn()
    assert np.array_equal(drawn, draw(PAIR, outcome.all_detections))
    assert drawn[SIDE // 4, SIDE // 2].tolist() != PAIR[SIDE // 4, SIDE // 2].tolist()
    assert drawn[SIDE // 2, SIDE].tolist() != PAIR[SIDE // 2, SIDE].tolist()  # the side of a box


def test_both_logs_are_printed_the_second_for_each_box(make: Make) -> None:
    show, _ = points_outcome(make)
    result = show.infer(Shot(0, Path("pair.png"), PAIR), repeat=3)
    version, repeat, rule, count, *rest = result.log()
    assert version.startswith("edgedeploy ")
    assert repeat.startswith("Repeat 3 times, thread 1,")
    assert (rule, count) == ("-" * 38, "detection num: 2")
    half, quarter = SIDE // 2, SIDE // 4
    times = "Repeat [3] min 1.000 ms, max 1.000 ms, avg 1.000 ms"
    assert rest == [
        f" 0: 100%, [   0,    0,  {SIDE},  {SIDE}], half",
        f" 0: 100%, [ {SIDE},    0,  {2 * SIDE},  {SIDE}], half",
        times,
        f"2 points: {half},{quarter} {SIDE},{SIDE}",
        times,
        f"2 points: {SIDE + half},{quarter} {2 * SIDE},{SIDE}",
    ]
    assert [line for line in result.frame_log("frame 0") if "points" in line] == [rest[3], rest[5]]


def test_json_has_the_second_results_in_the_first(make: Make) -> None:
    show, _ = points_outcome(make)
    results = show.infer(Shot(0, Path("pair.png"), PAIR)).as_dict()["results"]
    assert [each["label"] for each in results] == ["half", "half"]
    assert [each["then"][0]["points"][0] for each in results] == [[SIDE / 2, SIDE / 4], [1.5 * SIDE, SIDE / 4]]


def test_times_of_an_image_are_those_of_all_networks(make: Make) -> None:
    _, outcome = points_outcome(make)
    parts = [outcome.parts, *(then.parts for then in outcome.then)]
    assert outcome.all_parts.inference_ms == pytest.approx(sum(each.inference_ms for each in parts))
    assert outcome.all_parts.postprocess_ms == pytest.approx(sum(each.postprocess_ms for each in parts))


def test_where_nothing_is_found_the_second_network_does_not_run(make: Make) -> None:
    show = make(POINTS, halves(found=False), Fixed(8, 8, "other", np.zeros((1, 7))))
    result = show.infer(Shot(0, Path("pair.png"), PAIR))
    assert result.log()[-1] == "detection num: 0"
    assert result.as_dict()["results"] == []


def test_a_second_network_needs_boxes(tmp_path: Path) -> None:
    text = DIGITS.replace(DECODER, "{kind: classification}").replace("yolov3", "classification")
    with pytest.raises(ConfigurationError, match="then needs boxes, which a classification does not give"):
        load(tmp_path, text)


def test_facepipe_says_how_faces_are_cut_out() -> None:
    then = DEMOS.load("facepipe").then
    assert isinstance(then, NextStage)
    assert (then.crop.margin, then.crop.square) == (0.1, True)


# From an image to results, with small networks in the place of a demo's own.

INPUT = ModelInput(name="data", shape=[1, 3, 64, 64])
IMAGE = np.zeros((64, 64, 3), np.uint8)


def heads(*names: str) -> OnnxruntimeRunner:
    """A network with heads of 255 channels, of 2x2 cells the first, of 4x4 the second."""
    graph = Graph()
    data = graph.input("data", [1, 3, 64, 64])
    for name, stride in zip(names, (32, 16), strict=False):
        weights = graph.weight(np.zeros((255, 3, stride, stride), np.float32))
        graph.nodes.append(helper.make_node("Conv", [data, weights], [name], strides=[stride, stride]))
    return OnnxruntimeRunner(graph.model(*names).SerializeToString())


def look(runner: OnnxruntimeRunner, output_names: Sequence[str]) -> int:
    network = Network(DEMOS.load("yolo-fastest"), "", Path(), runner, INPUT, [], output_names)
    return len(infer(IMAGE, network).detections)


def test_as_many_outputs_of_other_names_are_taken_in_the_demos_order() -> None:
    assert look(heads("yolo_122", "yolo_131"), ["output0", "output1"]) == 0


@pytest.mark.parametrize("names", [("yolo_122",), ("output1", "yolo_131"), ("a", "b")])
def test_outputs_that_cannot_be_told_apart_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="it has no output 'output0'"):
        look(heads(*names), ["output0", "output1"] if names != ("a", "b") else [])

"""From an image to results: demos of one, two and three networks, with small ones in the place of theirs."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from onnx import helper
from support.agreement import OnnxruntimeRunner
from support.demo_runs import MODEL, ROOT
from support.networks import begun

from edgedeploy.demo import program, tengine_log
from edgedeploy.demo.pipeline import Network, Outcome, Parts, infer, infer_with
from edgedeploy.demo.program import DemoSession, Program, Result
from edgedeploy.demo.spec import DEMOS, Demo, LogFormat
from edgedeploy.errors import ConfigurationError, InputError
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.model.tensors import Tensors, TensorSpec
from edgedeploy.package.usage import ModelInput
from edgedeploy.runtime.opening import Opened, Place, Runner
from edgedeploy.runtime.timing import Timing
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.decoders import detector
from edgedeploy.vision.draw import draw
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.preprocess import Page
from edgedeploy.vision.results import Detection, Mask
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


class Standin:
    """In the place of a compiled network; it takes as long as it is told to."""

    threads, takes_ms = 1, 1.0

    def __init__(self, name: str, shape: list[int], **outputs: list[int]) -> None:
        self.inputs = [TensorSpec(name=name, shape=shape, dtype="float32")]
        self.outputs = [TensorSpec(name=each, shape=size, dtype="float32") for each, size in outputs.items()]
        self.runs = 0

    def measure(self, tensors: Tensors, *, repeat: int = 1, number: int = 1, warmup: int = 0) -> Timing:
        return Timing((self.takes_ms,) * repeat)

    def function_times(self, tensors: Tensors, *, repeat: int = 1, warmup: int = 0) -> dict[str, list[float]]:
        return {}


class Fixed(Standin):
    """Always gives the same."""

    def __init__(self, height: int, width: int, name: str, output: np.ndarray) -> None:
        super().__init__("data", [1, 3, height, width], **{name: list(output.shape)})
        self._output = output.astype(np.float32)

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        assert list(tensors) == ["data"]
        return {self.outputs[0].name: self._output}


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
        anything = ModelInput(name="data", shape=[1, 3, 1, 1])
        second_input = MODELS.load("digits").input if isinstance(second, OnnxruntimeRunner) else anything
        networks = [
            Network(demo, "first", anything, ["half"], [], Path("first.onnx"), first),
            Network(demo.then, "second", second_input, [], [], Path("second.onnx"), second),
        ]
        return DemoSession("own", networks, "local", None)

    return show


def test_it_makes_of_each_crop_what_it_makes_of_that_image_alone_with_the_place_of_the_box(make: Make) -> None:
    show = make(DIGITS, halves(), OnnxruntimeRunner(MODEL))
    outcome = infer_with(PAIR, show.networks)
    assert [each.box for each in outcome.detections] == [(0, 0, SIDE, SIDE), (SIDE, 0, 2 * SIDE, SIDE)]
    alone = infer(DIGIT, show.networks[1])
    wanted = [(each.label, each.score) for each in alone.detections]
    assert wanted[0][0] == "3"
    for found, then in zip(outcome.detections, outcome.then, strict=True):
        assert [(each.label, each.score) for each in then.detections] == wanted
        assert {each.box for each in then.detections} == {found.box}


@pytest.fixture
def pointed(make: Make) -> Result:
    """Two points in each half."""
    session = make(POINTS, halves(), Fixed(8, 8, "points", np.array([[0.5, 0.25, 1, 1]])))
    return session.infer(Shot(0, Path("pair.png"), PAIR), repeat=3)


def test_points_are_moved_to_where_they_lie_in_the_image(pointed: Result) -> None:
    left, right = (then.detections[0].points for then in pointed.outcome.then)
    assert left == ((SIDE / 2, SIDE / 4), (SIDE, SIDE))
    assert right == ((1.5 * SIDE, SIDE / 4), (2 * SIDE, SIDE))


def test_all_results_are_drawn(pointed: Result) -> None:
    drawn = pointed.drawn()
    assert np.array_equal(drawn, draw(PAIR, pointed.outcome.all_detections))
    assert drawn[SIDE // 4, SIDE // 2].tolist() != PAIR[SIDE // 4, SIDE // 2].tolist()
    assert drawn[SIDE // 2, SIDE].tolist() != PAIR[SIDE // 2, SIDE].tolist()  # the side of a box


def test_both_logs_are_printed_the_second_for_each_box(pointed: Result) -> None:
    version, repeat, rule, count, *rest = pointed.log()
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
    assert [line for line in pointed.frame_log("frame 0") if "points" in line] == [rest[3], rest[5]]


def test_json_has_the_second_results_in_the_first(pointed: Result) -> None:
    results = pointed.as_dict()["results"]
    assert [each["label"] for each in results] == ["half", "half"]
    assert [each["then"][0]["points"][0] for each in results] == [[SIDE / 2, SIDE / 4], [1.5 * SIDE, SIDE / 4]]


def test_times_of_an_image_are_those_of_all_networks(pointed: Result) -> None:
    outcome = pointed.outcome
    parts = [outcome.parts, *(then.parts for then in outcome.then)]
    assert outcome.all_parts.inference_ms == pytest.approx(sum(each.inference_ms for each in parts))
    assert outcome.all_parts.postprocess_ms == pytest.approx(sum(each.postprocess_ms for each in parts))


def test_where_nothing_is_found_the_second_network_does_not_run(make: Make) -> None:
    show = make(POINTS, halves(found=False), Fixed(8, 8, "other", np.zeros((1, 7))))
    result = show.infer(Shot(0, Path("pair.png"), PAIR))
    assert result.log()[-1] == "detection num: 0"
    assert result.as_dict()["results"] == []


def test_facepipe_says_how_faces_are_cut_out() -> None:
    then = DEMOS.load("facepipe").then
    assert (then.crop.margin, then.crop.square) == (0.1, True)


def heads(*names: str) -> OnnxruntimeRunner:
    """A network with heads of 255 channels, of 2x2 cells the first, of 4x4 the second."""
    graph, data = begun(1, 3, 64, 64)
    for name, stride in zip(names, (32, 16), strict=False):
        weights = graph.weight(np.zeros((255, 3, stride, stride), np.float32))
        graph.nodes.append(helper.make_node("Conv", [data, weights], [name], strides=[stride, stride]))
    return OnnxruntimeRunner(graph.model(*names).SerializeToString())


def look(runner: OnnxruntimeRunner, output_names: Sequence[str]) -> int:
    stated = ModelInput(name="data", shape=[1, 3, 64, 64])
    network = Network(DEMOS.load("yolo-fastest"), "", stated, [], output_names, Path(), runner)
    return len(infer(np.zeros((64, 64, 3), np.uint8), network).detections)


def test_as_many_outputs_of_other_names_are_taken_in_the_demos_order() -> None:
    assert look(heads("yolo_122", "yolo_131"), ["output0", "output1"]) == 0


@pytest.mark.parametrize("names", [("yolo_122",), ("output1", "yolo_131"), ("a", "b")])
def test_outputs_that_cannot_be_told_apart_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="it has no output 'output0'"):
        look(heads(*names), ["output0", "output1"] if names != ("a", "b") else [])


ONE_STAGE = """\
description: a handwritten digit
model: digits
image: {name: digit.png, sha256: "%s", size: 1, bundled: true}
decoder: {kind: classification}
log: classification
""" % ("0" * 64)


@pytest.mark.parametrize("name", DEMOS.names())
def test_demos_name_networks_and_images_that_can_be_had(name: str) -> None:
    demo = DEMOS.load(name)
    assert MODELS.load(demo.model)
    beside = [DEMOS.find(name).parent, MODELS.find(demo.model).parent]
    assert demo.image.has_download or any((folder / demo.image.name).is_file() for folder in beside)


def test_a_demo_is_data(tmp_path: Path) -> None:
    load(tmp_path, ONE_STAGE)


def test_a_renamed_field_is_still_read_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    detector._warn_of_old_name.cache_clear()
    text = ONE_STAGE.replace("log: classification", "log: retinaface")
    for name in ("overlap", "overlap", "iou_threshold"):
        decoder = f"{{kind: retinaface, threshold: 0.5, {name}: 0.25}}"
        demo = load(tmp_path, text.replace("{kind: classification}", decoder))
        assert demo.decoder.iou_threshold == 0.25
    assert [record.message for record in caplog.records] == [
        "the field `overlap` is called `iou_threshold` now; the old name will go"
    ]


# Tracking: the second network looks where it saw something in the image before, and the first one rests.

PLANE = 64
FOLLOWED = "kind: landmarks, output: points, values: 2, score: score, names: [spot]"

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
  decoder: {{{FOLLOWED}}}
  log: points
"""


class Cells(Standin):
    """The detector."""

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        self.runs += 1
        image = tensors["data"][0].mean(axis=0)
        brightest = image.reshape(4, 16, 4, 16).max(axis=(1, 3)).reshape(1, 16, 1)
        sizes = np.tile(np.array([0, 0, 32, 32], np.float32), (1, 16, 1))
        return {"scores": (brightest - 100).astype(np.float32), "boxes": sizes}


class Spot(Standin):
    """The middle of what is bright."""

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        self.runs += 1
        bright = np.argwhere(tensors["data"][0].mean(axis=0) > 100)[:, ::-1]
        middle = bright.mean(axis=0) if len(bright) else np.zeros(2)
        # Two points, so that the box around them has an extent.
        points = np.array([middle - 16, middle + 16], np.float32).reshape(1, 4)
        return {"points": points, "score": np.array([[min(1, len(bright))]], np.float32)}


def shot(index: int, *spots: tuple[int, int]) -> Shot:
    image = np.zeros((PLANE, PLANE, 3), np.uint8)
    for x, y in spots:
        image[y - 1 : y + 2, x - 1 : x + 2] = 255
    return Shot(index, Path("film"), image)


@pytest.fixture
def session(tmp_path: Path) -> DemoSession:
    return opened(tmp_path, TEXT)


def opened(folder: Path, text: str) -> DemoSession:
    demo = load(folder, text)
    anything = ModelInput(name="data", shape=[1, 3, 1, 1])
    cells = Cells("data", [1, 3, PLANE, PLANE], scores=[1], boxes=[1])
    spot = Spot("data", [1, 3, 32, 32], points=[1], score=[1])
    stages = (demo, cells), (demo.then, spot)
    networks = [Network(stage, "network", anything, [], [], Path("file"), runner) for stage, runner in stages]
    return DemoSession("own", networks, "local", None)


def runs(session: DemoSession) -> list[int]:
    """How often each network ran."""
    return [network.runner.runs for network in session.networks]


def film(session: DemoSession, *images: Sequence[tuple[int, int]]) -> list[Result]:
    """What is seen in images with these spots, one after the other."""
    tracker = session.tracker()
    return [session.infer(shot(index, *spots), repeat=0, tracker=tracker) for index, spots in enumerate(images)]


def test_a_spot_is_followed_without_the_detector(session: DemoSession) -> None:
    places = [(20 + 4 * index, 24 + index) for index in range(6)]
    for index, result in enumerate(film(session, *([place] for place in places))):
        [found], [seen] = result.outcome.detections, result.outcome.then[0].detections
        assert np.mean(seen.points, axis=0) == pytest.approx(places[index], abs=1)
        assert found.tracked == (index > 0)
    assert runs(session) == [1, 6]


def test_the_detector_looks_again_once_it_is_lost(session: DemoSession) -> None:
    seen = film(session, [(24, 24)], [(24, 24)], [], [(50, 50)], [(50, 50)])
    assert [len(each.outcome.all_detections) for each in seen] == [2, 2, 1, 2, 2]
    # Not in the second and third image, where one is followed, nor in the last.
    assert runs(session)[0] == 2
    assert [each.outcome.detections[0].tracked for each in seen] == [False, True, True, False, True]


def test_a_spot_is_followed_on_pages_too(session: DemoSession) -> None:
    session = replace(session, page=Page())
    film(session, *[[(24, 24)]] * 3)
    assert runs(session) == [1, 3]


def test_unrelated_images_are_searched_afresh(session: DemoSession) -> None:
    for index in range(3):
        session.infer(shot(index, (24, 24)), repeat=0)
    assert runs(session) == [3, 3]


def test_a_film_has_as_many_results_as_are_followed_and_an_image_all(session: DemoSession) -> None:
    spots = (8, 8), (56, 56)
    assert len(session.infer(shot(0, *spots), repeat=0).outcome.then) == 2
    assert [len(each.outcome.then) for each in film(session, spots)] == [1]


def test_what_is_followed_stands_for_what_the_detector_finds_at_the_same_place(tmp_path: Path) -> None:
    session = opened(tmp_path, TEXT.replace("most: 1", "most: 2"))
    images = [[(8, 8)], [(8, 8)], [(8, 8), (56, 56)], [(9, 9), (55, 55)]]
    for spots, result in zip(images, film(session, *images), strict=True):
        places = sorted(np.mean(then.detections[0].points, axis=0).round().tolist() for then in result.outcome.then)
        assert places == pytest.approx(np.array(sorted(map(list, spots))), abs=1)
    # As long as there is room for a second one, the detector looks for it.
    assert runs(session) == [3, 6]
    assert [each.tracked for each in result.outcome.detections] == [True, True]


def test_logs_and_json_tell_what_is_followed(session: DemoSession) -> None:
    _, result = film(session, *[[(24, 24)]] * 2)
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


# The demo `ocr`: three networks in a row, which are built for the sizes that images need.

# Two lines: the first one narrow, the second too wide for the narrowest network and upside down.
TWO_LINES = np.full((736, 736, 3), 200, np.uint8)
TWO_LINES[100:140, 100:250] = 60
TWO_LINES[300:320, 60:600] = 20
# What RapidOCR makes of their crops' sides, 190 x 64 and 570 x 50: int(48 * 570 / 50).
WIDTH = 547
CHARACTERS = "a\nb"


class Reading(Standin):
    """Regions are what is darker than 100; lines are upside down if they are darker than 40; they read `ab`."""

    def __init__(self, name: str, shape: list[int]) -> None:
        height, width = shape[2:]
        outputs = {"det": [1, 1, height, width], "cls": [1, 2], "rec": [1, width // 8, 4]}
        super().__init__("x", shape, out=outputs[name[-3:]])
        self.name, self.takes_ms = name, 2.0
        self.lengths: list[int] = []

    def run(self, tensors: Tensors) -> dict[str, np.ndarray]:
        values = tensors["x"][0, 0]
        assert values.shape == tuple(self.inputs[0].shape[2:])
        self.runs += 1
        if "x.length" in tensors:
            self.lengths += tensors["x.length"].tolist()
            assert not values[:, self.lengths[-1] :].any()
        output = np.zeros(self.outputs[0].shape, np.float32)
        if self.name.endswith("det"):
            output[0, 0] = values < (100 - 127.5) / 127.5
        elif self.name.endswith("cls"):
            output[0, int(values.min() < (40 - 127.5) / 127.5)] = 1
        else:
            output[0, [0, 1], [1, 2]] = 0.75
            output[0, 2:, 0] = 1
        return {"out": output}


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Reading]:
    """Stands in for building and opening; the networks in the order in which they were asked for."""
    asked: list[Reading] = []

    def prepare(
        model: str, board: Any, *, input_shapes: dict[str, list[int]], options: ImportOptions, **_: Any
    ) -> SimpleNamespace:
        network = Reading(model, input_shapes.get("x", [1, 3, 48, 192]))
        if options.lengths:
            assert options.lengths == {"x": 3}
            network.inputs.append(TensorSpec(name="x.length", shape=[1], dtype="int64"))
        asked.append(network)
        about = {"heads": [], "weights": "file", "metadata": {"character": CHARACTERS}}
        manifest = SimpleNamespace(inputs=network.inputs, results=network.outputs, **about)
        return SimpleNamespace(source=SimpleNamespace(file=Path(model)), package_path=network, manifest=manifest)

    monkeypatch.setattr(program, "prepare", prepare)
    monkeypatch.setattr(program, "find_source", lambda model, **_: SimpleNamespace(file=Path(model)))
    monkeypatch.setattr(program, "opening", lambda *_: nullcontext(lambda packages: [*map(Opened, packages)]))
    return asked


@pytest.fixture
def shown(built: list[Reading]) -> Result:
    with Program.of("ocr").opened(Place(resolve("local"))) as session:
        return session.infer(Shot(0, Path("page.png"), TWO_LINES))


def test_each_network_is_built_once_for_each_size_that_is_needed(built: list[Reading], shown: Result) -> None:
    sizes = [(network.name[-3:], network.inputs[0].shape[2:], network.runs) for network in built]
    assert sizes == [("cls", [48, 192], 2), ("det", [736, 736], 1), ("rec", [48, 640], 2)]
    with Program.of("ocr").opened(Place(resolve("local"))) as session:
        for index in range(3):
            session.infer(Shot(index, Path("page.png"), TWO_LINES))
    assert len(built) == 6


def test_lines_of_a_batch_are_as_wide_as_the_widest_of_them(built: list[Reading], shown: Result) -> None:
    assert built[-1].lengths == [WIDTH, WIDTH]
    assert not built[0].lengths
    assert not built[1].lengths


def test_a_line_has_the_place_of_its_region_whichever_way_up_it_is(shown: Result) -> None:
    regions = shown.outcome.detections
    assert len(regions) == 2
    for region, direction in zip(regions, shown.outcome.then, strict=True):
        [line] = direction.then[0].detections
        assert (line.label, line.score) == ("ab", 0.75)
        assert (line.box, line.corners) == (region.box, region.corners)
    assert [each.detections[0].label for each in shown.outcome.then] == ["0", "180"]


def test_only_text_is_printed_and_drawn(shown: Result) -> None:
    lines = [line for line in shown.log() if line.startswith("0.750, [")]
    assert len(lines) == 2
    assert all(line.endswith("], ab") for line in lines)
    assert shown.log()[-2:] == [
        "Repeat 2 times, ppocr-v2-cls, avg time 2.00 ms, max_time 2.00 ms, min_time 2.00 ms",
        "Repeat 2 times, ppocr-v4-rec, avg time 2.00 ms, max_time 2.00 ms, min_time 2.00 ms",
    ]
    assert shown.frame_log("frame 0")[1:] == lines
    assert [each.label for each in shown.outcome.all_detections] == ["ab", "ab"]
    assert np.array_equal(shown.drawn(), draw(TWO_LINES, shown.outcome.all_detections))


def test_json_has_what_each_network_found_in_what_the_one_before_it_found(shown: Result) -> None:
    results = shown.as_dict()["results"]
    assert [each["label"] for each in results] == ["text", "text"]
    assert [each["then"][0]["label"] for each in results] == ["0", "180"]
    assert [each["then"][0]["then"][0]["label"] for each in results] == ["ab", "ab"]


OCR = DEMOS.find("ocr").read_text()
WITHOUT_A_SCORE = (f"{{{FOLLOWED}}}\n  log: points", "{kind: landmark, points: 2}\n  log: landmark")


@pytest.mark.parametrize(
    ("text", "change", "message"),
    [
        (ONE_STAGE, ("kind: classification", "kind: guessing"), "decoder"),
        (ONE_STAGE, ("{kind: classification}", "{kind: classification, top: 0}"), r"decoder.*top"),
        (ONE_STAGE, ("{kind: classification}", "{kind: yolo, threshold: 0.5, heads: []}"), r"decoder.*heads"),
        (
            ONE_STAGE,
            ("log: classification", "log: yolo"),
            "log 'yolo' cannot print a classification; use classification",
        ),
        (ONE_STAGE, ("model: digits", "modell: digits"), "modell"),
        (
            DIGITS.replace("yolov3", "classification"),
            (DECODER, "{kind: classification}"),
            "then needs boxes, which a classification does not give",
        ),
        (TEXT, (FOLLOWED, "kind: landmark, points: 2"), "log"),
        (TEXT, ("most: 1", "most: 0"), "most"),
        (TEXT, ("around: points", "around: circle"), "a circle needs upright"),
        (TEXT, ("around: points", "around: box"), "what is followed has points, but no box"),
        (TEXT, ("kind: rotated, around: box}\n  track", "kind: round}\n  track"), "crop"),
        (TEXT, WITHOUT_A_SCORE, "track needs points and a score, which a landmark does not give"),
        (OCR, ("    log: text\n", ""), "log is needed where no other network follows; use text"),
        (OCR, ("    log: text\n", "    log: yolo\n"), "log 'yolo' cannot print a text-line; use text"),
        (OCR, ("kind: turn", "kind: quadrilateral"), "crop"),
        (OCR, ("kind: quadrilateral", "kind: hexagon"), "hexagon"),
        (OCR, ("kind: scaled", "kind: guessed"), "guessed"),
        (OCR, ("      class_id: 1\n      threshold: 0.9\n", ""), "class_id"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused_with_file_and_field(
    tmp_path: Path, text: str, change: tuple[str, str], message: str
) -> None:
    assert change[0] in text
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, text.replace(*change))
    assert "own.yaml:" in caught.value.what


# The logs, character by character, as Tengine's examples print them.

SQUEEZENET = ModelInput(name="data", shape=[1, 3, 227, 227], colour="BGR", mean=[104.007, 116.669, 122.679])

Log = Callable[..., list[str]]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(tengine_log, "__version__", "0.1.0")
    monkeypatch.setattr(tengine_log.metadata, "version", lambda name: {"apache-tvm": "0.27.0.post1"}[name])

    def lines(
        log_format: LogFormat, detections: list[Detection], *times: float, style: tengine_log.LogStyle = "tengine"
    ) -> list[str]:
        stage, runner = SimpleNamespace(log=log_format), SimpleNamespace(threads=1)
        network = Network(stage, "squeezenet", SQUEEZENET, [], [], Path("models/squeezenet.onnx"), runner)
        frame = Frame((316, 474), (227, 227), (1, 1))
        outcome = Outcome(detections, Timing(times or (210.81,)), Parts(), network, frame)
        return tengine_log.log_lines(outcome, Path("images/cat.jpg"), style)

    return lines


VERSION = "edgedeploy 0.1.0, Apache TVM 0.27.0"
REPEAT = "Repeat 1 times, thread 1, avg time 210.81 ms, max_time 210.81 ms, min_time 210.81 ms"
RULE = "-" * 38
FILES_AND_INPUT = [
    "",
    "model file : models/squeezenet.onnx",
    "image file : images/cat.jpg",
    "img_h, img_w, scale[3], mean[3] : 227 227 , 1.000 1.000 1.000, 104.0 116.7 122.7",
]


def seen(label: str, class_id: int, score: float | None, *box: float, **fields: Any) -> Detection:
    return Detection(label=label, class_id=class_id, score=score, box=box or None, **fields)


TWO_POINTS = ((1.4, 2), (3, 4.6))
HAND = seen("Left", 0, 0.987, points=TWO_POINTS)
REPEAT_OF_POINTS = "Repeat [1] min 210.810 ms, max 210.810 ms, avg 210.810 ms"


# Those of yolov3 and after it as the README of Tengine's examples shows them (OAID/Tengine, branch tengine-lite), for
# ssd_dog.jpg.
@pytest.mark.parametrize(
    ("log_format", "detections", "lines"),
    [
        (
            "classification",
            [seen("tabby", 281, 0.2715711), seen("tiger cat", 282, 0.265981)],
            [*FILES_AND_INPUT, REPEAT, RULE, "0.271571, 281", "0.265981, 282", RULE],
        ),
        (
            "yolo",
            [
                seen("car", 2, 0.9323, 454.07, 76.53, 684.29, 180.31),
                seen("dog", 16, 0.7515, -3.2, 221.18, 365.8, 515.53),
            ],
            [REPEAT, RULE, " 3:  93%, [ 454,   77,  684,  180], car", "17:  75%, [  -3,  221,  366,  516], dog"],
        ),
        (
            "yolov3",
            [seen("dog", 16, 0.998, 123.1, 222.6, 319.9, 544.4), seen("bicycle", 1, 0.99, 160, 117, 568, 435)],
            [
                *(REPEAT, RULE, "detection num: 2"),
                "16: 100%, [ 123,  223,  320,  544], dog",
                " 1:  99%, [ 160,  117,  568,  435], bicycle",
            ],
        ),
        (
            "nanodet",
            [
                seen("bicycle", 1, 0.59313, 141.945, 160.89, 563.568, 429.829),
                seen("car", 2, 0.48931, 462.477, 72.462, 701.777, 170.343),
            ],
            [
                *(REPEAT, RULE, "detection num: 2"),
                " 1: 59.313%, [141.945, 160.890, 563.568, 429.829], bicycle",
                " 2: 48.931%, [462.477,  72.462, 701.777, 170.343], car",
            ],
        ),
        (
            "efficientdet",
            [seen("dog", 17, 0.8, 132.9, 222.1, 315.99, 535), seen("car", 2, 0.25, 57, 77, 111, 124)],
            [
                *(*FILES_AND_INPUT, REPEAT, RULE),
                "17:  80%, [ 132,  222,  315,  535], dog",
                " 2:  25%, [  57,   77,  111,  124], car",
            ],
        ),
        (
            "objects",
            [
                seen("dog", 16, 0.9981, 123.1, 222.6, 319.9, 544.4),
                seen("plane", 4, 0.5, 0, 0, 9, 9, corners=((1, 2), (3, 4), (5, 6), (7, 8))),
                seen("cat", 15, 0.5, 1, 2, 3, 4, mask=Mask(size=(4, 4), counts=[9, 7])),
                seen("me", 0, 0.7, 1, 2, 3, 4, points=TWO_POINTS),
                seen("tabby", 281, 0.25),
                seen("sky", 2, None, mask=Mask(size=(4, 4), counts=[0, 16])),
            ],
            [
                *(REPEAT, RULE, "detection num: 6"),
                "16: 100%, [ 123,  223,  320,  544], dog",
                " 4:  50%, [   1,    2,    3,    4,    5,    6,    7,    8], plane",
                "15:  50%, [   1,    2,    3,    4], 7 pixels, cat",
                " 0:  70%, [   1,    2,    3,    4], me",
                "2 points: 1,2 3,5",
                "281:  25%, tabby",
                " 2: 16 pixels, sky",
            ],
        ),
        ("landmark", [seen("face", 0, None, points=((1, 2),))], [REPEAT_OF_POINTS]),
        ("points", [HAND], [REPEAT_OF_POINTS]),
    ],
)
def test_one_inference(log: Log, log_format: LogFormat, detections: list[Detection], lines: list[str]) -> None:
    assert log(log_format, detections) == [VERSION, *lines]


def test_retinaface(log: Log) -> None:
    faces = [
        seen("face", 0, 0.9961, 38.4053, 86.142, 84.7062, 150.1594),
        seen("face", 0, 0.9881, 384.0761, 56.98444, 461.0441, 140.94534),
    ]
    assert log("retinaface", faces, 70.0, 80.0) == [
        VERSION,
        "img_h, img_w : 316, 474",
        "Repeat 2 times, thread 1, avg time 75.00 ms, max_time 80.00 ms, min_time 70.00 ms",
        RULE,
        "detected face num: 2",
        "BOX 1.00:( 38.4053 , 86.142 ),( 46.3009 , 64.0174 )",
        "BOX 0.99:( 384.076 , 56.9844 ),( 76.968 , 83.9609 )",
    ]


def test_points_with_a_score_and_a_class() -> None:
    network = SimpleNamespace(stage=SimpleNamespace(log="points"))
    outcome = SimpleNamespace(network=network, detections=[HAND])
    assert tengine_log.result_lines(outcome, "tengine") == ["Left 99%, 2 points: 1,2 3,5"]


class TestNamed:
    """What people are told beside Tengine's lines."""

    def test_classes_have_their_names(self, log: Log) -> None:
        classes = [seen("tabby", 281, 0.2715711), seen("3", 3, 0.25)]
        *_, cat, number, rule = log("classification", classes, style="named")
        assert [cat, number, rule] == ["0.271571, 281, tabby", "0.250000, 3", RULE]

    def test_landmarks_are_told_point_by_point(self, log: Log) -> None:
        face = seen("face", 0, None, points=TWO_POINTS)
        bare, named = log("landmark", [face]), log("landmark", [face], style="named")
        assert named == [*bare, "2 points: 1,2 3,5"]

    def test_boxes_of_yolo_lack_the_number_that_is_tengines_alone(self, log: Log) -> None:
        *_, last = log("yolo", [seen("car", 2, 0.9323, 454, 76, 684, 180)], style="named")
        assert last == " 93%, [ 454,   76,  684,  180], car"

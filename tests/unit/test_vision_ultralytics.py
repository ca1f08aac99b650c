"""Outputs as Ultralytics' exporters write them, with results worked out by hand.

Whether these are what Ultralytics itself makes of such outputs is tested in tests/models/test_ultralytics_agreement.py.
"""

import math
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from support.heads import channels, chosen, fitted

from edgedeploy.errors import InputError, ModelError
from edgedeploy.frontends.onnx import FORMAT, read_onnx
from edgedeploy.model import metadata
from edgedeploy.vision.decoders.classification import Classification
from edgedeploy.vision.decoders.ultralytics import Description, Ultralytics
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection

# An image of 100 x 200 pixels, twice as large in an input of 320 x 400: 60 rows of grey above and below.
FRAME = Frame((100, 200), (320, 400), (2.0, 2.0), (0, 60))
NAMES = ["cat", "dog", "owl"]
USUAL = Ultralytics(kind="ultralytics")


def decode(outputs: dict[str, np.ndarray], decoder: Ultralytics = USUAL, **said: Any) -> list[Detection]:
    suited = fitted(decoder, outputs, **{"names": NAMES, **said})
    return suited.decoder.decode(outputs, FRAME, suited.labels)


def table(*rows: tuple[list[float], list[float]], count: int = 30, extras: int = 0) -> tuple[np.ndarray, ...]:
    """Boxes, scores and what comes after them, of `count` places: those stated, and nothing in the others."""
    boxes, scores, rest = (np.zeros((count, size), np.float32) for size in (4, len(NAMES), extras))
    boxes[:, 2:] = 1
    for place, (box, seen) in enumerate(rows):
        boxes[place], scores[place] = box, seen
    return boxes, scores, rest


TWO = table(([100, 160, 40, 20], [0.1, 0.9, 0.2]), ([102, 160, 40, 20], [0.8, 0.1, 0.0]))


def test_boxes_lose_the_border_and_the_scale_of_the_letterbox() -> None:
    dog, cat = decode({"output0": channels(*TWO)}, task="detect")
    assert (dog.label, dog.class_id, dog.score) == ("dog", 1, pytest.approx(0.9))
    # (100 - 20) / 2, (160 - 10 - 60) / 2, (100 + 20) / 2, (160 + 10 - 60) / 2
    assert dog.box == pytest.approx((40, 45, 60, 55))
    assert (cat.label, cat.box) == ("cat", pytest.approx((41, 45, 61, 55)))


def test_boxes_suppress_those_of_their_class_or_of_all() -> None:
    overlapping = table(([100, 160, 40, 20], [0.9, 0, 0]), ([104, 160, 40, 20], [0.8, 0, 0]))
    apart = table(([100, 160, 40, 20], [0.9, 0, 0]), ([110, 160, 40, 20], [0.8, 0, 0]))
    assert len(decode({"o": channels(*overlapping)})) == 1  # 36 of 44 is above 0.7
    assert len(decode({"o": channels(*apart)})) == 2  # 30 of 50
    assert len(decode({"o": channels(*TWO)})) == 2
    assert len(decode({"o": channels(*TWO)}, Ultralytics(kind="ultralytics", suppression="agnostic"))) == 1


def test_scores_must_exceed_the_threshold_and_results_end_at_the_most() -> None:
    rows = [([40 * place + 20, 160, 30, 30], [score, 0, 0]) for place, score in enumerate([0.25, 0.2500001, 0.3, 0.9])]
    outputs = {"o": channels(*table(*rows))}
    assert [each.score for each in decode(outputs)] == pytest.approx([0.9, 0.3, 0.25])
    [best] = decode(outputs, Ultralytics(kind="ultralytics", most=1))
    assert best.score == pytest.approx(0.9)


def test_boxes_end_at_the_images_edges() -> None:
    [found] = decode({"o": channels(*table(([0, 60, 100, 1000], [1, 0, 0])))})
    assert found.box == (0, 0, 25, 100)


def test_a_network_that_chooses_itself_gives_its_boxes_in_its_order_and_zeros_after_them() -> None:
    rows = chosen(*TWO, most=5)
    rows[0, 2:] = 0
    found = decode({"output0": rows}, task="detect", end2end=True)
    assert [(each.label, each.box) for each in found] == [
        ("dog", pytest.approx((40, 45, 60, 55))),
        ("cat", pytest.approx((41, 45, 61, 55))),
    ]


def test_networks_of_yolov5s_own_exporter_have_rows_with_objectness() -> None:
    boxes, scores, _ = TWO
    objectness = np.full((len(boxes), 1), 0.5, np.float32)
    dog, cat = decode({"output0": np.concatenate([boxes, objectness, scores], axis=1)[None]}, stride=32)
    assert (dog.label, dog.score) == ("dog", pytest.approx(0.45))
    assert cat.score == pytest.approx(0.4)
    one_class = np.concatenate([boxes, objectness, scores[:, 1:2]], axis=1)[None]
    [found] = decode({"output0": one_class}, names={0: "only"}, stride=32)
    assert (found.label, found.score) == ("only", pytest.approx(0.45))


def test_masks_are_sums_of_prototypes_above_zero_inside_of_the_box() -> None:
    boxes, scores, coefficients = table(([200, 160, 200, 100], [0.9, 0, 0]), ([50, 160, 40, 40], [0, 0.8, 0]), extras=2)
    coefficients[0], coefficients[1] = [1, -1], [0, 1]
    prototypes = np.zeros((1, 2, 80, 100), np.float32)
    prototypes[0, 0] = 1  # everywhere
    prototypes[0, 1, :, 50:] = 2  # the right half
    [cat] = decode({"output0": channels(boxes, scores, coefficients), "output1": prototypes}, task="segment")
    assert cat.label == "cat"  # the dog's mask has no pixels in its box
    pixels = np.argwhere(cat.mask.pixels())
    # The box is (50, 25) to (150, 75); of the mask's values 1 and -1 the sign changes at the middle, 100.
    assert pixels.min(axis=0).tolist() == [25, 50]
    assert pixels.max(axis=0).tolist() == [74, 99]
    assert cat.mask.area == len(pixels) == 50 * 50


def test_points_have_scores_and_persons_have_lines() -> None:
    boxes, scores, values = table(([200, 160, 200, 100], [0.9, 0, 0]), extras=51)
    values[0, :6] = [100, 160, 0.5, -9, 9999, 0.25]
    [found] = decode({"output0": channels(boxes, scores, values)}, task="pose", kpt_shape=[17, 3])
    assert found.points[:3] == ((50, 50), (0, 100), (0, 0))
    assert found.point_scores[:3] == (0.5, 0.25, 0)
    assert len(found.points) == len(found.point_scores) == 17
    assert (5, 7) in found.edges  # left shoulder and elbow
    boxes, scores, values = table(([200, 160, 200, 100], [0.9, 0, 0]), extras=8)
    [found] = decode({"output0": channels(boxes, scores, values)}, task="pose", kpt_shape=[4, 2])
    assert (len(found.points), found.point_scores, found.edges) == (4, (), ())


def test_turned_boxes_have_four_corners_and_a_box_around_them() -> None:
    boxes, scores, angles = table(([200, 160, 80, 40], [0.9, 0, 0]), ([201, 160, 80, 40], [0.5, 0, 0]), extras=1)
    angles[:2] = math.pi / 2
    [found] = decode({"output0": channels(boxes, scores, angles)}, task="obb")
    assert found.box == pytest.approx((90, 30, 110, 70), abs=1e-4)
    assert np.allclose(found.corners, [(90, 70), (110, 70), (110, 30), (90, 30)], atol=1e-4)
    angles[1] = 0  # across it: both stay
    assert len(decode({"output0": channels(boxes, scores, angles)}, task="obb")) == 2


def test_networks_that_classify_see_the_middle_of_the_image() -> None:
    outputs = {"output0": np.array([[0.1, 0.7, 0.2]], np.float32)}
    suited = fitted(Ultralytics(kind="ultralytics", top=2), outputs, names=NAMES, task="classify")
    assert suited.decoder == Classification(kind="classification", top=2)
    assert (suited.fit, suited.labels) == ("cover", NAMES)


def test_the_demo_may_say_the_task_and_files_without_metadata_are_told_by_their_outputs() -> None:
    boxes, scores, values = table(([200, 160, 200, 100], [0.9, 0, 0]), count=60, extras=2)
    values[0] = 1
    both = {"a": channels(boxes, scores, values), "b": np.ones((1, 2, 8, 8), np.float32)}
    [found] = decode(both, names=[])
    assert found.mask is not None
    assert found.label == "0"
    [found] = decode({"a": channels(boxes, scores)}, Ultralytics(kind="ultralytics", task="detect"), names=[])
    assert (found.label, found.mask) == ("0", None)
    # Nothing at all is said: the decoder looks at the outputs alone.
    [plain] = USUAL.decode({"a": channels(boxes, scores)}, FRAME, ["x"])
    assert plain.label == "x"


@pytest.mark.parametrize(
    ("shapes", "said", "message"),
    [
        ({"o": (1, 84, 8400)}, {"task": "detect"}, "is 1x84x8400, which does not suit 3 classes and 0 values"),
        ({"o": (1, 7, 30)}, {"task": "segment"}, "are not those of the task segment: o 1x7x30"),
        ({"o": (1, 7)}, {"task": "pose"}, "are not those of the task pose: o 1x7"),
        ({"o": (1, 7, 30)}, {"task": "pose"}, "does not suit 3 classes and 51 values"),
        ({"o": (1, 3, 30)}, {"task": "detect", "names": []}, "has 3 values for each place"),
        ({"o": (2, 7, 30)}, {"task": "detect"}, "is 2x7x30, not 1xNxM"),
    ],
)
def test_unsuitable_outputs_are_refused(shapes: dict[str, tuple[int, ...]], said: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="the network does not give what this demo reads") as caught:
        decode({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, **said)
    assert message in str(caught.value.why)


@pytest.mark.parametrize("task", ["detect", "pose", "obb", "segment"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_infinities_and_nans_are_no_results(task: str, value: float) -> None:
    extras = {"detect": 0, "pose": 51, "obb": 1, "segment": 2}[task]
    outputs = {"output0": np.full((1, 7 + extras, 30), value, np.float32)}
    if task == "segment":
        outputs["output1"] = np.full((1, 2, 8, 8), value, np.float32)
    assert decode(outputs, task=task) == []


# The metadata that they write, and hostile texts in their place.


def test_values_are_read_as_python_writes_them() -> None:
    said = {
        "task": "pose",
        "names": str({0: 'it\'s a "cat"', 1: "Ä\\n"}),
        "stride": "32",
        "imgsz": "[320, 640]",
        "kpt_shape": "[5, 2]",
        "author": "somebody",
    }
    assert Description.of(said) == Description(
        task="pose", names=['it\'s a "cat"', "Ä\\n"], stride=32, imgsz=(320, 640), kpt_shape=(5, 2)
    )
    assert Description.of({}) == Description(task=None, names=[], stride=32, imgsz=None, kpt_shape=(17, 3))
    # Names are a list or have numbers, of which some may be missing.
    assert Description.of({"names": "['a', 'b']"}).names == ["a", "b"]
    assert Description.of({"names": "{2: 'c', 0: 'a'}"}).names == ["a", "1", "c"]


HOSTILE = ["{" * 100_000, "[1," * 90 + "]" * 90, "-" * 100_000 + "1", "1" + "+1" * 50_000, "'" * 100_001]
HOSTILE += ["'\\" * 50_000, "9" * 100_000, "__import__('os').getcwd()", "open('x')", "{[]: 'a'}", '{"0": "json"}', "\0"]
HOSTILE += ["{0: 'a', 100000: 'b'}", "{-1: 'a'}", "{True: 'a'}", "{0: 1}", "{0: 'a'"]
OTHERS = [("task", "fly"), ("task", ""), ("stride", "0"), ("stride", "None"), ("imgsz", "[1]"), ("imgsz", "(-1, 5)")]
OTHERS += [("imgsz", "640000"), ("kpt_shape", "[17, 4]"), ("kpt_shape", "[99999999, 3]")]


@pytest.mark.parametrize(("key", "text"), [*(("names", text) for text in HOSTILE), *OTHERS])
def test_other_texts_are_a_typed_error_that_names_the_entry_and_take_no_time(key: str, text: str) -> None:
    start = process_time()
    with pytest.raises(ModelError, match=f"the entry '{key}.*' of the network's metadata cannot be read"):
        Description.of({key: text})
    assert process_time() - start < 2


def network_with(folder: Path, **entries: str) -> Path:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]> g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }'
    )
    helper.set_model_props(model, entries)
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def test_a_network_carries_what_decoders_read_and_no_more(tmp_path: Path) -> None:
    path = network_with(
        tmp_path, task="detect", names="{0: 'a'}", description="trained on /home/somebody", date="today"
    )
    assert read_onnx(path).metadata == {"task": "detect", "names": "{0: 'a'}"}
    assert FORMAT.metadata([path]) == {"task": "detect", "names": "{0: 'a'}"}


def test_metadata_of_other_programs_keeps_no_network_from_being_built(tmp_path: Path) -> None:
    run = read_onnx(network_with(tmp_path, task="{" * 1000, names="\x07")).reference
    assert run({"x": np.ones((1, 4), np.float32)})["y"].sum() == 4


def test_more_than_a_manifest_has_room_for_is_left_out() -> None:
    assert metadata.kept([("names", "x" * metadata.MOST_CHARACTERS)])
    assert metadata.kept([("names", "x" * metadata.MOST_CHARACTERS), ("task", "y")]) == {}


def test_the_size_of_images_is_rounded_up_to_whole_strides() -> None:
    assert USUAL.size_of({"imgsz": "[310, 640]", "stride": "32"}) == (320, 640)
    assert USUAL.size_of({"imgsz": "416"}) == (416, 416)
    assert USUAL.size_of({}) is None

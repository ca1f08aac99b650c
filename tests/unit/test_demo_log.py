"""The logs, character by character, as Tengine's examples print them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgedeploy.demo import tengine_log
from edgedeploy.demo.pipeline import Network, Outcome, Parts
from edgedeploy.demo.spec import LogFormat
from edgedeploy.package.usage import ModelInput
from edgedeploy.runtime.timing import Timing
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection, Mask

SQUEEZENET = ModelInput(name="data", shape=[1, 3, 227, 227], colour="BGR", mean=[104.007, 116.669, 122.679])


def log(
    log_format: LogFormat, detections: list[Detection], *times: float, style: tengine_log.LogStyle = "tengine"
) -> list[str]:
    stage, runner = SimpleNamespace(log=log_format), SimpleNamespace(threads=1)
    network = Network(stage, "squeezenet", Path("models/squeezenet.onnx"), runner, SQUEEZENET, [])
    frame = Frame((316, 474), (227, 227), (1, 1))
    outcome = Outcome(detections, Timing(times or (210.81,)), Parts(), network, frame)
    return tengine_log.log_lines(outcome, Path("images/cat.jpg"), style)


@pytest.fixture(autouse=True)
def _versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tengine_log, "__version__", "0.1.0")
    monkeypatch.setattr(tengine_log.metadata, "version", lambda name: {"apache-tvm": "0.27.0.post1"}[name])


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
def test_one_inference(log_format: LogFormat, detections: list[Detection], lines: list[str]) -> None:
    assert log(log_format, detections) == [VERSION, *lines]


def test_retinaface() -> None:
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

    def test_classes_have_their_names(self) -> None:
        classes = [seen("tabby", 281, 0.2715711), seen("3", 3, 0.25)]
        *_, cat, number, rule = log("classification", classes, style="named")
        assert [cat, number, rule] == ["0.271571, 281, tabby", "0.250000, 3", RULE]

    def test_landmarks_are_told_point_by_point(self) -> None:
        face = seen("face", 0, None, points=TWO_POINTS)
        bare, named = log("landmark", [face]), log("landmark", [face], style="named")
        assert named == [*bare, "2 points: 1,2 3,5"]

    def test_boxes_of_yolo_lack_the_number_that_is_tengines_alone(self) -> None:
        *_, last = log("yolo", [seen("car", 2, 0.9323, 454, 76, 684, 180)], style="named")
        assert last == " 93%, [ 454,   76,  684,  180], car"

"""Detectors on seeded random heads, against plain loops (support/plain_decoders.py); and those of Ultralytics."""

import math
from collections.abc import Iterable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from pydantic import TypeAdapter, ValidationError
from support import heads
from support import plain_decoders as plain
from support.heads import NETWORK, channels, chosen, fitted, probabilities, random

from edgedeploy.demo.spec import DEMOS, AnyDecoder
from edgedeploy.errors import InputError, ModelError
from edgedeploy.frontends.onnx import FORMAT, read_onnx
from edgedeploy.model import metadata
from edgedeploy.model.heads import Head
from edgedeploy.vision.decoders.classification import Classification
from edgedeploy.vision.decoders.detector import Detector, clusters, suppress, suppress_turned
from edgedeploy.vision.decoders.faces import YuNet
from edgedeploy.vision.decoders.keypoints import Blaze
from edgedeploy.vision.decoders.nanodet import NanoDet
from edgedeploy.vision.decoders.ssd import EfficientDet, Ssd
from edgedeploy.vision.decoders.ultralytics import Description, Ultralytics
from edgedeploy.vision.decoders.yolo import Yolo, Yolox
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection

FRAME = Frame((300, 400), NETWORK, (160 / 400, 96 / 300))
SUPPRESSION = pytest.mark.parametrize("suppression", ["agnostic", "class_aware"])


def assert_agrees(
    decoder: Detector, outputs: plain.Outputs, found: Iterable[plain.Place], overlap: float, *, clip: bool = True
) -> None:
    """Of the places, of which some suppress others, the decoder reports those that plain loops keep."""
    places = list(found)
    expected = plain.kept(places, overlap, getattr(decoder, "suppression", "agnostic") == "class_aware")
    assert len(places) > len(expected) > 5
    plain.assert_reported(decoder.decode(outputs, FRAME, []), expected, FRAME, clip=clip)


class TestYolo:
    @SUPPRESSION
    @pytest.mark.parametrize("kind", ["yolo", "region"])
    @pytest.mark.parametrize("scale_x_y", [1.0, 1.1])
    def test_agrees_with_plain_loops(self, kind: str, suppression: str, scale_x_y: float) -> None:
        common = {"kind": kind, "anchors": heads.ANCHORS, "scale_x_y": scale_x_y}
        stated = [{"output": name, **common} for name in heads.YOLO]
        decoder = Yolo.model_validate({"kind": "yolo", "threshold": 0.3, "suppression": suppression, "heads": stated})
        places = [
            place
            for output in heads.YOLO.values()
            for place in plain.yolo(output, heads.ANCHORS, NETWORK, 0.3, region=kind == "region", scale_x_y=scale_x_y)
        ]
        assert_agrees(decoder, heads.YOLO, places, 0.45, clip=False)

    def test_heads_are_the_networks_own_unless_the_demo_states_them(self) -> None:
        bare = Yolo(kind="yolo", threshold=0.3)
        large = [Head(output="large", anchors=heads.ANCHORS)]
        assert bare.with_heads(large) == Yolo(kind="yolo", threshold=0.3, heads=large)
        stated = Yolo(kind="yolo", threshold=0.3, heads=large)
        assert stated.with_heads([Head(output="small", anchors=heads.ANCHORS)]) == stated

    def test_heads_that_nobody_states_are_an_error_that_says_so(self) -> None:
        with pytest.raises(InputError, match="anchors of the network's heads are not known") as caught:
            Yolo(kind="yolo", threshold=0.3).with_heads([])
        assert caught.value.why == "neither the demo states heads, nor the network's file"

    def test_another_number_of_classes_than_the_head_states_is_refused(self) -> None:
        head = Head(output="large", anchors=heads.ANCHORS, classes=4)
        with pytest.raises(InputError, match="24 channels of its output 'large' do not suit 3 anchors of 4 classes"):
            Yolo(kind="yolo", threshold=0.3, heads=[head]).decode(heads.YOLO, FRAME, [])


class TestSsd:
    def decoder(self, **fields: Any) -> Ssd:
        return Ssd.model_validate({**heads.SSD_FIELDS, **fields})

    @SUPPRESSION
    @pytest.mark.parametrize("spacing", ["stride", "even"])
    def test_agrees_with_plain_loops(self, suppression: str, spacing: str) -> None:
        decoder = self.decoder(suppression=suppression, spacing=spacing, points="points", variances=(0.2, 0.3))
        priors = plain.priors(NETWORK, heads.PRIORS, even=spacing == "even")
        places = plain.ssd(heads.SSD["scores"], heads.SSD["boxes"], heads.SSD["points"], priors, 0.5, (0.2, 0.3))
        assert_agrees(decoder, heads.SSD, places, 0.4)

    def test_without_prior_boxes_corners_are_fractions_of_the_input(self) -> None:
        outputs = {
            "boxes": np.array([[[0.25, 0.5, 0.5, 1]]], np.float32),
            "scores": np.array([[[0.2, 0.1, 0.7]]], np.float32),
            "points": np.array([[[0.5, 0.25]]], np.float32),
        }
        [found] = self.decoder(levels=None, points="points").decode(outputs, FRAME, ["a", "b"])
        assert found.label == "b"
        assert found.box == pytest.approx((100, 150, 200, 299))
        assert found.points == ((200, 75),)

    @pytest.mark.parametrize(
        ("box_format", "values"),
        [
            ("xyxy", (0.25, 0.5, 0.5, 0.75)),
            ("yxyx", (0.5, 0.25, 0.75, 0.5)),
            ("cxcywh", (0.375, 0.625, 0.25, 0.25)),
            ("cycxhw", (0.625, 0.375, 0.25, 0.25)),
        ],
    )
    def test_boxes_come_in_each_order(self, box_format: str, values: tuple[float, ...]) -> None:
        outputs = {"boxes": np.array([[values]], np.float32), "scores": np.array([[[0.2, 0.8]]], np.float32)}
        [found] = self.decoder(levels=None, box_format=box_format).decode(outputs, FRAME, [])
        assert found.box == pytest.approx((100, 150, 200, 225))

    def test_corrections_of_prior_boxes_may_have_rows_first(self) -> None:
        swapped = {**heads.SSD, "boxes": heads.SSD["boxes"][..., [1, 0, 3, 2]]}
        expected = self.decoder().decode(heads.SSD, FRAME, [])
        assert self.decoder(box_format="cycxhw").decode(swapped, FRAME, []) == expected
        with pytest.raises(ValidationError, match="with levels box_format is cxcywh or cycxhw, not yxyx"):
            self.decoder(box_format="yxyx")

    @pytest.mark.parametrize(
        ("background", "scores", "class_id"),
        [("first", (0.9, 0.1, 0.6), 1), ("last", (0.1, 0.6, 0.9), 1), ("none", (0.1, 0.6, 0.9), 2)],
    )
    def test_the_background_is_nothing(self, background: str, scores: tuple[float, ...], class_id: int) -> None:
        outputs = {"boxes": np.array([[[0.2, 0.2, 0.4, 0.4]]], np.float32), "scores": np.array([[scores]], np.float32)}
        [found] = self.decoder(levels=None, background=background).decode(outputs, FRAME, [])
        assert found.class_id == class_id
        only = {"first": (1, 0, 0), "last": (0, 0, 1), "none": (0, 0, 0)}[background]
        outputs["scores"] = np.array([[only]], np.float32)
        assert self.decoder(levels=None, background=background).decode(outputs, FRAME, []) == []


def test_yunet_agrees_with_plain_loops() -> None:
    decoder = YuNet(kind="yunet")
    assert_agrees(decoder, heads.YUNET, plain.yunet(heads.YUNET, NETWORK, 0.9), 0.3)
    assert {each.label for each in decoder.decode(heads.YUNET, FRAME, [])} == {"face"}


@SUPPRESSION
def test_yolox_agrees_with_plain_loops(suppression: str) -> None:
    limits = {"threshold": 0.3, "iou_threshold": 0.3, "suppression": suppression}
    decoder = Yolox.model_validate({"kind": "yolox", **limits})
    assert_agrees(decoder, {"output": heads.YOLOX}, plain.yolox(heads.YOLOX, NETWORK, 0.3), 0.3)


class TestNanoDet:
    joint = {"joint": np.concatenate(heads.SIDES, axis=2)}

    @SUPPRESSION
    def test_one_output_agrees_with_plain_loops(self, suppression: str) -> None:
        fields = {"threshold": 0.8, "output": "joint", "suppression": suppression}
        decoder = NanoDet.model_validate({"kind": "nanodet", **fields})
        assert_agrees(decoder, self.joint, plain.nanodet(*heads.SIDES, heads.GRIDS, 0.8, 0.5), 0.5)

    def test_outputs_for_each_level_agree_with_the_joint_one(self) -> None:
        joint = NanoDet(kind="nanodet", output="joint", threshold=0.8)
        names, outputs = heads.nanodet_levels()
        separate = NanoDet.model_validate({"kind": "nanodet", "threshold": 0.8, **names})
        assert separate.decode(outputs, FRAME, []) == joint.decode(self.joint, FRAME, [])

    def test_nanodet_plus_has_a_fourth_level_and_points_at_the_corners_of_cells(self) -> None:
        grids = [*heads.GRIDS, (64, 2, 3)]
        count = sum(rows * columns for _, rows, columns in grids)
        scores, distances = probabilities(1, count, 6, seed=3), random(1, count, 32, seed=3)
        decoder = NanoDet(kind="nanodet", output="joint", strides=[8, 16, 32, 64], offset=0, threshold=0.8)
        outputs = {"joint": np.concatenate([scores, distances], axis=2)}
        assert_agrees(decoder, outputs, plain.nanodet(scores, distances, grids, 0.8, 0), 0.5)

    @pytest.mark.parametrize("fields", [{}, {"output": "a", "scores": ["b"]}, {"scores": ["a"], "distances": ["b"]}])
    def test_a_demo_states_one_output_or_one_for_each_level(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="state either `output`, or `scores` and `distances`"):
            NanoDet(kind="nanodet", **fields)


class TestEfficientDet:
    def decoder(self, **fields: Any) -> EfficientDet:
        return EfficientDet.model_validate({"kind": "efficientdet", "scores": ["s"], "boxes": ["b"], **fields})

    @SUPPRESSION
    def test_joined_outputs_agree_with_plain_loops(self, suppression: str) -> None:
        places = plain.efficientdet(heads.EFFICIENTDET["s"], heads.EFFICIENTDET["b"], NETWORK, 0.2)
        assert_agrees(self.decoder(suppression=suppression), heads.EFFICIENTDET, places, 0.2)

    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_outputs_for_each_level_agree_with_the_joined_ones(self, layout: str) -> None:
        fields, outputs = heads.efficientdet_levels(layout)
        assert self.decoder(**fields).decode(outputs, FRAME, []) == self.decoder().decode(heads.EFFICIENTDET, FRAME, [])

    def test_probabilities_are_not_put_through_a_sigmoid_again(self) -> None:
        outputs = {**heads.EFFICIENTDET, "s": 1 / (1 + np.exp(-heads.EFFICIENTDET["s"]))}
        found = self.decoder(logits=False).decode(outputs, FRAME, [])
        wanted = self.decoder().decode(heads.EFFICIENTDET, FRAME, [])
        assert [each.score for each in found] == pytest.approx([each.score for each in wanted])


class TestEveryDetector:
    """What holds for all of them, on outputs that some network could give."""

    raw = [{"output": "h", "anchors": [(9, 9)], "classes": 3}]
    priors = [{"stride": 32, "sizes": [(9, 9)]}]
    faces = {"cls_32": (1, 15, 1), "obj_32": (1, 15, 1), "bbox_32": (1, 15, 4), "kps_32": (1, 15, 10)}
    cases: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
        "yolo": ({"threshold": 0.1, "heads": raw}, {"h": (1, 8, 3, 5)}),
        "ssd": ({"scores": "s", "boxes": "b", "levels": priors}, {"s": (1, 15, 3), "b": (1, 15, 4)}),
        "blaze": (
            {"scores": "s1", "boxes": "b", "points": 2, "levels": [{"stride": 32}]},
            {"s1": (1, 15, 1), "b": (1, 15, 8)},
        ),
        "yunet": ({"strides": [32]}, faces),
        "yolox": ({"strides": [32]}, {"output": (1, 15, 8)}),
        "nanodet": ({"strides": [32], "output": "o"}, {"o": (1, 15, 35)}),
        "efficientdet": (
            {"levels": [5, 6], "scores": ["s"], "boxes": ["b"]},
            {"s": (1, 9 * 21, 3), "b": (1, 9 * 21, 4)},
        ),
    }
    each = pytest.mark.parametrize(
        ("decoder", "shapes"),
        [
            pytest.param(TypeAdapter(AnyDecoder).validate_python({"kind": kind, **fields}), shapes, id=kind)
            for kind, (fields, shapes) in cases.items()
        ],
    )

    def test_none_is_left_out(self) -> None:
        kinds = {kind.model_fields["kind"].annotation.__args__[0] for kind in AnyDecoder.__args__[0].__args__}  # type: ignore[union-attr]
        assert set(self.cases) == kinds - {
            *("classification", "landmark", "landmarks", "retinaface"),
            *("depth", "segmentation", "text-line", "text-regions", "ultralytics"),
        }

    @each
    def test_infinities_and_nans_are_no_results(self, decoder: Detector, shapes: dict[str, tuple[int, ...]]) -> None:
        for value in (np.nan, np.inf, -np.inf):
            outputs = {name: np.full(shape, value, np.float32) for name, shape in shapes.items()}
            for found in decoder.decode(outputs, FRAME, []):
                assert np.isfinite(found.box).all()

    @each
    def test_a_missing_output_is_named(self, decoder: Detector, shapes: dict[str, tuple[int, ...]]) -> None:
        with pytest.raises(InputError, match=r"it has no output '.*', only other"):
            decoder.decode({"other": np.zeros((1, 1000), np.float32)}, FRAME, [])

    @each
    def test_outputs_of_other_shapes_are_refused(self, decoder: Detector, shapes: dict[str, tuple[int, ...]]) -> None:
        for changed in shapes:
            for axis, size in ((0, 2), (1, 7), (-1, 2)):
                wrong = {name: list(shape) for name, shape in shapes.items()}
                wrong[changed][axis] = size
                outputs = {name: np.ones(shape, np.float32) for name, shape in wrong.items()}
                if axis == -1 and changed in ("h", "s"):
                    continue  # a convolutional network may have any size, or any number of classes
                with pytest.raises(InputError, match="the network does not give what this demo reads"):
                    decoder.decode(outputs, FRAME, [])

    @each
    def test_only_so_many_candidates_are_compared(self, decoder: Detector, shapes: dict[str, tuple[int, ...]]) -> None:
        outputs = {name: probabilities(*shape) for name, shape in shapes.items()}
        everything = decoder.model_copy(update={"threshold": 0.0, "iou_threshold": 1.0})
        few = everything.model_copy(update={"candidates": 3})
        assert few.decode(outputs, FRAME, []) == everything.decode(outputs, FRAME, [])[:3]


# 10x10 each, shifted by 2: intersection 80, union 120, overlap 0.667
PAIR = [(0, 0, 10, 10), (2, 0, 12, 10)]
SAME = [(0, 0, 10, 10)] * 3
APART = [(0, 0, 1, 1), (5, 5, 6, 6), (9, 9, 10, 10)]
CHAIN = [(0, 0, 10, 1), (4, 0, 14, 1), (8, 0, 18, 1)]  # neighbours overlap by 6/14, the outer two by 2/18


@pytest.mark.parametrize(
    ("boxes", "scores", "limit", "classes", "kept"),
    [
        pytest.param(PAIR, [0.6, 0.9], 0.5, None, [1], id="the best is kept"),
        pytest.param(PAIR, [0.6, 0.9], 0.7, None, [1, 0], id="those that overlap less stay"),
        pytest.param([*SAME[:1], (0, 0, 5, 10)], [0.9, 0.8], 0.5, None, [0, 1], id="an overlap of 0.5 is allowed"),
        pytest.param(CHAIN, [0.9, 0.8, 0.7], 0.4, None, [0, 2], id="a suppressed box suppresses nothing"),
        pytest.param(SAME, [0.9, 0.8, 0.7], 0.5, [1, 2, 1], [0, 1], id="within classes those of its own"),
        pytest.param(APART, [0.5, 0.5, 0.5], 0.5, None, [0, 1, 2], id="equal scores keep their order"),
        pytest.param([], [], 0.5, None, [], id="no boxes"),
        pytest.param([(3, 3, 3, 3)] * 2, [0.2, 0.1], 0.5, None, [0, 1], id="empty boxes"),
    ],
)
def test_boxes_suppress_others(
    boxes: list[tuple[int, ...]], scores: list[float], limit: float, classes: list[int] | None, kept: list[int]
) -> None:
    rows = np.array(boxes, np.float32).reshape(-1, 4)
    numbers = None if classes is None else np.array(classes)
    assert suppress(rows, np.array(scores), limit, classes=numbers).tolist() == kept


class TestTurnedBoxes:
    def test_a_box_stays_beside_one_that_lies_across_it(self) -> None:
        boxes = np.array([[50, 50, 40, 10, 0], [50, 50, 40, 10, np.pi / 2], [51, 50, 40, 10, 0.01]])
        assert suppress_turned(boxes, np.array([0.5, 0.9, 0.8]), 0.7).tolist() == [1, 2]

    def test_equal_boxes_of_other_classes_stay(self) -> None:
        boxes = np.array([[50, 50, 40, 10, 0.5]] * 3)
        scores = np.array([0.5, 0.9, 0.8])
        assert suppress_turned(boxes, scores, 0.7).tolist() == [1]
        assert suppress_turned(boxes, scores, 0.7, np.array([0, 1, 0])).tolist() == [1, 2]

    def test_what_is_suppressed_suppresses_others(self) -> None:
        boxes = np.array([[50 + 4 * place, 50, 40, 40, 0] for place in range(3)], float)
        scores = np.array([0.9, 0.8, 0.7])
        kept = suppress_turned(boxes[:2], scores[:2], 0.8), suppress_turned(boxes[::2], scores[::2], 0.8)
        assert [each.tolist() for each in kept] == [[0], [0, 1]]
        assert suppress_turned(boxes, scores, 0.8).tolist() == [0]

    def test_of_nothing_nothing_is_kept(self) -> None:
        assert suppress_turned(np.zeros((0, 5)), np.zeros(0), 0.5).tolist() == []


# BlazeFace and its kin: anchors without sizes, and boxes that overlap become one.

SMALL = Frame((64, 64), (32, 32), (0.5, 0.5))


def blaze(**fields: Any) -> Blaze:
    levels = [{"stride": 8, "anchors": 2}, {"stride": 16, "anchors": 1}]
    values = {"kind": "blaze", "scores": "s", "boxes": "b", "points": 1, "levels": levels, **fields}
    return Blaze.model_validate(values)


def anchored(places: dict[int, tuple[float, list[float]]]) -> dict[str, np.ndarray]:
    """Of 36 anchors, those with a logit and values; the others are sure of nothing."""
    scores, boxes = np.full((1, 36, 1), -9, np.float32), np.zeros((1, 36, 6), np.float32)
    for index, (logit, values) in places.items():
        scores[0, index, 0], boxes[0, index] = logit, values
    return {"s": scores, "b": boxes}


@pytest.mark.parametrize(
    ("anchor", "centre"),
    [(0, (4, 4)), (1, (4, 4)), (2, (12, 4)), (8, (4, 12)), (31, (28, 28)), (32, (8, 8)), (35, (24, 24))],
)
def test_anchors_lie_at_the_centres_of_cells_level_by_level(anchor: int, centre: tuple[float, float]) -> None:
    [face] = blaze().decode(anchored({anchor: (9, [1, 2, 4, 6, 3, -1])}), SMALL, [])
    x, y = centre
    assert face.box == (2 * (x - 1), 2 * (y - 1), 2 * (x + 3), 2 * (y + 5))
    assert face.points == ((2 * (x + 3), 2 * (y - 1)),)
    assert face.score == pytest.approx(1 / (1 + np.exp(-9)))
    assert face.label == "face"


@pytest.mark.parametrize(("name", "side", "rows"), [("face-mesh", 128, 896), ("hands", 192, 2016), ("pose", 224, 2254)])
def test_demos_have_as_many_anchors_as_their_networks_have_rows(name: str, side: int, rows: int) -> None:
    decoder = DEMOS.load(name).decoder
    assert isinstance(decoder, Blaze)
    assert sum((side // level.stride) ** 2 * level.anchors for level in decoder.levels) == rows


def test_boxes_that_overlap_become_their_mean_weighted_with_their_scores() -> None:
    same = {0: (0.0, [0, 0, 8, 8, 0, 0]), 1: (1.0, [1, 0, 8, 8, 4, 0]), 31: (0.0, [0, 0, 4, 4, 0, 0])}
    best, other = blaze().decode(anchored(same), SMALL, [])
    weights = np.array([0.5, 1 / (1 + np.exp(-1))])
    x = np.average([4, 5], weights=weights)
    assert best.score == pytest.approx(weights[1])
    assert best.box == pytest.approx((2 * (x - 4), 0, 2 * (x + 4), 16))
    assert best.points[0] == pytest.approx((2 * np.average([4, 8], weights=weights), 8))
    assert other.box == (52, 52, 60, 60)


def test_boxes_that_are_inside_out_are_no_results() -> None:
    assert blaze().decode(anchored({0: (9, [0, 0, -4, 4, 0, 0])}), SMALL, []) == []


def test_each_cluster_begins_with_the_box_that_is_kept() -> None:
    generator = np.random.default_rng(0)
    corner = generator.random((60, 2)) * 20
    boxes = np.concatenate([corner, corner + 5 + generator.random((60, 2)) * 5], axis=1)
    scores = generator.random(60)
    groups = clusters(boxes, scores, 0.3)
    assert [group[0] for group in groups] == suppress(boxes, scores, 0.3).tolist()
    assert sorted(np.concatenate(groups)) == list(range(60))
    assert all((np.diff(scores[group]) <= 0).all() for group in groups)


# Outputs as Ultralytics' exporters write them, with results worked out by hand. Whether these are what Ultralytics
# itself makes of such outputs is tested in tests/models/test_ultralytics_agreement.py.

# An image of 100 x 200 pixels, twice as large in an input of 320 x 400: 60 rows of grey above and below.
LETTERBOXED = Frame((100, 200), (320, 400), (2.0, 2.0), (0, 60))
NAMES = ["cat", "dog", "owl"]
USUAL = Ultralytics(kind="ultralytics")


def decode(outputs: dict[str, np.ndarray], decoder: Ultralytics = USUAL, **said: Any) -> list[Detection]:
    suited = fitted(decoder, outputs, **{"names": NAMES, **said})
    return suited.decoder.decode(outputs, LETTERBOXED, suited.labels)


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
    [plain] = USUAL.decode({"a": channels(boxes, scores)}, LETTERBOXED, ["x"])
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

"""Decoders on small heads whose results were computed by hand."""

import math
import re
from typing import Any

import cv2
import numpy as np
import pytest
from pydantic import ValidationError

from edgedeploy.errors import InputError
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.vision.decoder import Decoder
from edgedeploy.vision.decoders.classification import Classification
from edgedeploy.vision.decoders.faces import RetinaFace
from edgedeploy.vision.decoders.keypoints import Landmark, Landmarks
from edgedeploy.vision.decoders.maps import Depth, Segmentation, on_image
from edgedeploy.vision.decoders.text import TextLine, TextRegions, grown
from edgedeploy.vision.decoders.yolo import Head, Yolo
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.preprocess import place
from edgedeploy.vision.results import Detection, Mask


def frame(image: tuple[int, int], network: tuple[int, int]) -> Frame:
    return Frame(image, network, (network[1] / image[1], network[0] / image[0]))


class TestClassification:
    decoder = Classification(kind="classification", top=3)

    def test_best_classes_first_and_numbers_where_labels_end(self) -> None:
        scores = np.array([[0.1, 0.5, 0.1, 0.3]], np.float32)
        found = self.decoder.decode({"prob": scores}, frame((1, 1), (1, 1)), ["a", "b", "c"])
        assert [(each.class_id, each.label) for each in found] == [(1, "b"), (3, "3"), (0, "a")]
        assert found[0].score == 0.5
        assert found[0].box is None

    def test_unsigned_scores_and_fewer_classes_than_asked_for(self) -> None:
        found = self.decoder.decode({"prob": np.array([0, 200], np.uint8)}, frame((1, 1), (1, 1)), [])
        assert [(each.class_id, each.score) for each in found] == [(1, 200), (0, 0)]


class TestLandmark:
    decoder = Landmark(kind="landmark", points=2)

    @pytest.mark.parametrize("points", [68, 98, 106])
    def test_all_common_sets(self, points: int) -> None:
        fractions = np.random.default_rng(points).uniform(size=(1, 2 * points)).astype(np.float32)
        decoder = Landmark(kind="landmark", points=points)
        [face] = decoder.decode({"output": fractions}, frame((300, 400), (112, 112)), [])
        expected = [(400 * x, 300 * y) for x, y in fractions.reshape(-1, 2).tolist()]
        assert np.allclose(face.points, expected, atol=0.01)

    def test_fractions_become_pixels_of_the_image(self) -> None:
        outputs = {"features": np.zeros((1, 8)), "points": np.array([[0.5, 0.25, 1.5, 0]], np.float32)}
        [face] = self.decoder.decode(outputs, frame((80, 40), (112, 112)), [])
        assert face.points == ((20, 20), (60, 0))
        assert (face.label, face.score, face.box) == ("face", None, None)


class TestYolo:
    """One head of 2 x 3 cells, two anchors, three classes; the network's input is 64 x 96."""

    decoder = Yolo(kind="yolo", threshold=0.3, heads=[Head(output="head", anchors=[(10, 10), (20, 30)])])
    tengines = decoder.model_copy(update={"confidence": "tengine"})

    def outputs(self) -> dict[str, np.ndarray]:
        cells = np.zeros((2, 8, 2, 3), np.float32)
        cells[:, 4] = -20
        cells[1, :, 1, 2] = [0, math.log(3), math.log(2), 0, 2, 0, 1, -1]
        return {"head": cells.reshape(1, 16, 2, 3)}

    def test_box_class_and_darknet_confidence(self) -> None:
        # centre ((2 + 0.5) 32, (1 + 0.75) 32) = (80, 56), size (40, 30), in an image twice as wide as the input
        [found] = self.decoder.decode(self.outputs(), frame((64, 192), (64, 96)), ["a", "b", "c"])
        assert (found.class_id, found.label) == (1, "b")
        assert found.box == pytest.approx((120, 41, 200, 71))
        assert found.score == pytest.approx(1 / (1 + math.exp(-2)) / (1 + math.exp(-1)))

    def test_tengines_confidence(self) -> None:
        [found] = self.tengines.decode(self.outputs(), frame((64, 96), (64, 96)), [])
        assert found.score == pytest.approx(1 / (1 + math.exp(-2) * (1 + math.exp(-1))))
        assert found.label == "1"

    def test_overlapping_boxes_of_different_classes_suppress_each_other(self) -> None:
        outputs = self.outputs()
        cells = outputs["head"].reshape(2, 8, 2, 3)
        cells[0, :, 1, 2] = [0, math.log(3), math.log(4), math.log(3), 1, 5, 0, 0]  # the same box, class 0
        found = self.decoder.decode(outputs, frame((64, 96), (64, 96)), [])
        assert [each.class_id for each in found] == [0]

    def test_extreme_logits_do_not_overflow(self) -> None:
        outputs = self.outputs()
        outputs["head"].reshape(2, 8, 2, 3)[0, 4:, 0, 0] = -1e4
        assert len(self.tengines.decode(outputs, frame((64, 96), (64, 96)), [])) == 1


class TestRetinaFace:
    """A network of 64 x 64 pixels with one face at stride 16, row 2, column 1, anchor 1 (64 pixels)."""

    decoder = RetinaFace(kind="retinaface")

    def outputs(self) -> dict[str, np.ndarray]:
        outputs = {
            f"face_rpn_{what}_stride{stride}": np.zeros((1, channels, 64 // stride, 64 // stride), np.float32)
            for stride in (32, 16, 8)
            for what, channels in (("cls_prob_reshape", 4), ("bbox_pred", 8), ("landmark_pred", 20))
        }
        outputs["face_rpn_cls_prob_reshape_stride16"][0, 3, 2, 1] = 0.9
        outputs["face_rpn_bbox_pred_stride16"][0, 4:, 2, 1] = [0.25, 0, math.log(0.5), 0]
        outputs["face_rpn_landmark_pred_stride16"][0, 10:12, 2, 1] = [0.1, 0.2]
        return outputs

    def test_box_and_landmarks(self) -> None:
        # anchor centre (8 + 16, 8 + 32) = (24, 40); box centre (40, 40), size 32 x 64, and its last pixel
        [face] = self.decoder.decode(self.outputs(), frame((100, 100), (100, 100)), [])
        assert face.box == pytest.approx((24, 8, 57, 73))
        assert face.score == pytest.approx(0.9)
        assert face.label == "face"
        assert face.points[0] == pytest.approx((24 + 6.5, 40 + 13))
        assert face.points[1:] == ((24, 40),) * 4

    def test_boxes_are_mapped_back_and_clipped_to_the_image(self) -> None:
        [face] = self.decoder.decode(self.outputs(), frame((128, 128), (64, 64)), [])
        assert face.box == pytest.approx((48, 16, 114, 127))

    def test_background_is_no_face(self) -> None:
        outputs = self.outputs()
        outputs["face_rpn_cls_prob_reshape_stride16"][0] = 0
        outputs["face_rpn_cls_prob_reshape_stride8"][0, :2] = 1
        assert self.decoder.decode(outputs, frame((64, 64), (64, 64)), []) == []

    def test_the_better_of_two_faces_in_one_place_is_kept(self) -> None:
        outputs = self.outputs()
        outputs["face_rpn_cls_prob_reshape_stride16"][0, 3, 2, 2] = 0.95
        outputs["face_rpn_bbox_pred_stride16"][0, 4:, 2, 2] = [0, 0, math.log(0.5), 0]
        [face] = self.decoder.decode(outputs, frame((100, 100), (100, 100)), [])
        assert face.score == pytest.approx(0.95)


# Points with a score, classes, depths and scores, and outputs that know some of them better.

FRAME = Frame((64, 64), (32, 32), (0.5, 0.5))
THREE = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)


def landmarks(**fields: Any) -> Landmarks:
    return Landmarks.model_validate({"kind": "landmarks", "output": "p", "score": "s", **fields})


def decode(decoder: Landmarks, points: np.ndarray = THREE, score: float = 0.9, **others: np.ndarray) -> list[Detection]:
    outputs = {"p": points.reshape(1, 1, 1, -1), "s": np.array([[score]], np.float32), **others}
    return decoder.decode(outputs, FRAME, [])


def test_points_and_depths_are_in_pixels_of_the_image_and_depths_may_have_a_scale_of_their_own() -> None:
    [face] = decode(landmarks())
    assert face.points == ((2, 4), (8, 10), (14, 16))
    assert face.depths == (6, 12, 18)
    assert (face.label, face.score) == ("face", pytest.approx(0.9))
    assert face.point_scores == ()
    [hand] = decode(landmarks(depth_scale=0.4))
    assert hand.depths == pytest.approx((15, 30, 45))


@pytest.mark.parametrize(
    ("logits", "score", "seen"), [(False, 0.49, 0), (False, 0.5, 1), (True, -0.1, 0), (True, 0, 1)]
)
def test_what_the_network_is_not_sure_of_is_no_result(logits: bool, score: float, seen: int) -> None:
    assert len(decode(landmarks(logits=logits), score=score)) == seen


@pytest.mark.parametrize(("first", "label"), [(0.9, "Left"), (0.5, "Left"), (0.4, "Right")])
def test_one_probability_tells_two_classes(first: float, label: str) -> None:
    [hand] = decode(landmarks(classes="c", names=["Left", "Right"]), c=np.array([[first]], np.float32))
    assert hand.label == label


def test_visibility_is_put_through_a_sigmoid_and_guides_are_not_reported() -> None:
    five = np.array([[1, 2, 3, 0, 9], [4, 5, 6, 100, 9], [7, 8, 9, -100, 9]], np.float32)
    [person] = decode(landmarks(values=5, points=2, guides=[2]), five)
    assert person.points == ((2, 4), (8, 10))
    assert person.point_scores == (0.5, 1)
    assert person.guides == ((14, 16),)
    assert "guides" not in person.as_dict()


def test_refinements_move_points_and_add_others() -> None:
    refinements = [{"output": "lips", "points": [2, 0]}, {"output": "iris", "points": [3, 4], "depth_of": [0, 1]}]
    lips, iris = np.array([[20, 21, 10, 11]], np.float32), np.array([[1, 1, 2, 2]], np.float32)
    [face] = decode(landmarks(refinements=refinements), lips=lips, iris=iris)
    assert face.points == ((20, 22), (8, 10), (40, 42), (2, 2), (4, 4))
    assert face.depths == (6, 12, 18, 9, 9)


class TestHeatmap:
    decoder = landmarks(heatmap={"output": "h", "kernel": 3}, points=1)

    def at(self, point: tuple[float, float], heat: dict[tuple[int, int], float]) -> tuple[float, float]:
        """Where a point goes with a map of 8 x 8 cells of 4 pixels, by row and column."""
        values = np.full((1, 8, 8, 1), -100, np.float32)
        for (row, column), logit in heat.items():
            values[0, row, column, 0] = logit
        [person] = decode(self.decoder, np.array([[*point, 0]], np.float32), h=values)
        return person.points[0]

    def test_a_point_moves_to_the_mean_of_the_sure_places_around_it(self) -> None:
        assert self.at((9, 9), {(2, 2): 100, (2, 3): 100}) == (2 * 4 * 2.5, 2 * 4 * 2)

    def test_places_are_weighted_with_their_sigmoids(self) -> None:
        assert self.at((9, 9), {(2, 2): 100, (1, 2): 0})[1] == pytest.approx(2 * 4 * (2 + 0.5 * 1) / 1.5)

    def test_what_lies_further_away_does_not_count(self) -> None:
        assert self.at((9, 9), {(2, 2): 100, (4, 2): 100}) == (16, 16)

    def test_a_point_stays_where_nothing_is_sure_or_it_is_outside(self) -> None:
        assert self.at((9, 9), {(2, 2): -0.1}) == (18, 18)
        assert self.at((33, 9), {(2, 7): 100}) == (66, 18)
        assert self.at((0, 0), {(0, 0): 100, (0, 7): 100}) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output": "other"}, "no output 'other', only p, s"),
        ({"values": 4}, r"'p' is 1x1x1x9, not 4 values for each point"),
        ({"points": 4}, "'p' has 3 points only"),
        ({"score": "p"}, "'p' is 1x1x1x9, not one value"),
        ({"heatmap": {"output": "p"}}, r"'p' is 1x1x1x9, not 1xHxWx3"),
        ({"refinements": [{"output": "s", "points": [0, 1]}]}, "'s' is 1x1, which does not suit 2 points"),
    ],
)
def test_another_network_is_refused_before_it_runs(fields: dict[str, Any], message: str) -> None:
    shapes = {"p": [1, 1, 1, 9], "s": [1, 1]}
    specs = [TensorSpec(name=name, shape=shape, dtype="float32") for name, shape in shapes.items()]
    landmarks().check(specs, (32, 32))
    with pytest.raises(InputError, match=message):
        landmarks(**fields).check(specs, (32, 32))


def test_two_classes_have_two_names() -> None:
    with pytest.raises(ValidationError, match="classes needs the names of both"):
        landmarks(classes="c")


# Maps over an image: classes of pixels and depths, against numpy and OpenCV; masks as runs.


STRETCHED = Frame((90, 150), (60, 80), (80 / 150, 60 / 90))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


class TestOnImage:
    @pytest.mark.parametrize("size", [(60, 80), (30, 80), (120, 80), (7, 80), (30, 40)])
    def test_a_map_of_a_stretched_image_is_resized_linearly_or_to_the_nearest(self, size: tuple[int, int]) -> None:
        values = normal(*size)
        nearest = cv2.resize(values, (150, 90), interpolation=cv2.INTER_NEAREST)
        assert np.array_equal(on_image(values, STRETCHED), cv2.resize(values, (150, 90)))
        assert np.array_equal(on_image(values, STRETCHED, nearest=True), nearest)

    @pytest.mark.parametrize("size", [(480, 640), (640, 480), (333, 217), (50, 1000), (64, 64)])
    @pytest.mark.parametrize("fit", ["letterbox", "pad"])
    def test_what_lies_beside_the_image_is_left_out(self, size: tuple[int, int], fit: str) -> None:
        """A network that gives back its input gives back the image, but for what resizing changes."""
        rows, columns = np.mgrid[: size[0], : size[1]]
        image = np.stack([rows / size[0] * 200, columns / size[1] * 200, rows * 0 + 50], axis=-1).astype(np.uint8)
        pixels, frame = place(image, (256, 256), fit)  # type: ignore[arg-type]
        for channel in range(3):
            values = pixels[..., channel].astype(np.float32)
            for cells in (values, cv2.resize(values, (64, 64), interpolation=cv2.INTER_AREA)):
                found = on_image(cells, frame)
                assert found.shape == size
                inside = np.s_[8:-8, 8:-8]
                assert np.abs(found[inside] - image[inside][..., channel].astype(float)).mean() < 10

    def test_a_map_without_cells_is_refused(self) -> None:
        with pytest.raises(InputError, match="does not give what this demo reads"):
            on_image(np.zeros((0, 4), np.float32), STRETCHED)


class TestSegmentation:
    decoder = Segmentation(kind="segmentation")
    scores = normal(1, 5, 60, 80)

    def test_each_pixel_has_the_class_whose_resized_score_is_the_highest(self) -> None:
        expected = np.stack([cv2.resize(each, (150, 90)) for each in self.scores[0]]).argmax(axis=0)
        assert np.array_equal(self.decoder.class_map({"out": self.scores}, STRETCHED), expected)

    def test_channels_may_come_last(self) -> None:
        last = self.decoder.model_copy(update={"layout": "NHWC"})
        found = last.class_map({"out": self.scores.transpose(0, 2, 3, 1)}, STRETCHED)
        assert np.array_equal(found, self.decoder.class_map({"out": self.scores}, STRETCHED))

    def test_classes_are_reported_with_their_pixels_the_largest_first_without_the_background(self) -> None:
        frame = Frame((4, 6), (4, 6), (1, 1))
        classes = np.zeros((4, 6), int)
        classes[0], classes[1:3, 1:3], classes[3, 0] = 2, 1, 7
        outputs = {"out": (classes == np.arange(8)[:, None, None]).astype(np.float32)[None]}
        found = self.decoder.model_copy(update={"background": 0}).decode(outputs, frame, ["ground", "cat", "sky"])
        assert [(each.label, each.class_id) for each in found] == [("sky", 2), ("cat", 1), ("7", 7)]
        for each in found:
            assert np.array_equal(each.mask.pixels(), classes == each.class_id)
        assert len(self.decoder.decode(outputs, frame, [])) == 4

    @pytest.mark.parametrize("shape", [(1, 60, 80), (1, 1, 60, 80)])
    @pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
    def test_whole_numbers_are_classes_already(self, shape: tuple[int, ...], dtype: str) -> None:
        classes = np.random.default_rng(1).integers(0, 200, (60, 80))
        found = self.decoder.class_map({"out": classes.reshape(shape).astype(dtype)}, STRETCHED)
        expected = cv2.resize(classes.astype(np.uint8), (150, 90), interpolation=cv2.INTER_NEAREST)
        assert np.array_equal(found, expected)

    def test_a_network_of_one_class_has_the_pixels_above_the_threshold(self) -> None:
        for threshold in (0.0, 0.5):
            decoder = self.decoder.model_copy(update={"threshold": threshold})
            found = decoder.class_map({"out": self.scores[:, :1]}, STRETCHED)
            assert np.array_equal(found == 0, cv2.resize(self.scores[0, 0], (150, 90)) > threshold)
            assert set(np.unique(found)) == {-1, 0}

    def test_values_that_no_number_stands_for_are_of_no_class(self) -> None:
        assert self.decoder.decode({"out": np.full((1, 3, 6, 8), np.nan, np.float32)}, STRETCHED, []) == []


class TestDepth:
    decoder = Depth(kind="depth")

    @pytest.mark.parametrize("shape", [(1, 1, 60, 80), (1, 60, 80)])
    def test_the_map_is_brought_to_the_images_size(self, shape: tuple[int, ...]) -> None:
        values = normal(60, 80)
        [found] = self.decoder.decode({"depth": values.reshape(shape)}, STRETCHED, [])
        expected = cv2.resize(values, (150, 90))
        assert np.array_equal(found.surface.values, expected)
        said = (found.surface.minimum, found.surface.median, found.surface.maximum)
        assert said == pytest.approx((expected.min(), np.median(expected), expected.max()), abs=1e-6)
        assert found.label == "depth"

    def test_json_has_the_summary_of_a_surface_alone(self) -> None:
        [found] = self.decoder.decode({"depth": np.full((1, 6, 8), 2, np.float32)}, STRETCHED, [])
        assert found.model_dump(mode="json")["surface"] == {"minimum": 2.0, "median": 2.0, "maximum": 2.0}

    def test_without_a_finite_value_there_is_no_result(self) -> None:
        assert self.decoder.decode({"depth": np.full((1, 6, 8), np.nan, np.float32)}, STRETCHED, []) == []


class TestMask:
    def test_runs_are_columns_as_coco_has_them(self) -> None:
        # pycocotools' own example of the order: columns from the top, from left to right.
        pixels = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0]], bool)
        assert Mask.of(pixels, (0, 0), (3, 3)).counts == [2, 1, 1, 4, 1]
        assert Mask.of(np.ones((3, 3), bool), (0, 0), (3, 3)).counts == [0, 9]
        assert Mask.of(np.zeros((3, 3), bool), (0, 0), (3, 3)).counts == [9]

    def test_pixels_come_back(self) -> None:
        chance = np.random.default_rng(0)
        for _ in range(200):
            size = tuple(chance.integers(1, 12, 2).tolist())
            top, left = (int(chance.integers(0, side)) for side in size)
            bottom, right = (int(chance.integers(low, high + 1)) for low, high in zip((top, left), size, strict=True))
            expected = np.zeros(size, bool)
            expected[top:bottom, left:right] = chance.random((bottom - top, right - left)) < 0.6
            mask = Mask.of(expected[top:bottom, left:right], (left, top), size)
            assert np.array_equal(mask.pixels(), expected)
            assert mask.area == expected.sum()
            assert sum(mask.counts) == expected.size
            assert min(mask.counts[1:], default=1) > 0


# Text: regions from maps of probabilities, characters from steps.

REGIONS = TextRegions(kind="text-regions")
SIZE = (320, 480)
WHOLE = Frame(SIZE, SIZE, (1, 1))


def regions(*rectangles: tuple[tuple[float, float], tuple[float, float], float], level: float = 0.9) -> list[Detection]:
    probabilities = np.zeros(SIZE, np.float32)
    for rectangle in rectangles:
        cv2.fillPoly(probabilities, [np.rint(cv2.boxPoints(rectangle)).astype(np.int32)], level)
    return REGIONS.decode({"map": probabilities[None, None]}, WHOLE, [])


def test_a_region_grows_by_area_times_unclip_over_perimeter() -> None:
    [found] = regions(((200, 100), (120, 20), 0))
    assert found.box
    # One pixel more to the right and below: the shape was dilated. Formula 10: 1.6 * area / perimeter on each side.
    width, height = 121, 21
    distance = 1.6 * width * height / (2 * (width + height))
    wanted = (139.5 - distance, 89.5 - distance, 260.5 + distance, 110.5 + distance)
    assert found.box == pytest.approx(wanted, abs=1.5)
    assert found.score == pytest.approx(0.9, abs=0.05)
    assert found.label == "text"


@pytest.mark.parametrize("angle", [0, 12, -20, 40])
def test_corners_go_around_the_text_from_its_top_left(angle: float) -> None:
    [found] = regions(((240, 160), (150, 24), angle))
    assert found.corners
    corners = np.array(found.corners)
    along = corners[1] - corners[0]
    assert np.degrees(np.arctan2(along[1], along[0])) == pytest.approx(angle, abs=1.5)
    assert np.linalg.norm(along) > 150 > np.linalg.norm(corners[3] - corners[0]) > 24
    x1, y1, x2, y2 = found.box or (0, 0, 0, 0)
    assert (x1, y1, x2, y2) == (*corners.min(axis=0), *corners.max(axis=0))


def test_regions_are_in_reading_order() -> None:
    found = regions(((380, 95), (100, 20), 0), ((100, 100), (100, 20), 0), ((240, 200), (100, 20), 0))
    centres = [np.mean(each.corners or [], axis=0) for each in found]
    assert [round(x / 10) for x, _ in centres] == [10, 38, 24]


def test_what_is_faint_or_tiny_is_no_text() -> None:
    assert regions(((200, 100), (120, 20), 0), level=0.4) == []
    assert regions(((200, 100), (120, 20), 0), level=0.2) == []
    assert regions(((200, 100), (60, 1), 0), level=0.9) == []


def test_regions_end_at_the_edge_of_the_image() -> None:
    [found] = regions(((0, 0), (200, 60), 0))
    assert found.box[:2] == (0, 0)


def test_places_are_those_in_an_image_of_another_size() -> None:
    probabilities = np.zeros((1, 1, *SIZE), np.float32)
    probabilities[..., 90:110, 140:260] = 0.9
    half = Frame((160, 240), SIZE, (2, 2))
    [here], [there] = (REGIONS.decode({"map": probabilities}, frame, []) for frame in (WHOLE, half))
    assert np.array(there.corners) == pytest.approx(np.array(here.corners) / 2, abs=1)


def test_a_grown_rectangle_has_round_corners_of_whole_pixels() -> None:
    corners = np.array([[100, 50], [200, 50], [200, 80], [100, 80]], np.float32)
    hull = grown(corners, 2.0).reshape(-1, 2)
    distance = 2 * 100 * 30 / 260
    nearest = np.clip(hull, corners[0], corners[2])
    assert np.linalg.norm(hull - nearest, axis=1) == pytest.approx(distance, abs=0.75)
    assert hull.dtype == np.int32


LINE = TextLine(kind="text-line", threshold=0.5)


def steps(*best: int, classes: int = 5, level: float = 0.9) -> np.ndarray:
    """Probabilities whose best classes are these."""
    table = np.full((1, len(best), classes), (1 - level) / (classes - 1), np.float32)
    table[0, np.arange(len(best)), best] = level
    return table


def read(*best: int, level: float = 0.9) -> list[tuple[str, float | None]]:
    found = LINE.decode({"steps": steps(*best, level=level)}, WHOLE, ["a", "b", "c"])
    return [(each.label, each.score) for each in found]


def test_repeated_characters_count_once_unless_a_blank_lies_between_and_the_class_after_the_last_is_a_space() -> None:
    assert read(0, 1, 1, 0, 1, 2, 0, 0, 3) == [("aabc", pytest.approx(0.9))]
    assert read(1, 4, 4, 2)[0][0] == "a b"


def test_without_characters_or_with_a_low_mean_there_is_no_text() -> None:
    assert read(0, 0, 0) == []
    assert read(1, 2, level=0.45) == []


def test_characters_are_those_of_the_networks_file() -> None:
    class Network:
        heads, outputs = (), ()
        metadata = {"character": "x\ny\n新"}

    assert LINE.fitted(Network()).labels == ["x", "y", "新"]


# Outputs of networks that a decoder is not for.

SEGMENTATION = TestSegmentation.decoder
OTHERS = [
    (TestClassification.decoder, "heads", (1, 4, 10, 15), "not one score per class"),
    (TestLandmark.decoder, "prob", (1, 10), "none of its outputs holds 4 values: prob 1x10"),
    (TestYolo.decoder, "prob", (1, 10), "no output 'head', only prob"),
    (TestYolo.decoder, "head", (1, 10), "1x10, not 1xCxHxW"),
    (TestYolo.decoder, "head", (1, 9, 2, 2), "the 9 channels"),
    (TestRetinaFace.decoder, "prob", (1, 1000), "face_rpn_cls_prob_reshape_stride32"),
    (SEGMENTATION.model_copy(update={"output": "aux"}), "out", (1, 5, 60, 80), "^it has no output 'aux', only out$"),
    *((SEGMENTATION, "out", shape, "") for shape in ((1, 1000), (2, 3, 6, 8), (1, 0, 6, 8), (1, 6, 8))),
    *((TestDepth.decoder, "out", shape, "") for shape in ((1, 1000), (1, 3, 6, 8), (2, 6, 8))),
    (REGIONS, "map", (1, 2, 8, 8), ""),
]


@pytest.mark.parametrize(("decoder", "name", "shape", "why"), OTHERS)
def test_outputs_of_another_network_are_refused(decoder: Decoder, name: str, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(InputError, match="the network does not give what this demo reads") as caught:
        decoder.decode({name: np.zeros(shape, np.float32)}, STRETCHED, [])
    assert re.search(why, caught.value.why)

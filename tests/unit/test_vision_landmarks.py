"""Points with a score, classes, depths and scores, and outputs that know some of them better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edgedeploy.errors import InputError
from edgedeploy.model.tensors import TensorSpec
from edgedeploy.vision.decoders.keypoints import Landmarks
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.results import Detection

FRAME = Frame((64, 64), (32, 32), (0.5, 0.5))
THREE = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], np.float32)


def landmarks(**fields: Any) -> Landmarks:
    return Landmarks.model_validate({"kind": "landmarks", "output": "p", "score": "s", **fields})


def decode(decoder: Landmarks, points: np.ndarray = THREE, score: float = 0.9, **others: np.ndarray) -> list[Detection]:
    outputs = {"p": points.reshape(1, 1, 1, -1), "s": np.array([[score]], np.float32), **others}
    return decoder.decode(outputs, FRAME, [])


def test_points_and_depths_are_in_pixels_of_the_image() -> None:
    [face] = decode(landmarks())
    assert face.points == ((2, 4), (8, 10), (14, 16))
    assert face.depths == (6, 12, 18)
    assert (face.label, face.score) == ("face", pytest.approx(0.9))
    assert face.point_scores == ()


def test_depths_may_have_a_scale_of_their_own() -> None:
    [hand] = decode(landmarks(depth_scale=0.4))
    assert hand.depths == pytest.approx((15, 30, 45))


@pytest.mark.parametrize(
    ("logits", "score", "seen"), [(False, 0.49, 0), (False, 0.5, 1), (True, -0.1, 0), (True, 0, 1)]
)
def test_what_the_network_is_not_sure_of_is_no_result(logits: bool, score: float, seen: int) -> None:
    assert len(decode(landmarks(logits=logits), score=score)) == seen


@pytest.mark.parametrize(("first", "label"), [(0.9, "Left"), (0.5, "Left"), (0.4, "Right")])
def test_one_probability_tells_two_classes(first: float, label: str) -> None:
    decoder = landmarks(classes="c", names=["Left", "Right"])
    [hand] = decode(decoder, c=np.array([[first]], np.float32))
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
    specs = [
        TensorSpec(name="p", shape=[1, 1, 1, 9], dtype="float32"),
        TensorSpec(name="s", shape=[1, 1], dtype="float32"),
    ]
    landmarks().check(specs, (32, 32))
    with pytest.raises(InputError, match=message):
        landmarks(**fields).check(specs, (32, 32))


def test_two_classes_have_two_names() -> None:
    with pytest.raises(ValidationError, match="classes needs the names of both"):
        landmarks(classes="c")

"""BlazeFace and its kin: anchors without sizes, and boxes that overlap become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgedeploy.demo.spec import DEMOS
from edgedeploy.vision.decoders.detector import clusters, suppress
from edgedeploy.vision.decoders.keypoints import Blaze
from edgedeploy.vision.geometry import Frame

FRAME = Frame((64, 64), (32, 32), (0.5, 0.5))


def blaze(**fields: Any) -> Blaze:
    levels = [{"stride": 8, "anchors": 2}, {"stride": 16, "anchors": 1}]
    values = {"kind": "blaze", "scores": "s", "boxes": "b", "points": 1, "levels": levels, **fields}
    return Blaze.model_validate(values)


def outputs(places: dict[int, tuple[float, list[float]]]) -> dict[str, np.ndarray]:
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
    [face] = blaze().decode(outputs({anchor: (9, [1, 2, 4, 6, 3, -1])}), FRAME, [])
    x, y = centre
    assert face.box == (2 * (x - 1), 2 * (y - 1), 2 * (x + 3), 2 * (y + 5))
    assert face.points == ((2 * (x + 3), 2 * (y - 1)),)
    assert face.score == pytest.approx(1 / (1 + np.exp(-9)))
    assert face.label == "face"


def test_the_demos_have_as_many_anchors_as_their_networks_have_rows() -> None:
    for name, rows in {"face-mesh": 896, "hands": 2016, "pose": 2254}.items():
        decoder = DEMOS.load(name).decoder
        assert isinstance(decoder, Blaze)
        side = {"face-mesh": 128, "hands": 192, "pose": 224}[name]
        assert sum((side // level.stride) ** 2 * level.anchors for level in decoder.levels) == rows


def test_boxes_that_overlap_become_their_mean_weighted_with_their_scores() -> None:
    same = {0: (0.0, [0, 0, 8, 8, 0, 0]), 1: (1.0, [1, 0, 8, 8, 4, 0]), 31: (0.0, [0, 0, 4, 4, 0, 0])}
    best, other = blaze().decode(outputs(same), FRAME, [])
    weights = np.array([0.5, 1 / (1 + np.exp(-1))])
    x = np.average([4, 5], weights=weights)
    assert best.score == pytest.approx(weights[1])
    assert best.box == pytest.approx((2 * (x - 4), 0, 2 * (x + 4), 16))
    assert best.points[0] == pytest.approx((2 * np.average([4, 8], weights=weights), 8))
    assert other.box == (52, 52, 60, 60)


def test_boxes_that_are_inside_out_are_no_results() -> None:
    assert blaze().decode(outputs({0: (9, [0, 0, -4, 4, 0, 0])}), FRAME, []) == []


def test_each_cluster_begins_with_the_box_that_is_kept() -> None:
    generator = np.random.default_rng(0)
    corner = generator.random((60, 2)) * 20
    boxes = np.concatenate([corner, corner + 5 + generator.random((60, 2)) * 5], axis=1)
    scores = generator.random(60)
    groups = clusters(boxes, scores, 0.3)
    assert [group[0] for group in groups] == suppress(boxes, scores, 0.3).tolist()
    assert sorted(np.concatenate(groups)) == list(range(60))
    assert all((np.diff(scores[group]) <= 0).all() for group in groups)

from __future__ import annotations

import numpy as np

from edgedeploy.vision.decoders.detector import suppress, suppress_turned


def boxes(*rows: tuple[float, float, float, float]) -> np.ndarray:
    return np.array(rows, np.float32).reshape(-1, 4)


def test_the_best_of_overlapping_boxes_is_kept() -> None:
    # 10x10 each, shifted by 2: intersection 80, union 120, overlap 0.667
    pair = boxes((0, 0, 10, 10), (2, 0, 12, 10))
    assert suppress(pair, np.array([0.6, 0.9]), 0.5).tolist() == [1]
    assert suppress(pair, np.array([0.6, 0.9]), 0.7).tolist() == [1, 0]


def test_an_overlap_that_equals_the_limit_is_allowed() -> None:
    # intersection 50, union 100
    pair = boxes((0, 0, 10, 10), (0, 0, 5, 10))
    assert suppress(pair, np.array([0.9, 0.8]), 0.5).tolist() == [0, 1]


def test_a_suppressed_box_suppresses_nothing() -> None:
    # Neighbours overlap by 6/14, the outer two by 2/18.
    chain = boxes((0, 0, 10, 1), (4, 0, 14, 1), (8, 0, 18, 1))
    assert suppress(chain, np.array([0.9, 0.8, 0.7]), 0.4).tolist() == [0, 2]


def test_within_classes_a_box_suppresses_those_of_its_own() -> None:
    same = boxes((0, 0, 10, 10), (0, 0, 10, 10), (0, 0, 10, 10))
    assert suppress(same, np.array([0.9, 0.8, 0.7]), 0.5, classes=np.array([1, 2, 1])).tolist() == [0, 1]


def test_equal_scores_keep_their_order() -> None:
    apart = boxes((0, 0, 1, 1), (5, 5, 6, 6), (9, 9, 10, 10))
    assert suppress(apart, np.array([0.5, 0.5, 0.5]), 0.5).tolist() == [0, 1, 2]


def test_no_boxes_and_empty_boxes() -> None:
    assert suppress(boxes(), np.empty(0), 0.5).tolist() == []
    assert suppress(boxes((3, 3, 3, 3), (3, 3, 3, 3)), np.array([0.2, 0.1]), 0.5).tolist() == [0, 1]


class TestTurnedBoxes:
    def test_a_box_stays_beside_one_that_lies_across_it(self) -> None:
        boxes = np.array([[50, 50, 40, 10, 0], [50, 50, 40, 10, np.pi / 2], [51, 50, 40, 10, 0.01]])
        scores = np.array([0.5, 0.9, 0.8])
        assert suppress_turned(boxes, scores, 0.7).tolist() == [1, 2]

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

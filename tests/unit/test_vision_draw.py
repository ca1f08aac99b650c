from __future__ import annotations

import numpy as np

from edgedeploy.vision.draw import draw
from edgedeploy.vision.results import Detection

GREY = np.full((200, 300, 3), 128, np.uint8)


def changed(detection: Detection) -> np.ndarray:
    return np.any(draw(GREY, [detection]) != GREY, axis=2)


def test_the_image_itself_stays_as_it_is() -> None:
    before = GREY.copy()
    drawn = draw(GREY, [Detection(label="cat", class_id=0, score=0.5, box=(100, 100, 150, 150))])
    assert drawn.shape == GREY.shape
    assert np.array_equal(GREY, before)


def test_boxes_have_their_lines_where_they_are() -> None:
    pixels = changed(Detection(label="cat", class_id=0, score=0.5, box=(100, 100, 150, 150)))
    assert pixels[100:151, 100].all()
    assert pixels[150, 100:151].all()
    assert not pixels[105:145, 105:145].any()


def test_points_are_marked() -> None:
    pixels = changed(Detection(label="face", class_id=0, points=((20, 30), (250, 190))))
    assert pixels[30, 20]
    assert pixels[190, 250]
    assert pixels.sum() < 20


def test_classes_are_listed_below_each_other() -> None:
    one = changed(Detection(label="cat", class_id=0, score=0.5))
    assert one[:20].any()
    assert not one[25:].any()


def test_boxes_outside_the_image_are_no_problem() -> None:
    inf = float("inf")
    for box in [(-500.0, -500.0, 9e9, 9e9), (-inf, 0.0, inf, inf)]:
        draw(GREY, [Detection(label="a very long label of a thing", class_id=0, score=1, box=box)])


def test_lines_join_points_that_can_be_seen() -> None:
    face = Detection(label="face", class_id=0, points=((20, 30), (60, 30), (60, 90)))
    joined = np.any(draw(GREY, [face], [[0, 1, 2]]) != GREY, axis=2)
    assert joined[30, 20:61].all()
    assert joined[30:91, 60].all()
    half_seen = face.model_copy(update={"visibility": (0.9, 0.9, 0.1)})
    joined = np.any(draw(GREY, [half_seen], [[0, 1, 2]]) != GREY, axis=2)
    assert joined[30, 20:61].all()
    assert not joined[40:91].any()

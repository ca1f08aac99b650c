from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from edgedeploy.vision.draw import _label_area, _shared, class_colour, draw, draw_enlarged
from edgedeploy.vision.results import Detection, Mask, Surface

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
    assert pixels.sum() < 80


def test_labels_of_boxes_side_by_side_do_not_cover_each_other() -> None:
    areas: list[Any] = []
    canvas = np.zeros((200, 300, 3), np.uint8)
    boxes = [(40, 60, 90, 120), (60, 60, 110, 120), (80, 62, 130, 120), (42, 150, 92, 195)]
    for number, box in enumerate(boxes):
        others = boxes[:number] + boxes[number + 1 :]
        areas.append(_label_area(canvas, "face 0.99", box, areas, others, 1))
    assert not any(_shared(first, second) for first, second in combinations(areas, 2))
    assert all(left >= 0 and right <= 300 and top >= 0 and bottom <= 200 for left, top, right, bottom in areas)


def test_classes_are_listed_below_each_other() -> None:
    one = changed(Detection(label="cat", class_id=0, score=0.5))
    assert one[:20].any()
    assert not one[25:].any()


def test_boxes_outside_the_image_are_no_problem() -> None:
    inf = float("inf")
    for box in [(-500.0, -500.0, 9e9, 9e9), (-inf, 0.0, inf, inf)]:
        draw(GREY, [Detection(label="a very long label of a thing", class_id=0, score=1, box=box)])


def test_masks_are_half_of_the_image_and_half_of_a_colour_that_differs_from_result_to_result() -> None:
    first, second = np.zeros((200, 300), bool), np.zeros((200, 300), bool)
    first[50:80, 50:80], second[150:190, 150:190] = True, True
    seen = [
        Detection(label="a", class_id=0, score=1, box=(40, 40, 90, 90), mask=Mask.of(first, (0, 0), (200, 300))),
        Detection(label="a", class_id=0, score=1, box=(140, 140, 195, 195), mask=Mask.of(second, (0, 0), (200, 300))),
    ]
    drawn = draw(GREY, seen)
    # The first two colours of VOC's palette are dark red and dark green: 128 of 255.
    assert (drawn[55:80, 50:80] == [64, 64, 128]).all()
    assert (drawn[155:190, 150:190] == [64, 128, 64]).all()
    assert (drawn[100:130, 100:130] == 128).all()


def test_classes_of_pixels_have_the_colours_of_their_numbers() -> None:
    where = np.zeros((200, 300), bool)
    where[100:120] = True
    [drawn] = [draw(GREY, [Detection(label="b", class_id=1, mask=Mask.of(where, (0, 0), (200, 300)))])]
    assert (drawn[100:120] == [64, 128, 64]).all()


def test_points_whose_scores_are_low_are_left_out_with_their_lines() -> None:
    seen = Detection(
        label="me",
        class_id=0,
        points=((20, 30), (250, 30), (20, 190)),
        point_scores=(0.9, 0.8, 0.1),
        edges=((0, 1), (0, 2)),
    )
    pixels = changed(seen)
    assert pixels[30, 20:251].all()
    assert not pixels[100:].any()


def test_turned_boxes_have_their_own_lines() -> None:
    corners = ((100.0, 50.0), (150.0, 100.0), (100.0, 150.0), (50.0, 100.0))
    pixels = changed(Detection(label="x", class_id=0, score=1, box=(50, 50, 150, 150), corners=corners))
    assert pixels[75, 125]
    assert pixels[125, 75]
    assert not pixels[140, 55:70].any()


def test_a_surface_takes_the_place_of_the_image_bright_where_it_is_large() -> None:
    values = np.linspace(0, 10, 60000, dtype=np.float32).reshape(200, 300)
    values[0, 0] = np.nan
    surface = Surface(minimum=0, median=5, maximum=10, values=values)
    rows = draw(GREY, [Detection(label="depth", class_id=0, surface=surface)])[40:].mean(axis=(1, 2))
    assert (np.diff(rows) > -1).all()
    assert rows[-1] > 3 * rows[0]


def test_classes_have_colours_that_differ() -> None:
    colours = [class_colour(number) for number in range(20)]
    assert colours[0] == (0, 200, 0)
    assert len(set(colours)) == 20
    drawn = draw(GREY, [Detection(label="cat", class_id=4, score=0.5, box=(100, 100, 150, 150))])
    assert tuple(drawn[120, 100].tolist()) == class_colour(4)


def test_small_images_are_enlarged_with_what_was_found_in_them() -> None:
    small = np.full((20, 30, 3), 128, np.uint8)
    spot = np.zeros((20, 30), bool)
    spot[14:18, 20:26] = True
    seen = [
        Detection(label="", class_id=0, box=(2, 3, 12, 13), points=((5, 6),)),
        Detection(label="", class_id=0, mask=Mask.of(spot, (0, 0), (20, 30)), points=((0, 0),)),
    ]
    drawn = draw_enlarged(small, seen)
    assert drawn.shape == (220, 330, 3)  # by eleven
    assert tuple(drawn[80, 22].tolist()) == class_colour(0)
    assert (drawn[66, 55] != 128).any()
    assert (drawn[14 * 11 : 18 * 11, 20 * 11 : 26 * 11] != 128).any(axis=2).all()
    assert np.array_equal(draw_enlarged(GREY.repeat(2, 0).repeat(2, 1), []), GREY.repeat(2, 0).repeat(2, 1))

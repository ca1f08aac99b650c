"""Crops of an image for a second network, upright as PFLD's example has them, or at any angle as MediaPipe has them."""

import math
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgedeploy.vision.crop import Crop, Rectangle, RotatedCrop, overlap
from edgedeploy.vision.results import Detection

IMAGE = np.random.default_rng(2).integers(1, 256, (60, 80, 3), np.uint8)


def as_pfld_does(image: np.ndarray, box: tuple[int, int, int, int]) -> tuple[np.ndarray, tuple[int, int]]:
    """What camera.py of polarisZhao/PFLD-pytorch does with whole numbers: cut what is there, add black borders."""
    height, width = image.shape[:2]
    x1, y1, x2, y2 = box
    size = int(max(x2 - x1, y2 - y1) * 1.1)
    left, top = (x1 + x2) // 2 - size // 2, (y1 + y2) // 2 - size // 2
    right, bottom = left + size, top + size
    inside = image[max(0, top) : min(height, bottom), max(0, left) : min(width, right)]
    borders = max(0, -top), max(0, bottom - height), max(0, -left), max(0, right - width)
    return cv2.copyMakeBorder(inside, *borders, cv2.BORDER_CONSTANT, value=0), (left, top)


@pytest.mark.parametrize("box", [(20, 10, 60, 30), (0, 0, 20, 40), (60, 40, 80, 60), (0, 0, 80, 60)])
def test_it_is_the_square_of_pflds_example(box: tuple[int, int, int, int]) -> None:
    crop, corner = Crop().cut(IMAGE, box)
    expected, at = as_pfld_does(IMAGE, box)
    assert corner == at
    assert np.array_equal(crop, expected)


def test_without_margin_and_square_it_is_the_box() -> None:
    crop, corner = Crop(margin=0, square=False).cut(IMAGE, (5, 7, 25, 17))
    assert corner == (5, 7)
    assert np.array_equal(crop, IMAGE[7:17, 5:25])


NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.floats(0, 4), st.booleans())
def test_pixels_are_the_images_or_black(box: tuple[float, float, float, float], margin: float, square: bool) -> None:
    crop, (left, top) = Crop(margin=margin, square=square).cut(IMAGE, box)
    rows, columns = crop.shape[:2]
    assert 1 <= rows <= 5 * 80
    assert 1 <= columns <= 5 * 80
    for row, column in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 2)]:
        y, x = top + row, left + column
        inside = 0 <= y < 60 and 0 <= x < 80
        assert np.array_equal(crop[row, column], IMAGE[y, x] if inside else [0, 0, 0])


def test_a_margin_without_sense_is_refused() -> None:
    for margin in (-0.1, 1e9, float("nan")):
        with pytest.raises(ValidationError):
            Crop(margin=margin)


# Rectangles at any angle, as MediaPipe's calculators make them of boxes and points.


SLANTED = {"start": [0], "end": [1], "degrees": 0}
UP = {"start": [0], "end": [1], "degrees": 90}


def rotated(**fields: Any) -> RotatedCrop:
    return RotatedCrop.model_validate({"kind": "rotated", **fields})


def found(*points: tuple[float, float], box: tuple[float, float, float, float] | None = None) -> Detection:
    return Detection(label="it", class_id=0, box=box, points=points)


@pytest.mark.parametrize("degrees", [0, 30, -75, 180])
def test_corners_are_those_of_opencv(degrees: float) -> None:
    rectangle = Rectangle((40.0, 30.0), (20.0, 10.0), math.radians(degrees))
    # OpenCV begins at the bottom left.
    expected = np.roll(cv2.boxPoints(((40.0, 30.0), (20.0, 10.0), degrees)), -1, axis=0)
    np.testing.assert_allclose(rectangle.corners, expected, atol=1e-4)


def test_points_of_a_crop_find_back_to_the_image() -> None:
    image = np.zeros((100, 120, 3), np.uint8)
    cv2.circle(image, (70, 40), 2, (255, 255, 255), cv2.FILLED)
    pixels, frame = Rectangle((64.0, 44.0), (48.0, 24.0), 0.5).place(image, (64, 128))
    assert pixels.shape == (64, 128, 3)
    bright = np.argwhere(pixels[..., 0] > 200)[:, ::-1].mean(axis=0)
    np.testing.assert_allclose(frame.to_image(bright[None]), [[70, 40]], atol=0.3)
    assert frame.to_image(np.zeros((3, 2, 2), np.float32)).dtype == np.float32


class TestRotatedCrop:
    def test_a_box_becomes_a_square_of_its_longer_side(self) -> None:
        rectangle = rotated(scale=1.5).rectangle(found(box=(10, 20, 50, 40)))
        assert rectangle == Rectangle((30, 30), (60, 60))

    def test_sides_stay_as_they_are_unless_it_is_square(self) -> None:
        rectangle = rotated(scale=2, square=False).rectangle(found(box=(10, 20, 50, 40)))
        assert rectangle == Rectangle((30, 30), (80, 40))

    def test_what_is_level_when_upright_gives_the_rotation(self) -> None:
        # The second point lies lower: what they belong to is turned clockwise.
        rectangle = rotated(upright=SLANTED).rectangle(found((10, 10), (20, 20), box=(0, 0, 30, 30)))
        assert rectangle.rotation == pytest.approx(math.pi / 4)

    @pytest.mark.parametrize(
        ("end", "rotation"), [((10, 0), 0), ((20, 10), math.pi / 2), ((0, 10), -math.pi / 2), ((10, 20), -math.pi)]
    )
    def test_what_points_up_when_upright_gives_the_rotation(self, end: tuple[float, float], rotation: float) -> None:
        rectangle = rotated(upright=UP).rectangle(found((10, 10), end, box=(0, 0, 30, 30)))
        assert rectangle.rotation == pytest.approx(rotation)

    def test_it_is_shifted_along_its_own_axes_by_its_size_before_it_is_scaled(self) -> None:
        lying = found((10, 10), (20, 10), box=(0, 0, 40, 20))
        rectangle = rotated(upright=UP, shift=[0, -0.5], scale=2).rectangle(lying)
        # Its own up is the image's right.
        assert rectangle.centre == pytest.approx((30, 10))
        assert rectangle.size == (80, 80)

    def test_a_circle_goes_around_the_first_point_through_the_second(self) -> None:
        rectangle = rotated(around="circle", upright=UP, scale=1.25).rectangle(found((10, 10), (13, 6)))
        assert rectangle.centre == (10, 10)
        assert rectangle.size == pytest.approx((12.5, 12.5))

    def test_some_points_are_enclosed_along_the_axes_of_the_image(self) -> None:
        rectangle = rotated(around="points", of=[0, 1], square=False).rectangle(found((1, 2), (5, 10), (99, 99)))
        assert rectangle == Rectangle((3, 6), (4, 8))

    def test_a_turned_rectangle_encloses_points_along_its_own_axes(self) -> None:
        points = [(0.0, 0.0), (10.0, 10.0), (5.0, 0.0)]
        rectangle = rotated(around="turned", upright=SLANTED, square=False).rectangle(found(*points))
        assert rectangle.rotation == pytest.approx(math.pi / 4)
        own = (np.array(points) - rectangle.centre) @ np.array([[1, -1], [1, 1]]) / math.sqrt(2)
        np.testing.assert_allclose(own.max(axis=0), np.array(rectangle.size) / 2)
        np.testing.assert_allclose(own.min(axis=0), -np.array(rectangle.size) / 2)

    def test_a_direction_may_be_between_means_of_points_in_which_some_count_twice(self) -> None:
        upright = {"start": [0], "end": [1, 2, 2, 3], "degrees": 90}
        hand = found((0, 0), (-8, -10), (4, -10), (0, -10), box=(0, 0, 9, 9))
        rectangle = rotated(upright=upright).rectangle(hand)
        assert rectangle.rotation == pytest.approx(0)

    def test_guides_stand_for_points(self) -> None:
        person = found((0, 0)).model_copy(update={"guides": ((10, 10), (10, 6))})
        assert rotated(around="circle", upright=UP).rectangle(person) == Rectangle((10, 10), (8, 8))

    @pytest.mark.parametrize(
        ("fields", "result"),
        [
            ({}, found((1, 1))),
            ({}, found(box=(5, 5, 5, 5))),
            ({"upright": UP}, found((1, 1), box=(0, 0, 9, 9))),
            ({"around": "points"}, found()),
            ({"around": "circle", "upright": UP}, found((1, 1), (1, 1))),
            ({"around": "points"}, found((math.nan, 1), (2, 2))),
        ],
    )
    def test_what_has_no_extent_has_no_rectangle(self, fields: dict[str, Any], result: Detection) -> None:
        assert rotated(**fields).rectangle(result) is None

    def test_a_circle_needs_its_points(self) -> None:
        with pytest.raises(ValidationError, match="a circle needs upright"):
            rotated(around="circle")


def test_overlap_is_that_of_the_upright_boxes() -> None:
    one, other = Rectangle((10, 10), (20, 20), 1.0), Rectangle((20, 10), (20, 20), -2.0)
    assert overlap(one, other) == pytest.approx(200 / 600)
    assert overlap(one, one) == 1
    assert overlap(one, Rectangle((99, 99), (2, 2))) == 0

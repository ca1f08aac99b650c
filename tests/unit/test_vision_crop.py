"""Crops of an image for a second network, against the steps of PFLD's example."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgedeploy.vision.crop import Crop

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

"""Four corners of an image become an upright image, and points of it find their way back."""

from __future__ import annotations

import numpy as np
import pytest

from edgedeploy.vision.geometry import Border, from_upright, warp_quadrilateral

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)


def box(x1: float, y1: float, x2: float, y2: float) -> np.ndarray:
    return np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]])


def test_an_upright_box_of_the_same_size_is_cut_out_pixel_by_pixel() -> None:
    crop = warp_quadrilateral(IMAGE, box(10, 5, 40, 25), (30, 20))
    assert crop.dtype == np.uint8
    np.testing.assert_array_equal(crop, IMAGE[5:25, 10:40])


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_first_corner_becomes_the_top_left(turns: int) -> None:
    corners = np.roll(box(10, 5, 40, 25), -turns, axis=0)
    size = (30, 20) if turns == 2 else (20, 30)
    turned = warp_quadrilateral(IMAGE, corners, size)
    # The corner itself, not the middle of the corner's pixel, is where pixel (0, 0) of the result is taken.
    x, y = corners[0].astype(int)
    np.testing.assert_array_equal(turned[0, 0], IMAGE[y, x])


def test_between_pixels_values_are_interpolated_along_lines() -> None:
    ramp = np.tile(np.arange(0, 240, 4, dtype=np.uint8)[None, :, None], (40, 1, 3))
    half = warp_quadrilateral(ramp, box(10.5, 5, 30.5, 25), (20, 20))
    np.testing.assert_array_equal(half[0, :, 0], np.arange(10, 30) * 4 + 2)


@pytest.mark.parametrize(("border", "outside"), [("replicate", 7), ("zero", 0)])
def test_outside_of_the_image_is_its_nearest_pixel_or_zero(border: Border, outside: int) -> None:
    crop = warp_quadrilateral(np.full((8, 8, 3), 7, np.uint8), box(-8, -8, 8, 8), (16, 16), border=border)
    assert (crop[:8, :8] == outside).all()
    assert (crop[8:, 8:] == 7).all()


def test_points_of_the_result_go_back_to_the_same_places() -> None:
    corners = np.array([[12.0, 3.0], [50.0, 9.0], [44.0, 33.0], [6.0, 30.0]])
    back = from_upright(np.array([[0, 0], [64, 0], [64, 32], [0, 32]]), corners, (64, 32))
    np.testing.assert_allclose(back, corners, atol=1e-4)
    assert from_upright(np.zeros((0, 2)), corners, (64, 32)).shape == (0, 2)


def test_a_pixel_of_a_rotated_crop_is_what_the_image_holds_at_its_place() -> None:
    smooth = np.add.outer(np.arange(60.0), 2 * np.arange(80.0))
    image = np.repeat(smooth[:, :, None], 3, axis=2).astype(np.uint8)
    corners = np.array([[30.0, 10.0], [50.0, 25.0], [38.0, 41.0], [18.0, 26.0]])
    crop = warp_quadrilateral(image, corners, (25, 20))
    places = np.stack(np.meshgrid(np.arange(25), np.arange(20)), axis=-1)
    x, y = np.moveaxis(from_upright(places, corners, (25, 20)), -1, 0)
    np.testing.assert_allclose(crop[:, :, 0], y + 2 * x, atol=1.01)

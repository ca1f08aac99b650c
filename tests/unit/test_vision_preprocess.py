"""From images to inputs: pixels, placement, four corners that become upright, and crops for a second network."""

import math
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgedeploy.errors import InputError
from edgedeploy.model.tensors import Steps, TensorSpec
from edgedeploy.package.usage import ModelInput
from edgedeploy.vision.crop import Crop, QuadrilateralCrop, Rectangle, RotatedCrop, TurnCrop, overlap
from edgedeploy.vision.geometry import Border, Frame, from_upright, warp_quadrilateral
from edgedeploy.vision.preprocess import LineFit, Page, ScaledFit, input_size, place, to_tensor
from edgedeploy.vision.results import Detection, around

BGR_PIXEL = np.array([[[10, 20, 30]]], np.uint8)


def model_input(**fields: object) -> ModelInput:
    return ModelInput.model_validate({"name": "data", "shape": [1, 3, 8, 8], **fields})


def test_mean_and_scale_are_in_the_order_of_the_colour() -> None:
    tensor = to_tensor(BGR_PIXEL, model_input(colour="RGB", mean=[1, 2, 3], scale=[1, 10, 100]))
    assert tensor.ravel().tolist() == [29, 180, 700]
    tensor = to_tensor(BGR_PIXEL, model_input(colour="BGR", mean=[1, 2, 3], scale=[1, 10, 100]))
    assert tensor.ravel().tolist() == [9, 180, 2700]


def test_layouts() -> None:
    pixels = np.zeros((2, 5, 3), np.uint8)
    assert to_tensor(pixels, model_input()).shape == (1, 3, 2, 5)
    assert to_tensor(pixels, model_input(layout="NHWC")).shape == (1, 2, 5, 3)
    assert to_tensor(pixels, model_input(colour="GRAY", mean=[0], scale=[1])).shape == (1, 1, 2, 5)


def test_integer_inputs_are_rounded_and_clamped() -> None:
    tensor = to_tensor(BGR_PIXEL, model_input(colour="BGR", mean=[11, 0, 0], scale=[1, 0.13, 100]), "uint8")
    assert tensor.dtype == np.uint8
    assert tensor.ravel().tolist() == [0, 3, 255]


def test_quantised_inputs_take_the_integers_of_normalised_values() -> None:
    normalised = model_input(colour="BGR", mean=[128, 128, 128], scale=[1 / 128] * 3)
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    as_pixels = to_tensor(pixels, normalised, "uint8", Steps(scale=1 / 128, zero_point=128))
    assert as_pixels.dtype == np.uint8
    assert np.array_equal(as_pixels[0].transpose(1, 2, 0), pixels)
    halves = to_tensor(pixels, normalised, "int8", Steps(scale=1 / 64, zero_point=3))
    wanted = np.rint((pixels.astype(float) - 128) / 2) + 3
    assert np.array_equal(halves[0].transpose(1, 2, 0), wanted.astype(np.int8))


def test_stretch_maps_each_axis_on_its_own() -> None:
    pixels, frame = place(np.zeros((100, 400, 3), np.uint8), (50, 100), "stretch")
    assert pixels.shape == (50, 100, 3)
    assert frame.to_image(np.array([[100.0, 50.0], [25.0, 10.0]])).tolist() == [[400, 100], [100, 20]]


def test_pad_scales_down_and_fills_at_the_right_and_bottom() -> None:
    pixels, frame = place(np.full((100, 400, 3), 255, np.uint8), (100, 100), "pad")
    assert pixels[:25].min() == 255
    assert pixels[25:].max() == 0
    assert frame.to_image(np.array([100.0, 25.0])).tolist() == [400, 100]


def test_pad_never_enlarges() -> None:
    small = np.full((10, 20, 3), 255, np.uint8)
    pixels, frame = place(small, (30, 30), "pad")
    assert pixels[:10, :20].min() == 255
    assert pixels.sum() == small.sum()
    assert frame.scale == (1, 1)


@pytest.mark.parametrize("fit", ["stretch", "pad"])
def test_an_image_of_the_networks_size_is_untouched(fit: str) -> None:
    image = np.random.default_rng(5).integers(0, 256, (12, 17, 3), np.uint8)
    pixels, frame = place(image, (12, 17), fit)  # type: ignore[arg-type]
    assert np.array_equal(pixels, image)
    assert frame.scale == (1, 1)


@pytest.mark.parametrize(("size", "inner"), [((10, 20), (0, 8, 32, 24)), ((128, 64), (8, 0, 24, 32))])
def test_contain_scales_and_fills_both_sides_black(size: tuple[int, int], inner: tuple[int, int, int, int]) -> None:
    pixels, frame = place(np.full((*size, 3), 200, np.uint8), (32, 32), "contain")
    left, top, right, bottom = inner
    assert pixels.shape == (32, 32, 3)
    bright = np.argwhere(pixels[..., 0] > 100)[:, ::-1]
    assert np.abs(bright.min(axis=0) - [left, top]).max() <= 1
    assert np.abs(bright.max(axis=0) + 1 - [right, bottom]).max() <= 1
    corners = np.array([[left, top], [right, bottom]], np.float32)
    np.testing.assert_allclose(frame.to_image(corners), [[0, 0], [size[1], size[0]]])


def test_the_input_must_be_an_image_with_the_channels_of_the_colour() -> None:
    assert input_size(model_input(), TensorSpec(name="data", shape=[1, 3, 20, 30], dtype="float32")) == (20, 30)
    with pytest.raises(InputError, match="1x1x28x28, and 1x3xHxW"):
        input_size(model_input(), TensorSpec(name="data", shape=[1, 1, 28, 28], dtype="float32"))
    with pytest.raises(InputError, match="and 1xHxWx3"):
        input_size(model_input(layout="NHWC"), TensorSpec(name="data", shape=[1, 40], dtype="float32"))


def test_fill_maps_each_axis_on_its_own_and_rounds_to_the_nearest_level() -> None:
    pixels, frame = place(np.full((60, 90, 3), 201, np.uint8), (31, 47), "fill")
    assert (pixels == 201).all()
    assert frame == Frame((60, 90), (31, 47), (47 / 90, 31 / 60))


def test_letterbox_enlarges_and_fills_up_with_grey_on_both_sides() -> None:
    pixels, frame = place(np.full((20, 30, 3), 200, np.uint8), (65, 60), "letterbox")
    assert (pixels[12:52] == 200).all()
    assert (pixels[:12] == 114).all()  # of 25 rows of grey the first 12
    assert (pixels[52:] == 114).all()
    assert frame == Frame((20, 30), (65, 60), (2.0, 2.0), (0, 12))
    assert frame.to_image(np.array([[0.0, 12.0], [60.0, 52.0]])).tolist() == [[0, 0], [30, 20]]


def test_cover_shows_the_middle() -> None:
    image = np.zeros((20, 60, 3), np.uint8)
    image[:, 20:40] = 255
    pixels, frame = place(image, (20, 20), "cover")
    assert (pixels == 255).all()
    assert frame.to_image(np.array([[0.0, 0.0], [20.0, 20.0]])).tolist() == [[20, 0], [40, 20]]


@pytest.mark.parametrize("size", [(100, 37), (37, 100), (9, 12), (224, 300)])
def test_cover_averages_over_the_pixels_that_fall_together(size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    pixels, _ = place(image, (24, 24), "cover")
    assert pixels.shape == (24, 24, 3)
    side = min(size)
    top, left = ((each - side) // 2 for each in size)
    middle = image[top : top + side, left : left + side].astype(np.float32)
    assert np.abs(pixels.mean() - middle.mean()) < 4
    flat, _ = place(np.full((*size, 3), 77, np.uint8), (24, 24), "cover")
    assert (flat == 77).all()


# Four corners of an image become an upright image, and points of it find their way back.

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


# Crops for a second network, upright as PFLD's example has them, or at any angle as MediaPipe has them.

PHOTO = np.random.default_rng(2).integers(1, 256, (60, 80, 3), np.uint8)


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
    crop, corner = Crop().cut(PHOTO, box)
    expected, at = as_pfld_does(PHOTO, box)
    assert corner == at
    assert np.array_equal(crop, expected)


def test_without_margin_and_square_it_is_the_box() -> None:
    crop, corner = Crop(margin=0, square=False).cut(PHOTO, (5, 7, 25, 17))
    assert corner == (5, 7)
    assert np.array_equal(crop, PHOTO[7:17, 5:25])


NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)


@given(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), st.floats(0, 4), st.booleans())
def test_pixels_are_the_images_or_black(box: tuple[float, float, float, float], margin: float, square: bool) -> None:
    crop, (left, top) = Crop(margin=margin, square=square).cut(PHOTO, box)
    rows, columns = crop.shape[:2]
    assert 1 <= rows <= 5 * 80
    assert 1 <= columns <= 5 * 80
    for row, column in [(0, 0), (rows - 1, columns - 1), (rows // 2, columns // 2)]:
        y, x = top + row, left + column
        inside = 0 <= y < 60 and 0 <= x < 80
        assert np.array_equal(crop[row, column], PHOTO[y, x] if inside else [0, 0, 0])


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
    def test_a_box_becomes_a_square_of_its_longer_side_or_stays_as_it_is(self) -> None:
        box = found(box=(10, 20, 50, 40))
        assert rotated(scale=1.5).rectangle(box) == Rectangle((30, 30), (60, 60))
        assert rotated(scale=2, square=False).rectangle(box) == Rectangle((30, 30), (80, 40))

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
        assert rotated(upright=upright).rectangle(hand).rotation == pytest.approx(0)

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


# Text in images: crops of its regions, and sizes of networks.


def painted() -> np.ndarray:
    """An image in which every pixel differs from its neighbours, smooth enough to be interpolated."""
    y, x = np.mgrid[:200, :300]
    return np.stack([x * 255 // 300, y * 255 // 200, (x + y) // 2], axis=-1).astype(np.uint8)


def turned(*corners: tuple[float, float]) -> Detection:
    box, four = around(np.array(corners, np.float64))
    return Detection(label="text", class_id=0, box=box, corners=four)


def test_a_turned_box_becomes_an_upright_image_and_its_points_go_back() -> None:
    image = painted()
    found = turned((60, 80), (180, 110), (175, 130), (55, 100))
    view = QuadrilateralCrop(kind="quadrilateral").view(image, found)
    height, width = view.pixels.shape[:2]
    assert (height, width) == (20, 123)
    corners = view.to_image(np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64))
    assert corners == pytest.approx(np.array(found.corners), abs=1e-3)
    assert view.pixels[0, 0] == pytest.approx(image[80, 60], abs=2)


def test_a_tall_box_is_turned_to_the_left_by_a_quarter() -> None:
    image = painted()
    found = turned((100, 40), (120, 40), (120, 160), (100, 160))
    view = QuadrilateralCrop(kind="quadrilateral", tall=1.5).view(image, found)
    assert view.pixels.shape == (20, 120, 3)
    assert np.array_equal(view.pixels, np.rot90(image[40:160, 100:120]))
    top_left, bottom_right = view.to_image(np.array([[0, 0], [120, 20]], np.float64))
    assert top_left == pytest.approx((120, 40), abs=1e-3)
    assert bottom_right == pytest.approx((100, 160), abs=1e-3)


def test_a_box_without_corners_is_cut_as_it_lies() -> None:
    image = painted()
    view = QuadrilateralCrop(kind="quadrilateral").view(image, Detection(label="", class_id=0, box=(20, 30, 80, 50)))
    assert np.array_equal(view.pixels, image[30:50, 20:80])


@pytest.mark.parametrize(("class_id", "score", "is_turned"), [(1, 0.95, True), (1, 0.9, False), (0, 0.99, False)])
def test_a_line_is_turned_if_the_network_is_sure_enough(class_id: int, score: float, is_turned: bool) -> None:
    image = painted()
    crop = TurnCrop(kind="turn", class_id=1, threshold=0.9)
    view = crop.view(image, Detection(label="", class_id=class_id, score=score))
    assert np.array_equal(view.pixels, np.rot90(image, 2) if is_turned else image)
    assert view.to_image(np.array([[0.0, 0.0]])).tolist() == ([[300, 200]] if is_turned else [[0, 0]])


@pytest.mark.parametrize(
    ("image", "network"),
    [
        ((480, 640), (736, 992)),  # 736 / 480 * 640 = 981
        ((191, 384), (736, 1472)),  # 1479
        ((736, 736), (736, 736)),
        ((1080, 1920), (1088, 1920)),  # large enough: multiples of 32 alone
        ((750, 900), (736, 896)),
    ],
)
def test_a_network_for_regions_is_built_for_the_images_size(image: tuple[int, int], network: tuple[int, int]) -> None:
    fit = ScaledFit(kind="scaled", shortest=736, multiple=32)
    assert fit.size(image) == network
    pixels, frame = fit.place(np.zeros((*image, 3), np.uint8), network)
    assert pixels.shape[:2] == network
    assert frame.to_image(np.array([network[::-1]], np.float64))[0] == pytest.approx(image[::-1])


@pytest.mark.parametrize(
    ("image", "length", "inner", "width"),
    [
        ((24, 100), 320, 200, 320),
        ((24, 160), 320, 320, 320),
        ((24, 161), 322, 322, 640),
        ((25, 168), 322, 322, 640),  # 322.56: cut off for the input, and then the line is squeezed into it
        ((24, 641), 1282, 1282, 2560),
    ],
)
def test_a_line_has_the_first_width_that_holds_it(image: tuple[int, int], length: int, inner: int, width: int) -> None:
    fit = LineFit(kind="line", widths=[320, 640])
    assert not fit.one_size
    assert LineFit(kind="line").one_size  # without widths it is that of the network
    assert fit.lengths([image], (48, 320)) == [length]
    assert fit.width(length) == width
    assert fit.place(np.zeros((*image, 3), np.uint8), (48, length))[0].shape == (48, inner, 3)


def test_a_line_that_is_longer_than_any_image_is_refused() -> None:
    with pytest.raises(InputError, match="a line of text is too long"):
        LineFit(kind="line", widths=[320]).width(16385)


def test_lines_next_to_each_other_in_aspect_ratio_share_a_length() -> None:
    images = [(48, 900), (48, 100), (24, 400), (48, 500), (48, 330)]
    fit = LineFit(kind="line", widths=[320], batch=2)
    assert fit.lengths(images, (48, 320)) == [900, 330, 800, 800, 330]
    assert LineFit(kind="line", widths=[320], batch=9).lengths(images, (48, 320)) == [900] * 5
    assert LineFit(kind="line", widths=[320]).lengths(images, (48, 320)) == [900, 320, 800, 500, 330]
    assert fit.lengths([], (48, 320)) == []


def test_large_and_tiny_pages_are_scaled_and_wide_ones_get_rows_of_black() -> None:
    page = Page()
    plain = painted()
    assert page.view(plain).pixels is plain
    large = page.view(np.zeros((3000, 4000, 3), np.uint8))
    assert large.pixels.shape == (1504, 1984, 3)
    assert large.to_image(np.array([[1984.0, 1504.0]])).tolist() == [[4000, 3000]]
    wide = page.view(np.full((40, 400, 3), 9, np.uint8))
    assert wide.pixels.shape == (100, 400, 3)
    assert wide.pixels[:30].max() == 0
    assert wide.pixels[30:70].min() == 9
    assert wide.to_image(np.array([[10.0, 35.0], [10.0, 5.0]])).tolist() == [[10, 5], [10, 0]]
    tiny = page.view(np.full((1, 1, 3), 9, np.uint8))
    assert tiny.pixels.shape == (32, 32, 3)
    assert tiny.to_image(np.array([[32.0, 32.0]])).tolist() == [[1, 1]]


@pytest.mark.parametrize("size", [(1, 2000), (2000, 1)], ids=str)
def test_an_image_too_narrow_to_be_enlarged_is_refused_before_it_takes_memory(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="the image is too narrow: it has"):
        ScaledFit(kind="scaled", shortest=736, multiple=32).size(size)
    with pytest.raises(InputError, match="the image is too narrow: it has"):
        Page(shortest=60).view(np.zeros((*size, 3), np.uint8))

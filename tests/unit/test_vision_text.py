"""Text in images: regions from maps of probabilities, their crops, characters from steps, sizes of networks."""

import cv2
import numpy as np
import pytest

from edgedeploy.errors import InputError
from edgedeploy.vision.crop import QuadrilateralCrop, TurnCrop
from edgedeploy.vision.decoders.text import TextLine, TextRegions, grown
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.preprocess import LineFit, Page, ScaledFit
from edgedeploy.vision.results import Detection, around

REGIONS = TextRegions(kind="text-regions")
SIZE = (320, 480)
FRAME = Frame(SIZE, SIZE, (1, 1))


def regions(*rectangles: tuple[tuple[float, float], tuple[float, float], float], level: float = 0.9) -> list[Detection]:
    probabilities = np.zeros(SIZE, np.float32)
    for rectangle in rectangles:
        cv2.fillPoly(probabilities, [np.rint(cv2.boxPoints(rectangle)).astype(np.int32)], level)
    return REGIONS.decode({"map": probabilities[None, None]}, FRAME, [])


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
    [here], [there] = (REGIONS.decode({"map": probabilities}, frame, []) for frame in (FRAME, half))
    assert np.array(there.corners) == pytest.approx(np.array(here.corners) / 2, abs=1)


def test_a_grown_rectangle_has_round_corners_of_whole_pixels() -> None:
    corners = np.array([[100, 50], [200, 50], [200, 80], [100, 80]], np.float32)
    hull = grown(corners, 2.0).reshape(-1, 2)
    distance = 2 * 100 * 30 / 260
    nearest = np.clip(hull, corners[0], corners[2])
    assert np.linalg.norm(hull - nearest, axis=1) == pytest.approx(distance, abs=0.75)
    assert hull.dtype == np.int32


def test_an_output_that_is_no_map_is_refused() -> None:
    with pytest.raises(InputError):
        REGIONS.decode({"map": np.zeros((1, 2, 8, 8), np.float32)}, FRAME, [])


LINE = TextLine(kind="text-line", threshold=0.5)


def steps(*best: int, classes: int = 5, level: float = 0.9) -> np.ndarray:
    """Probabilities whose best classes are these."""
    table = np.full((1, len(best), classes), (1 - level) / (classes - 1), np.float32)
    table[0, np.arange(len(best)), best] = level
    return table


def read(*best: int, level: float = 0.9) -> list[tuple[str, float | None]]:
    found = LINE.decode({"steps": steps(*best, level=level)}, FRAME, ["a", "b", "c"])
    return [(each.label, each.score) for each in found]


def test_repeated_characters_count_once_unless_a_blank_lies_between() -> None:
    assert read(0, 1, 1, 0, 1, 2, 0, 0, 3) == [("aabc", pytest.approx(0.9))]


def test_the_class_after_the_last_character_is_a_space() -> None:
    assert read(1, 4, 4, 2)[0][0] == "a b"


def test_without_characters_or_with_a_low_mean_there_is_no_text() -> None:
    assert read(0, 0, 0) == []
    assert read(1, 2, level=0.45) == []


def test_characters_are_those_of_the_networks_file() -> None:
    class Network:
        heads, outputs = (), ()
        metadata = {"character": "x\ny\n新"}

    assert LINE.fitted(Network()).labels == ["x", "y", "新"]


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


def test_a_line_without_widths_has_that_of_the_network() -> None:
    assert LineFit(kind="line").one_size


def test_large_pages_are_scaled_and_wide_ones_get_rows_of_black() -> None:
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


@pytest.mark.parametrize("size", [(1, 2000), (2000, 1)], ids=str)
def test_an_image_too_narrow_to_be_enlarged_is_refused_before_it_takes_memory(size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="the image is too narrow: it has"):
        ScaledFit(kind="scaled", shortest=736, multiple=32).size(size)
    with pytest.raises(InputError, match="the image is too narrow: it has"):
        Page(shortest=60).view(np.zeros((*size, 3), np.uint8))


def test_an_image_of_one_pixel_is_a_page() -> None:
    view = Page().view(np.full((1, 1, 3), 9, np.uint8))
    assert view.pixels.shape == (32, 32, 3)
    assert view.to_image(np.array([[32.0, 32.0]])).tolist() == [[1, 1]]

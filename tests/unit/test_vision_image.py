import struct
import zlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision.camera import resize
from edgedeploy.vision.draw import _label_area, _shared, class_colour, draw, draw_enlarged
from edgedeploy.vision.image import check_writable, read_image, write_image
from edgedeploy.vision.results import Detection, Mask, Surface
from edgedeploy.vision.video import check_video_writable


def test_resize_takes_half_pixel_positions_and_rounds_down_after_each_product() -> None:
    # Two rows of 11 and 21 in equal parts: 11/2 -> 5, 21/2 -> 10, 15 along x; the exact mean is 16.
    assert resize(np.array([[[11], [21]], [[11], [21]]], np.uint8), 1, 1).tolist() == [[[15]]]
    # 4 -> 2: outputs lie at 0.5 and 2.5 of the source.
    assert resize(np.array([[[0], [100], [200], [40]]], np.uint8), 1, 2)[0, :, 0].tolist() == [50, 120]


def test_resize_is_the_stated_formula_for_any_ratio() -> None:
    image = np.random.default_rng(7).integers(0, 256, (23, 31, 3), np.uint8)
    height, width = 9, 13

    def elements(source: int, target: int, index: int) -> tuple[int, int, int]:
        position = np.float32(index + 0.5) * (np.float32(source) / np.float32(target)) - np.float32(0.5)
        first = int(position)
        part = np.float32(position - np.float32(first))
        return first, int((np.float32(1) - part) * np.float32(2048)), int(part * np.float32(2048))

    expected = np.zeros((height, width, 3), np.uint8)
    for i in range(height):
        for j in range(width):
            y, above, below = elements(23, height, i)
            x, before, after = elements(31, width, j)
            for c in range(3):
                top, bottom = (
                    (int(row[x, c]) * before >> 11) + (int(row[x + 1, c]) * after >> 11)
                    for row in (image[y], image[y + 1])
                )
                expected[i, j, c] = top * above + bottom * below >> 11
    assert np.array_equal(resize(image, height, width), expected)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (40, 3), (64, 64)])
def test_resize_of_any_size_stays_between_the_pixels(size: tuple[int, int]) -> None:
    assert set(np.unique(resize(np.full((*size, 3), 200, np.uint8), 16, 16))) <= {198, 199, 200}


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_grey_and_transparent_images_become_three_channels(tmp_path: Path, channels: int) -> None:
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), np.full((5, 7, channels), 90, np.uint8))
    image = read_image(path)
    assert image.shape == (5, 7, 3)
    assert image.dtype == np.uint8
    assert image[2, 3].tolist() == [90, 90, 90]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"This is a letter.\n", "text"),
        ("ein Brief für dich\n".encode(), "text"),
        (bytes(range(256)), "no image or video format"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "damaged"),
    ],
)
def test_what_is_no_image_is_named(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    with pytest.raises(InputError, match=why) as caught:
        read_image(path)
    assert caught.value.hints


def test_a_missing_image_and_a_folder_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no image"):
        read_image(tmp_path / "none.jpg")
    with pytest.raises(InputError, match="cannot read"):
        read_image(tmp_path)


def test_a_small_file_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    path = tmp_path / "bomb.png"
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    with pytest.raises(InputError, match="too large"):
        read_image(path)


def test_images_are_written_in_the_format_of_their_suffix(tmp_path: Path) -> None:
    image = np.random.default_rng(3).integers(0, 256, (6, 5, 3), np.uint8)
    path = tmp_path / "new" / "out.PNG"
    write_image(path, image)
    assert np.array_equal(read_image(path), image)
    assert [file.name for file in path.parent.iterdir()] == ["out.PNG"]


@pytest.mark.parametrize("name", ["out", "out.", "out.txt", ".jpg"])
def test_a_suffix_of_no_image_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot save"):
        check_writable(tmp_path / name)


@pytest.mark.parametrize(("check", "name"), [(check_writable, "out.jpg"), (check_video_writable, "film.avi")])
def test_a_folder_that_is_a_file_is_refused(tmp_path: Path, check: Callable[[Path], None], name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="not a folder"):
        check(tmp_path / "file" / name)
    (tmp_path / name).mkdir()
    with pytest.raises(OutputError, match="it is a folder"):
        check(tmp_path / name)


@pytest.mark.parametrize("name", ["grey.pgm", "wide.webp"])
def test_an_image_that_the_format_does_not_take_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="cannot be written as"):
        write_image(tmp_path / name, np.zeros((2, 20000, 3), np.uint8))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_may_not_be_entered_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)  # tests may run as root, who enters every folder
    with pytest.raises(OutputError, match="Permission denied"):
        check_writable(tmp_path / "locked" / "out.png")


GREY = np.full((200, 300, 3), 128, np.uint8)


def seen(**fields: Any) -> Detection:
    return Detection(**{"label": "cat", "class_id": 0, **fields})


def mask(where: Any, size: tuple[int, int] = (200, 300)) -> Mask:
    pixels = np.zeros(size, bool)
    pixels[where] = True
    return Mask.of(pixels, (0, 0), size)


BOXED = seen(score=0.5, box=(100, 100, 150, 150))


def changed(detection: Detection) -> np.ndarray:
    return np.any(draw(GREY, [detection]) != GREY, axis=2)


def test_the_image_itself_stays_as_it_is() -> None:
    before = GREY.copy()
    drawn = draw(GREY, [BOXED])
    assert drawn.shape == GREY.shape
    assert np.array_equal(GREY, before)


def test_boxes_have_their_lines_where_they_are() -> None:
    pixels = changed(BOXED)
    assert pixels[100:151, 100].all()
    assert pixels[150, 100:151].all()
    assert not pixels[105:145, 105:145].any()


def test_points_are_marked() -> None:
    pixels = changed(seen(points=((20, 30), (250, 190))))
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
    one = changed(seen(score=0.5))
    assert one[:20].any()
    assert not one[25:].any()


def test_boxes_outside_the_image_are_no_problem() -> None:
    inf = float("inf")
    for box in [(-500.0, -500.0, 9e9, 9e9), (-inf, 0.0, inf, inf)]:
        draw(GREY, [seen(label="a very long label of a thing", score=1, box=box)])


def test_masks_are_half_of_the_image_and_half_of_a_colour_that_differs_from_result_to_result() -> None:
    first = seen(score=1, box=(40, 40, 90, 90), mask=mask(np.s_[50:80, 50:80]))
    second = seen(score=1, box=(140, 140, 195, 195), mask=mask(np.s_[150:190, 150:190]))
    drawn = draw(GREY, [first, second])
    # The first two colours of VOC's palette are dark red and dark green: 128 of 255.
    assert (drawn[55:80, 50:80] == [64, 64, 128]).all()
    assert (drawn[155:190, 150:190] == [64, 128, 64]).all()
    assert (drawn[100:130, 100:130] == 128).all()


def test_classes_of_pixels_have_the_colours_of_their_numbers() -> None:
    drawn = draw(GREY, [seen(class_id=1, mask=mask(np.s_[100:120]))])
    assert (drawn[100:120] == [64, 128, 64]).all()


def test_points_whose_scores_are_low_are_left_out_with_their_lines() -> None:
    points = {"points": ((20, 30), (250, 30), (20, 190)), "point_scores": (0.9, 0.8, 0.1)}
    pixels = changed(seen(**points, edges=((0, 1), (0, 2))))
    assert pixels[30, 20:251].all()
    assert not pixels[100:].any()


def test_turned_boxes_have_their_own_lines() -> None:
    corners = ((100.0, 50.0), (150.0, 100.0), (100.0, 150.0), (50.0, 100.0))
    pixels = changed(seen(score=1, box=(50, 50, 150, 150), corners=corners))
    assert pixels[75, 125]
    assert pixels[125, 75]
    assert not pixels[140, 55:70].any()


def test_a_surface_takes_the_place_of_the_image_bright_where_it_is_large() -> None:
    values = np.linspace(0, 10, 60000, dtype=np.float32).reshape(200, 300)
    values[0, 0] = np.nan
    surface = Surface(minimum=0, median=5, maximum=10, values=values)
    rows = draw(GREY, [seen(surface=surface)])[40:].mean(axis=(1, 2))
    assert (np.diff(rows) > -1).all()
    assert rows[-1] > 3 * rows[0]


def test_classes_have_colours_that_differ() -> None:
    colours = [class_colour(number) for number in range(20)]
    assert colours[0] == (0, 200, 0)
    assert len(set(colours)) == 20
    drawn = draw(GREY, [BOXED.model_copy(update={"class_id": 4})])
    assert tuple(drawn[120, 100].tolist()) == class_colour(4)


def test_small_images_are_enlarged_with_what_was_found_in_them() -> None:
    small = np.full((20, 30, 3), 128, np.uint8)
    boxed = seen(label="", box=(2, 3, 12, 13), points=((5, 6),))
    masked = seen(label="", mask=mask(np.s_[14:18, 20:26], size=(20, 30)), points=((0, 0),))
    drawn = draw_enlarged(small, [boxed, masked])
    assert drawn.shape == (220, 330, 3)  # by eleven
    assert tuple(drawn[80, 22].tolist()) == class_colour(0)
    assert (drawn[66, 55] != 128).any()
    assert (drawn[14 * 11 : 18 * 11, 20 * 11 : 26 * 11] != 128).any(axis=2).all()
    assert np.array_equal(draw_enlarged(GREY.repeat(2, 0).repeat(2, 1), []), GREY.repeat(2, 0).repeat(2, 1))

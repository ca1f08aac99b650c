from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pytest

from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision.camera import resize
from edgedeploy.vision.image import check_writable, read_image, write_image
from edgedeploy.vision.video import check_video_writable


def test_resize_rounds_down_after_each_product() -> None:
    # Two rows of 11 and 21 in equal parts: 11/2 -> 5, 21/2 -> 10, 15 along x; the exact mean is 16.
    image = np.array([[[11], [21]], [[11], [21]]], np.uint8)
    assert resize(image, 1, 1).tolist() == [[[15]]]


def test_resize_takes_half_pixel_positions() -> None:
    # 4 -> 2: outputs lie at 0.5 and 2.5 of the source.
    row = np.array([[[0], [100], [200], [40]]], np.uint8)
    assert resize(row, 1, 2)[0, :, 0].tolist() == [50, 120]


def test_resize_is_the_stated_formula_for_any_ratio() -> None:
    random = np.random.default_rng(7)
    image = random.integers(0, 256, (23, 31, 3), np.uint8)
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


def test_resize_leaves_an_image_of_the_right_size_alone() -> None:
    image = np.random.default_rng(1).integers(0, 256, (5, 4, 3), np.uint8)
    assert np.array_equal(resize(image, 5, 4), image)


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (40, 3), (64, 64)])
def test_resize_of_any_size_stays_between_the_pixels(size: tuple[int, int]) -> None:
    image = np.full((*size, 3), 200, np.uint8)
    assert set(np.unique(resize(image, 16, 16))) <= {198, 199, 200}


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
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    )
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

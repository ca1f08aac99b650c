"""Image files as the agent reads them on a board, held against OpenCV."""

from __future__ import annotations

import hashlib
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.agents import TOOLCHAINS, build_probe, call, known_toolchain

from edgedeploy.errors import InputError
from edgedeploy.vision.image import read_image

pytestmark = pytest.mark.compiles

GENERATOR = np.random.default_rng(7)
SMOOTH = cv2.resize(GENERATOR.integers(0, 256, (9, 13, 3), np.uint8), (197, 133), interpolation=cv2.INTER_CUBIC)
GREY = SMOOTH[:, :, 1]
WIDE = GENERATOR.integers(0, 2**16, (20, 30, 3), np.uint16)
TRANSPARENT = np.dstack([SMOOTH, GREY])


@pytest.fixture(scope="module", params=TOOLCHAINS)
def probe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with known_toolchain(request.param, tmp_path_factory.mktemp("probe")):
        yield build_probe(request.param).path


def encoded(suffix: str, image: np.ndarray, *settings: int) -> bytes:
    done, content = cv2.imencode(suffix, image, list(settings))
    assert done
    return content.tobytes()


def tiff(orientation: int, order: str = "<") -> bytes:
    """EXIF data of two tags, the second of which is the orientation."""
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    width = struct.pack(order + "HHII", 0x0100, 4, 1, 640)
    turned = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return head + struct.pack(order + "H", 2) + width + turned + bytes(4)


def turned_jpeg(orientation: int, order: str = "<") -> bytes:
    content = encoded(".jpg", SMOOTH)
    exif = b"Exif\0\0" + tiff(orientation, order)
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + content[2:]


def turned_png(orientation: int) -> bytes:
    content, exif = encoded(".png", SMOOTH), b"eXIf" + tiff(orientation)
    chunk = struct.pack(">I", len(exif) - 4) + exif + struct.pack(">I", zlib.crc32(exif))
    return content[:33] + chunk + content[33:]  # after the header


def interlaced_png() -> bytes:
    """Eight rows of eight pixels of 16 levels of grey, in the seven passes of Adam7."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    levels = GREY[:8, :8] >> 4
    content = b""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    for y, x, down, right in passes:
        for row in levels[y::down, x::right]:
            pairs = np.pad(row, (0, len(row) % 2)).reshape(-1, 2)
            content += bytes([0, *(pairs[:, 0] * 16 + pairs[:, 1]).tolist()])
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 4, 0, 0, 0, 1))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


SAMPLINGS = [
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
]
FILES = {
    **{
        f"jpeg {sampling:x} {'progressive' if progressive else 'baseline'}": encoded(
            ".jpg", SMOOTH, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_PROGRESSIVE, progressive
        )
        for sampling in SAMPLINGS
        for progressive in (0, 1)
    },
    "jpeg grey": encoded(".jpg", GREY),
    "jpeg of restarts": encoded(".jpg", SMOOTH, cv2.IMWRITE_JPEG_RST_INTERVAL, 3),
    **{f"jpeg turned {each}": turned_jpeg(each) for each in range(10)},
    "jpeg turned, big end": turned_jpeg(6, ">"),
    "png": encoded(".png", SMOOTH),
    "png grey": encoded(".png", GREY),
    "png black and white": encoded(".png", GREY, cv2.IMWRITE_PNG_BILEVEL, 1),
    "png transparent": encoded(".png", TRANSPARENT),
    "png of 16 bits": encoded(".png", WIDE),
    "png interlaced": interlaced_png(),
    "png turned": turned_png(6),
    "bmp": encoded(".bmp", SMOOTH),
    "bmp with a palette": encoded(".bmp", GREY),
    "bmp of 32 bits": encoded(".bmp", TRANSPARENT),
    "ppm": encoded(".ppm", SMOOTH),
    "pgm": encoded(".pgm", GREY),
    "ppm with a comment": b"P6 # of a pixel\n1\t1\n255\n\x01\x02\x03",
}


def seen(probe: Path, contents: list[bytes]) -> list[str]:
    """For each content the size and the hash of its pixels, or why it is refused."""
    done = call(probe, "image", stdin=b"".join(content.hex().encode() + b"\n" for content in contents))
    assert done.returncode == 0, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(contents)
    return lines


def by_opencv(content: bytes) -> str | None:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    return image if image is None else described(image)


def described(image: np.ndarray) -> str:
    return f"{image.shape[0]} {image.shape[1]} {hashlib.sha256(image.tobytes()).hexdigest()}"


def test_pixels_are_those_of_opencv_bit_for_bit(probe: Path) -> None:
    found = dict(zip(FILES, seen(probe, list(FILES.values())), strict=True))
    assert found == {name: by_opencv(content) for name, content in FILES.items()}


def test_photographs_have_the_pixels_that_opencv_decodes(probe: Path, shared: Path) -> None:
    contents = [path.read_bytes() for path in sorted((shared / "images").glob("*.jpg"))]
    assert len(contents) > 10
    assert seen(probe, contents) == [by_opencv(content) for content in contents]


JPEG, PNG = encoded(".jpg", SMOOTH), FILES["png"]


def with_size(jpeg: bytes, height: int, width: int) -> bytes:
    """A JPEG that says that it is of another size."""
    place = jpeg.index(b"\xff\xc0") + 5
    return jpeg[:place] + struct.pack(">HH", height, width) + jpeg[place + 4 :]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the file is empty"),
        (b"hello", "JPEG, PNG, BMP, PPM and PGM are read"),
        (JPEG[: len(JPEG) // 2], "it ends too early"),
        (JPEG[:-2], "it ends too early"),
        (JPEG[:30], "it ends too early"),
        (with_size(JPEG, 65500, 65500), "too large"),
        (with_size(JPEG, 0, 5), "cannot decode"),
        (PNG[: len(PNG) // 2], "it ends too early"),
        (PNG[:200] + b"\xff" + PNG[201:], "cannot decode"),
        (PNG[:16] + struct.pack(">I", 1 << 30) + PNG[20:], "cannot decode"),
        (b"P6 100000 100000 255\n", "too large"),
        (b"P6 2 2 255\n\0\0\0", "it ends too early"),
        (b"P5 2 2 65535\n" + bytes(8), "255 levels"),
        (b"P6 0 2 255\n", "not positive"),
        (FILES["bmp"][:100], "it ends too early"),
        (FILES["bmp"][:18] + struct.pack("<ii", 1 << 30, 1 << 30) + FILES["bmp"][26:], "too large"),
        (FILES["bmp"][:28] + b"\x01" + FILES["bmp"][29:], "1 bits"),
    ],
)
def test_what_is_damaged_or_too_large_is_refused(probe: Path, content: bytes, why: str) -> None:
    [line] = seen(probe, [content])
    assert line.startswith("refused: ")
    assert why in line


def of_scans(count: int, scan: bytes = b"") -> bytes:
    """A progressive JPEG with so many scans, of which the last ones are all the same."""
    content = encoded(".jpg", SMOOTH, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    before, last = content[: content.rindex(b"\xff\xda")], content[content.rindex(b"\xff\xda") : -2]
    return before + (scan or last) * (count - before.count(b"\xff\xda")) + content[-2:]


# A comment of what would be scans elsewhere.
COMMENT = b"\xff\xfe" + struct.pack(">H", 2 + 2 * 500) + b"\xff\xda" * 500


def test_a_jpeg_of_more_scans_than_programs_write_is_refused_by_the_agent_and_here(probe: Path, tmp_path: Path) -> None:
    for content, is_read in (
        (of_scans(10), True),
        (JPEG[:2] + COMMENT + JPEG[2:], True),
        (of_scans(101), False),
        (of_scans(8000), False),
        (of_scans(101, b"\xff\xff\xff\xda\0\x08\1\1\0\0\x3f\0\xff\xd0\xff\0"), False),
        (JPEG[:2] + COMMENT + of_scans(101)[2:], False),
    ):
        (tmp_path / "image.jpg").write_bytes(content)
        [line] = seen(probe, [content])
        if is_read:
            assert line == described(read_image(tmp_path / "image.jpg"))
        else:
            assert "it has too many scans" in line
            with pytest.raises(InputError, match="it has too many scans"):
                read_image(tmp_path / "image.jpg")


def test_no_damage_ends_the_agent(probe: Path) -> None:
    """Bytes at random places of sound files are changed: what comes is an image or a refusal."""
    generator = random.Random(3)
    small = cv2.resize(SMOOTH, (40, 24))
    sound = [
        encoded(".jpg", small),
        encoded(".png", small),
        encoded(".bmp", small),
        encoded(".ppm", small),
        turned_jpeg(3),
    ]
    sound.append(encoded(".jpg", small, cv2.IMWRITE_JPEG_PROGRESSIVE, 1))
    changed = []
    for content in sound * 60:
        damaged = bytearray(content)
        for _ in range(generator.randint(1, 8)):
            # Mostly in headers, where sizes stand.
            place = generator.randrange(min(len(damaged), generator.choice([64, 700, 10**9])))
            damaged[place] = generator.randrange(256)
        changed.append(bytes(damaged))
    lines = seen(probe, changed)
    assert any(line.startswith("refused") for line in lines)
    assert any(not line.startswith("refused") for line in lines)


def test_a_jpeg_is_written_as_opencv_writes_it(probe: Path) -> None:
    height, width = SMOOTH.shape[:2]
    done = call(probe, "jpeg", 90, stdin=f"{height} {width}\n".encode() + SMOOTH.tobytes())
    assert done.stdout == encoded(".jpg", SMOOTH, cv2.IMWRITE_JPEG_QUALITY, 90)

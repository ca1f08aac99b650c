"""Images and films: how they are resized, read and written, where they come from, and what is drawn in them."""

import shutil
import struct
import sys
import zlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.commands import Notebook, printed, put
from support.recordings import moving, read_film, write_film

from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision import source as sources
from edgedeploy.vision import video
from edgedeploy.vision.draw import _label_area, class_colour, draw, draw_enlarged
from edgedeploy.vision.frames import resize
from edgedeploy.vision.image import check_writable, read_image, write_image
from edgedeploy.vision.results import Detection, Mask, Surface, intersection
from edgedeploy.vision.source import open_source
from edgedeploy.vision.video import check_video_writable, video_file


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
    assert np.array_equal(resize(image, 23, 31), image)


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
    path = put(tmp_path / "image.jpg", content)
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


# Where images come from is told by content.

DIGIT = Path(__file__).resolve().parents[2] / "models" / "digit.png"
SCENE = np.random.default_rng(5).integers(0, 256, (48, 200, 3), np.uint8)


@pytest.fixture
def heard() -> Notebook:
    return Notebook()


def grey(path: Path, level: int) -> None:
    path.write_bytes(cv2.imencode(".png", np.full((4, 4, 3), level, np.uint8))[1].tobytes())


class TestImage:
    def test_it_is_one_shot(self) -> None:
        with open_source(DIGIT) as source:
            [shot] = source.shots
        assert (source.kind, source.length, shot.index, shot.file) == ("image", 1, 0, DIGIT)
        assert np.array_equal(shot.image, cv2.imread(str(DIGIT)))

    def test_a_suffix_does_not_make_a_video(self, tmp_path: Path) -> None:
        shutil.copy(DIGIT, tmp_path / "digit.mp4")
        assert open_source(tmp_path / "digit.mp4").kind == "image"

    @pytest.mark.parametrize(
        ("name", "content", "why"),
        [
            *((name, b"", "empty") for name in ("letter.mp4", "letter.txt", "letter.nfo")),
            *((name, b"Dear reader,\n" * 99, "text") for name in ("letter.mp4", "letter.txt", "letter.nfo")),
            ("cut.png", DIGIT.read_bytes()[:60], r"cut\.png"),  # not tried as a video
            ("none.png", None, "there is no image"),
        ],
    )
    def test_other_files_are_named(self, tmp_path: Path, name: str, content: bytes | None, why: str) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=why):
            open_source(tmp_path / name)

    def test_a_name_that_is_no_utf8_is_no_obstacle(self, tmp_path: Path) -> None:
        path = tmp_path / b"\xe4\xf6.avi".decode("utf-8", "surrogateescape")
        write_film(tmp_path / "plain.avi", [SCENE]).rename(path)
        with open_source(path) as source:
            assert (source.kind, len(list(source.shots))) == ("video", 1)


class TestFolder:
    def test_images_come_in_natural_order(self, tmp_path: Path) -> None:
        for number in (10, 9, 1, 2, 100):
            grey(tmp_path / f"scan{number}.png", number)
        with open_source(tmp_path) as source:
            shots = list(source.shots)
        found = [(shot.index, shot.file.name, int(shot.image[0, 0, 0])) for shot in shots]
        assert found == [(index, f"scan{number}.png", number) for index, number in enumerate((1, 2, 9, 10, 100))]
        assert (source.kind, source.length) == ("folder", 5)

    def test_what_is_no_image_is_passed_over_with_a_note(self, tmp_path: Path, heard: Notebook) -> None:
        grey(tmp_path / "b.png", 7)
        grey(tmp_path / "named-wrongly.txt", 8)
        (tmp_path / "a.txt").write_text("text")
        (tmp_path / "empty.jpg").touch()
        (tmp_path / "sub").mkdir()
        (tmp_path / ".hidden").touch()
        source = open_source(tmp_path, heard)
        assert [shot.file.name for shot in source.shots] == ["b.png", "named-wrongly.txt"]
        assert heard.lines == ["passed over, being no images: a.txt, empty.jpg, sub"]

    def test_a_damaged_image_is_passed_over_with_a_note(self, tmp_path: Path, heard: Notebook) -> None:
        (tmp_path / "1.png").write_bytes(DIGIT.read_bytes()[:60])
        grey(tmp_path / "2.png", 7)
        source = open_source(tmp_path, heard)
        assert [(shot.index, shot.file.name) for shot in source.shots] == [(0, "2.png")]
        assert "1.png" in heard.lines[0]

    def test_an_empty_folder_and_one_without_sound_images_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="it is empty"):
            open_source(tmp_path)
        (tmp_path / "a.txt").write_text("text")
        with pytest.raises(InputError, match=r"there is a\.txt"):
            open_source(tmp_path)
        (tmp_path / "1.png").write_bytes(DIGIT.read_bytes()[:60])
        with pytest.raises(InputError, match="no image of the folder"):
            list(open_source(tmp_path).shots)


class TestVideo:
    @pytest.mark.parametrize("suffix", [".avi", ".mp4", ".mkv"])
    def test_its_images_come_in_order(self, tmp_path: Path, suffix: str, heard: Notebook) -> None:
        images = [np.full((48, 64, 3), 20 * index, np.uint8) for index in range(10)]
        path = write_film(tmp_path / f"film{suffix}", images, rate=12.5).rename(tmp_path / "film")
        with open_source(path, heard) as source:
            shots = list(source.shots)
        assert heard.lines == []
        assert (source.kind, source.length, source.rate) == ("video", 10, 12.5)
        assert [shot.index for shot in shots] == list(range(10))
        for shot, image in zip(shots, images, strict=True):
            assert shot.image.shape == image.shape
            assert np.abs(shot.image.astype(int) - image).mean() < 4

    @pytest.mark.parametrize("suffix", [".avi", ".mkv"])
    def test_one_that_is_cut_off_ends_early_with_a_note(self, tmp_path: Path, suffix: str, heard: Notebook) -> None:
        path = write_film(tmp_path / f"film{suffix}", moving(SCENE, 40, (48, 64), 2))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with open_source(path, heard) as source:
            count = len(list(source.shots))
        assert 0 < count < 40
        assert heard.lines == [f"{path} ended after {count} of 40 images; it may be damaged"]

    def test_one_that_is_cut_off_before_its_index_is_refused(self, tmp_path: Path) -> None:
        path = write_film(tmp_path / "film.mp4", moving(SCENE, 40, (48, 64), 2))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(InputError, match="no image or video format"):
            open_source(path)

    def test_damage_anywhere_is_an_error_or_fewer_images(self, tmp_path: Path) -> None:
        content = write_film(tmp_path / "film.avi", moving(SCENE, 8, (48, 64), 2)).read_bytes()
        random = np.random.default_rng(11)
        path = tmp_path / "damaged.avi"
        for _ in range(150):
            damaged = np.frombuffer(content, np.uint8).copy()
            places = random.integers(0, len(damaged), 20) % (600 if random.random() < 0.5 else len(damaged))
            damaged[places] = random.integers(0, 256, 20, np.uint8)
            path.write_bytes(damaged.tobytes()[: random.integers(1, len(damaged))])
            try:
                with open_source(path) as source:
                    for _, shot in zip(range(100), source.shots, strict=False):
                        assert shot.image.ndim == 3
            except InputError:
                pass

    M3U = "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{film}\n#EXT-X-ENDLIST\n"

    @pytest.mark.parametrize("playlist", [M3U, "ffconcat version 1.0\nfile {film}\n"])
    def test_a_playlist_opens_no_other_file(self, tmp_path: Path, playlist: str) -> None:
        write_film(tmp_path / "film.mp4", moving(SCENE, 4, (48, 64)))
        for name in ("list.m3u8", "list.ffconcat"):
            (tmp_path / name).write_text(playlist.format(film="film.mp4"))
            with pytest.raises(InputError, match="it is text"):
                open_source(tmp_path / name)


class TestCamera:
    @pytest.fixture
    def devices(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(sources, "_DEVICES", tmp_path)
        return tmp_path

    def test_a_number_without_a_camera_is_an_input_error(self, devices: Path) -> None:
        with pytest.raises(InputError, match=r"there is no camera .*video7: the system knows of none"):
            open_source(Path("7"))
        (devices / "video2").touch()
        with pytest.raises(InputError, match=r"there is no camera .*video7: there are video2"):
            open_source(Path("7"))

    def test_an_unreadable_one_says_how_to_get_the_right(self, devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (devices / "video0").touch()
        with pytest.raises(InputError, match="gives no image"):  # OpenCV cannot read it as a camera
            open_source(Path("0"))
        monkeypatch.setattr("os.access", lambda path, mode: False)  # tests may run as root, who may read all
        with pytest.raises(InputError, match="may not be used") as caught:
            open_source(Path("0"))
        assert "usermod" in caught.value.hints[0]

    def test_a_file_named_by_a_number_overrides_a_camera(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        shutil.copy(DIGIT, "0")
        assert open_source(Path("0")).kind == "image"


# Videos that are written: whole, playable, or not there.

IMAGES = [np.full((48, 64, 3), 12 * index, np.uint8) for index in range(20)]


@pytest.mark.parametrize("name", ["film.mp4", "film.avi", "FILM.MP4"])
def test_what_is_written_can_be_read_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    with video_file(path, 25) as write:
        for image in IMAGES:
            write(image)
        assert not path.exists()
    found = read_film(path)
    assert len(found) == len(IMAGES)
    assert all(np.abs(one.astype(int) - other).mean() < 4 for one, other in zip(found, IMAGES, strict=True))
    assert [each.name for each in path.parent.iterdir()] == [name]


def test_one_that_is_interrupted_plays_until_there(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with pytest.raises(KeyboardInterrupt), video_file(path, 25) as write:  # noqa: PT012
        for image in IMAGES[:7]:
            write(image)
        raise KeyboardInterrupt
    assert len(read_film(path)) == 7


def test_one_that_never_began_is_not_there(tmp_path: Path) -> None:
    path = put(tmp_path / "film.mp4", "the one before")
    with pytest.raises(KeyboardInterrupt), video_file(path, 25):
        raise KeyboardInterrupt
    assert path.read_text() == "the one before"
    assert [each.name for each in tmp_path.iterdir()] == ["film.mp4"]


def test_images_of_another_size_get_that_of_the_first(tmp_path: Path) -> None:
    with video_file(tmp_path / "film.avi", 25) as write:
        write(IMAGES[10])
        write(np.full((30, 200, 3), 200, np.uint8))
    first, second = read_film(tmp_path / "film.avi")
    assert first.shape == second.shape == (48, 64, 3)
    assert second.mean() == pytest.approx(200, abs=3)


def test_a_live_one_runs_as_fast_as_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(video, "perf_counter", lambda: clock[0])
    with video_file(tmp_path / "film.avi", 50, live=True) as write:
        for clock[0] in (0.0, 0.1, 0.25, 0.26):
            write(IMAGES[0])
    assert len(read_film(tmp_path / "film.avi")) == 50 * 0.26 + 1
    with video_file(tmp_path / "fast.avi", 1, live=True) as write:
        for image in IMAGES:
            write(image)
    assert len(read_film(tmp_path / "fast.avi")) == 1


@pytest.mark.parametrize("name", ["film", "film.mpx", "film.png", ".mp4"])
def test_a_suffix_of_no_video_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot save a video") as caught:
        check_video_writable(tmp_path / name)
    assert ".mp4 or .avi" in caught.value.hints[0]


def test_a_name_that_opencv_does_not_take_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="UTF-8"):
        check_video_writable(tmp_path / b"\xe4.mp4".decode("utf-8", "surrogateescape"))


def test_images_that_the_codec_does_not_take_are_refused(tmp_path: Path) -> None:
    refused = pytest.raises(OutputError, match="9000x10 pixels cannot be written as")
    with refused, video_file(tmp_path / "film.mp4", 25) as write:
        write(np.zeros((10, 9000, 3), np.uint8))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".mp4", ".avi"])
def test_a_disk_that_is_full_is_reported(tmp_path: Path, suffix: str) -> None:
    script = """
import resource, sys
from pathlib import Path
import numpy as np
from edgedeploy.errors import OutputError
from edgedeploy.vision.video import video_file
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
random = np.random.default_rng(1)
try:
    with video_file(Path(sys.argv[1]), 25) as write:
        for _ in range(100):
            write(random.integers(0, 256, (48, 64, 3), np.uint8))
except OutputError as error:
    print(error)
"""
    path = tmp_path / f"film{suffix}"
    assert "the disk may be full" in printed(sys.executable, "-c", script, path)
    assert not list(tmp_path.iterdir())


# What is drawn.

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
    assert not any(intersection(first, second) for first, second in combinations(areas, 2))
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
    # Classes of pixels have the colours of their numbers.
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

"""Where images come from, told by content."""

import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.commands import printed
from support.films import moving, read_film, write_film
from support.notebook import Notebook

from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision import source as sources
from edgedeploy.vision import video
from edgedeploy.vision.source import open_source
from edgedeploy.vision.video import check_video_writable, video_file

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
            [shot] = source.shots()
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
            assert (source.kind, len(list(source.shots()))) == ("video", 1)


class TestFolder:
    def test_images_come_in_natural_order(self, tmp_path: Path) -> None:
        for number in (10, 9, 1, 2, 100):
            grey(tmp_path / f"scan{number}.png", number)
        with open_source(tmp_path) as source:
            shots = list(source.shots())
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
        assert [shot.file.name for shot in source.shots()] == ["b.png", "named-wrongly.txt"]
        assert heard.lines == ["passed over, being no images: a.txt, empty.jpg, sub"]

    def test_a_damaged_image_is_passed_over_with_a_note(self, tmp_path: Path, heard: Notebook) -> None:
        (tmp_path / "1.png").write_bytes(DIGIT.read_bytes()[:60])
        grey(tmp_path / "2.png", 7)
        source = open_source(tmp_path, heard)
        assert [(shot.index, shot.file.name) for shot in source.shots()] == [(0, "2.png")]
        assert "1.png" in heard.lines[0]

    def test_damaged_images_alone_are_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "1.png").write_bytes(DIGIT.read_bytes()[:60])
        with pytest.raises(InputError, match="no image of the folder"):
            list(open_source(tmp_path).shots())

    def test_an_empty_folder_and_one_without_images_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="it is empty"):
            open_source(tmp_path)
        (tmp_path / "a.txt").write_text("text")
        with pytest.raises(InputError, match=r"there is a\.txt"):
            open_source(tmp_path)


class TestVideo:
    @pytest.mark.parametrize("suffix", [".avi", ".mp4", ".mkv"])
    def test_its_images_come_in_order(self, tmp_path: Path, suffix: str, heard: Notebook) -> None:
        images = [np.full((48, 64, 3), 20 * index, np.uint8) for index in range(10)]
        path = write_film(tmp_path / f"film{suffix}", images, rate=12.5).rename(tmp_path / "film")
        with open_source(path, heard) as source:
            shots = list(source.shots())
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
            count = len(list(source.shots()))
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
                    for _, shot in zip(range(100), source.shots(), strict=False):
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
        monkeypatch.setattr("os.access", lambda path, mode: False)  # tests may run as root, who may read all
        with pytest.raises(InputError, match="may not be used") as caught:
            open_source(Path("0"))
        assert "usermod" in caught.value.hints[0]

    def test_what_opencv_cannot_read_as_one_is_refused(self, devices: Path) -> None:
        (devices / "video0").touch()
        with pytest.raises(InputError, match="gives no image"):
            open_source(Path("0"))

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
    path = tmp_path / "film.mp4"
    path.write_text("the one before")
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

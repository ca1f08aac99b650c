"""Where images come from, told by content."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.films import moving, write_film
from support.notebook import Notebook

from edgedeploy.errors import InputError
from edgedeploy.vision import source as sources
from edgedeploy.vision.source import open_source

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

    @pytest.mark.parametrize(("content", "why"), [(b"", "empty"), (b"Dear reader,\n" * 99, "text")])
    @pytest.mark.parametrize("name", ["letter.mp4", "letter.txt", "letter.nfo"])
    def test_files_of_other_kinds_are_named(self, tmp_path: Path, name: str, content: bytes, why: str) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=why):
            open_source(tmp_path / name)

    def test_a_damaged_image_is_not_tried_as_a_video(self, tmp_path: Path) -> None:
        (tmp_path / "cut.png").write_bytes(DIGIT.read_bytes()[:60])
        with pytest.raises(InputError, match=r"cut\.png"):
            open_source(tmp_path / "cut.png")

    def test_a_missing_file_is_an_input_error(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="there is no image"):
            open_source(tmp_path / "none.png")

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
        assert [(shot.index, shot.file.name, int(shot.image[0, 0, 0])) for shot in shots] == [
            (0, "scan1.png", 1),
            (1, "scan2.png", 2),
            (2, "scan9.png", 9),
            (3, "scan10.png", 10),
            (4, "scan100.png", 100),
        ]
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
    def test_its_images_come_in_order(self, tmp_path: Path, suffix: str) -> None:
        images = [np.full((48, 64, 3), 20 * index, np.uint8) for index in range(10)]
        path = write_film(tmp_path / f"film{suffix}", images, rate=12.5).rename(tmp_path / "film")
        with open_source(path) as source:
            shots = list(source.shots())
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

    def test_a_whole_one_ends_without_a_note(self, tmp_path: Path, heard: Notebook) -> None:
        path = write_film(tmp_path / "film.mp4", moving(SCENE, 40, (48, 64), 2))
        with open_source(path, heard) as source:
            assert len(list(source.shots())) == 40
        assert heard.lines == []

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

    @pytest.mark.parametrize(
        "playlist",
        [
            "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{film}\n#EXT-X-ENDLIST\n",
            "ffconcat version 1.0\nfile {film}\n",
        ],
    )
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

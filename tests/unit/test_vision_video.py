"""Videos that are written: whole, playable, or not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.films import read_film

from edgedeploy.errors import InputError, OutputError
from edgedeploy.vision import video
from edgedeploy.vision.video import check_video_writable, video_file

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
    with (
        pytest.raises(OutputError, match="9000x10 pixels cannot be written as"),
        video_file(tmp_path / "film.mp4", 25) as write,
    ):
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
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert "the disk may be full" in done.stdout
    assert not list(tmp_path.iterdir())

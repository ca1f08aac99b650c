"""`edgedeploy demo` on folders, videos and cameras, and on what is wrong."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support.commands import output_of
from support.demo_runs import MODEL, ROOT, RunDemo
from support.films import read_film, write_film
from support.patience import generous

from edgedeploy.vision.image import read_image

DIGIT = cv2.imread(str(ROOT / "models" / "digit.png"))
PARTS = r"preprocess \d+\.\d\d ms, inference \d+\.\d\d ms, postprocess \d+\.\d\d ms"


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """Twelve images of the digit three, each a little to the right of the one before."""
    images = [np.roll(DIGIT, index, axis=1) for index in range(12)]
    return write_film(tmp_path / "three.avi", images)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    folder.mkdir()
    for number in (2, 10, 1):
        cv2.imwrite(str(folder / f"scan{number}.png"), np.roll(DIGIT, number, axis=1))
    (folder / "notes.txt").write_text("text")
    return folder


class TestVideo:
    def test_each_image_has_its_times_and_results_and_a_summary_follows(self, run_demo: RunDemo, film: Path) -> None:
        out = output_of(run_demo, "demo", "digits", "--image", str(film))
        head, *rest = re.split(r"^frame ", out, flags=re.MULTILINE)
        assert head.splitlines()[1:] == [f"model file : {MODEL}", f"image file : {film}"]
        assert len(rest) == 12
        for index, block in enumerate(rest):
            lines = block.splitlines()
            assert re.fullmatch(rf"{index}: {PARTS}", lines[0])
            assert re.fullmatch(r"0\.\d{6}, 3", lines[1])
            assert all(re.fullmatch(r"[01]\.\d{6}, \d", line) for line in lines[1:6])
        assert re.fullmatch(rf"12 frames in \d+\.\d\d s, \d+\.\d\d FPS; mean of each: {PARTS}", out.splitlines()[-1])

    def test_json_is_one_object_on_each_line_and_a_summary(self, run_demo: RunDemo, film: Path) -> None:
        code, out, err = run_demo("demo", "digits", "--image", str(film), "--json")
        assert (code, err) == (0, "")
        *frames, last = map(json.loads, out.splitlines())
        assert [each["frame"] for each in frames] == list(range(12))
        assert {each["results"][0]["label"] for each in frames} == {"3"}
        summary = last["summary"]
        assert (summary["frames"], summary["interrupted"], summary["image"]) == (12, False, str(film))
        for part in ("preprocess_ms", "inference_ms", "postprocess_ms"):
            assert summary[part] == pytest.approx(np.mean([each["times"][part] for each in frames]))
        assert summary["fps"] == pytest.approx(12 / summary["seconds"])

    def test_results_are_those_of_its_images_alone(self, run_demo: RunDemo, film: Path, tmp_path: Path) -> None:
        _, out, _ = run_demo("demo", "digits", "--image", str(film), "--json")
        for index, image in enumerate(read_film(film)[:3]):
            cv2.imwrite(str(tmp_path / "one.png"), image)
            _, alone, _ = run_demo("demo", "digits", "--image", "one.png", "--json")
            assert json.loads(out.splitlines()[index])["results"] == json.loads(alone)["results"]

    @pytest.mark.parametrize("suffix", [".mp4", ".avi"])
    def test_save_writes_a_labelled_video(self, run_demo: RunDemo, film: Path, tmp_path: Path, suffix: str) -> None:
        output_of(run_demo, "demo", "digits", "--image", str(film), "--save", f"out{suffix}")
        drawn, shown = read_film(tmp_path / f"out{suffix}"), read_film(film)
        assert len(drawn) == len(shown) == 12
        for one, other in zip(drawn, shown, strict=True):
            difference = np.abs(one.astype(int) - other).mean(axis=2)
            assert difference[:80].mean() > 4 * difference[100:].mean()  # the labels are listed at the top

    def test_frames_bounds_how_many_are_taken(self, run_demo: RunDemo, film: Path, tmp_path: Path) -> None:
        out = output_of(run_demo, "demo", "digits", "--image", str(film), "--frames", "5", "--save", "out.avi")
        assert out.count("frame ") == 5
        assert len(read_film(tmp_path / "out.avi")) == 5

    def test_all_demos_see_it(self, run_demo: RunDemo, film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from edgedeploy.demo.spec import DEMOS

        monkeypatch.setattr(type(DEMOS), "names", lambda catalog: ["digits", "digits"])
        out = output_of(run_demo, "demo", "all", "--image", str(film), "--frames", "2", "--json")
        assert ["summary" in json.loads(line) for line in out.splitlines()] == [False, False, True] * 2


class TestFolder:
    def test_each_image_has_its_times_and_results_below_one_head(self, run_demo: RunDemo, folder: Path) -> None:
        code, out, err = run_demo("demo", "digits", "--image", str(folder))
        assert (code, "passed over, being no images: notes.txt" in err) == (0, True), err
        head, *rest = re.split(r"^(?=scan)", out, flags=re.MULTILINE)
        assert head.splitlines()[1:] == [f"model file : {MODEL}", f"image file : {folder}"]
        assert [block.partition(":")[0] for block in rest] == ["scan1.png", "scan2.png", "scan10.png"]
        for block in rest:
            lines = block.splitlines()
            assert re.fullmatch(rf"scan\d+\.png: {PARTS}", lines[0])
            assert all(re.fullmatch(r"[01]\.\d{6}, \d", line) for line in lines[1:6])
        assert out.splitlines()[-1].startswith("3 frames in ")

    def test_in_tengines_log_each_image_is_told_as_if_it_came_alone(self, run_demo: RunDemo, folder: Path) -> None:
        out = run_demo("demo", "digits", "--image", str(folder), "--log", "tengine")[1]
        summary = out.split("\n\n")[-1]
        assert re.findall(r"image file : .*/(.*)", out) == ["scan1.png", "scan2.png", "scan10.png"]
        assert out.count("Repeat 1 times") == 3
        assert summary.startswith("3 frames in ")

    def test_its_network_is_built_once(self, run_demo: RunDemo, folder: Path, built: list[dict[str, Any]]) -> None:
        run_demo("demo", "digits", "--image", str(folder))
        assert len(built) == 1

    def test_json_names_the_image_of_each_line(self, run_demo: RunDemo, folder: Path) -> None:
        _, out, _ = run_demo("demo", "digits", "--image", str(folder), "--json")
        *frames, last = map(json.loads, out.splitlines())
        assert [Path(each["image"]).name for each in frames] == ["scan1.png", "scan2.png", "scan10.png"]
        assert last["summary"]["image"] == str(folder)

    def test_save_keeps_the_names_of_a_folders_images(self, run_demo: RunDemo, folder: Path, tmp_path: Path) -> None:
        (folder / "scan1.png").rename(folder / "scan1.dat")
        output_of(run_demo, "demo", "digits", "--image", str(folder), "--save", "seen")
        assert {path.name for path in (tmp_path / "seen").iterdir()} == {"scan1.dat.png", "scan2.png", "scan10.png"}
        enlarged = read_image(folder / "scan2.png").repeat(2, axis=0).repeat(2, axis=1)
        assert 0 < (read_image(tmp_path / "seen" / "scan2.png") != enlarged).mean() < 0.5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("retinafase", 4, "did you mean retinaface"),
        ("digits --model digitz", 4, "unknown model 'digitz'"),
        ("digits --image none.png", 7, "there is no image none.png"),
        ("digits --image letter.png", 7, "it is text"),
        ("digits --save out.txt", 7, ".txt names no image format"),
        ("digits --save letter.png/out.png", 10, "is not a folder"),
        ("all --model digits", 7, "--model needs one demo"),
        ("digits --repeat 0", 2, "repeat"),
        ("digits --image three.avi --save out.png", 7, ".png names no kind of video"),
        ("digits --image three.avi --save three.avi", 7, "would overwrite what is shown"),
        ("digits --image three.avi --save three.avi/out.mp4", 10, "is not a folder"),
        ("digits --image three.avi --repeat 3", 7, "--repeat needs a single image"),
        ("digits --image three.avi --frames 0", 2, "frames"),
        ("digits --image scans --save scans", 7, "would overwrite what is shown"),
        ("digits --image scans --save three.avi", 10, "into a folder, and this is a file"),
        ("digits --image empty", 7, "it is empty"),
        ("digits --image 9999", 7, "there is no camera /dev/video9999"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_input_ends_before_anything_is_built(
    run_demo: RunDemo, built: list[dict[str, Any]], film: Path, tmp_path: Path, arguments: str, code: int, message: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "letter.png").write_text("Dear reader,\n")
    before = film.read_bytes()
    ended, out, err = run_demo("demo", *arguments.split())
    assert (ended, out) == (code, "")
    assert message in " ".join(err.split())
    assert built == []
    assert film.read_bytes() == before


def test_ctrl_c_ends_with_the_summary_and_a_video_that_plays(tmp_path: Path) -> None:
    # More than fits into a pipe that nobody reads: it cannot end before it is interrupted.
    film = write_film(tmp_path / "long.avi", [DIGIT] * 3000)
    command = [sys.executable, "-m", "edgedeploy", "demo", "digits", "--image", film, "--save", "out.mp4"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        assert process.stdout
        for line in process.stdout:
            if line.startswith("frame 5:"):
                break
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=generous(60))
    assert process.returncode == 130
    *_, summary = rest.splitlines()
    count = int(summary.split()[0])
    assert 6 <= count < 3000
    assert max([5, *map(int, re.findall(r"^frame (\d+):", rest, re.MULTILINE))]) == count - 1
    assert len(read_film(tmp_path / "out.mp4")) == count
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.avi", "out.mp4"]

"""`edgedeploy demo` on images, folders and videos, on networks of the user's own, and on what is wrong."""

import json
import os
import re
import signal
import sys
import wave
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from conftest import Command
from onnx import helper
from support.commands import generous, json_of, output_of, refused, refused_alone, started
from support.demo_runs import MODEL, ROOT, RunDemo
from support.networks import Graph, begun, tiny
from support.recordings import read_film, write_film

from edgedeploy.base import catalog
from edgedeploy.demo import spec
from edgedeploy.demo.spec import all_demos
from edgedeploy.vision.image import read_image


def masked(text: str) -> str:
    return re.sub(r"\d+\.\d+ ms", "# ms", text)


def test_without_a_name_the_demos_are_listed(run_demo: RunDemo) -> None:
    names = [each["name"] for each in json_of(run_demo, "demo")]
    assert {"classification", "digits", "landmark", "retinaface", "yolo-fastest"} <= set(names)
    out = output_of(run_demo, "demo")
    assert all(name in out for name in names)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("squeezenet_v1.1-onnx", "try: edgedeploy demo classification --model squeezenet_v1.1-onnx"),
        (str(MODEL), f"try: edgedeploy demo DEMO --model {MODEL}"),
    ],
)
def test_a_network_in_the_place_of_a_demo_is_told_which_demo_takes_it(run_demo: RunDemo, name: str, hint: str) -> None:
    code, _, err = run_demo("demo", name)
    assert (code, f"there is no demo '{name}'" in err, hint in err) == (4, True, True)
    assert f"try: edgedeploy run {name}" in err
    assert "is a network" not in run_demo("demo", "no-such-thing")[2]


def test_the_log_goes_to_standard_output(run_demo: RunDemo) -> None:
    code, out, err = run_demo("demo", "digits", "-r", "3")
    assert (code, err) == (0, "")
    lines = masked(out).splitlines()
    assert lines[0].startswith("edgedeploy ")
    assert lines[1:3] == ["", f"model file : {MODEL}"]
    assert re.fullmatch(r"image file : .*/digit\.png", lines[3])
    assert lines[4] == "img_h, img_w, scale[1], mean[1] : 16 16 , 0.004, 0.0"
    assert lines[5] == "Repeat 3 times, thread 1, avg time # ms, max_time # ms, min_time # ms"
    assert lines[6] == lines[-1] == "-" * 38
    assert re.fullmatch(r"0\.9\d{5}, 3", lines[7])
    assert len(lines) == 13


def test_json_has_the_results_and_the_times(run_demo: RunDemo) -> None:
    result = json.loads(output_of(run_demo, "demo", "digits", "--json", "--repeat", "2"))
    assert [result[key] for key in ("task", "model", "board")] == ["digits", "digits", "local"]
    assert result["image"].endswith("digit.png")
    assert set(result["times"]) == {"min_ms", "median_ms", "mean_ms", "max_ms", "std_ms"}
    assert len(result["results"]) == 5
    best = result["results"][0]
    assert (best["label"], best["class_id"], best["box"], best["points"]) == ("3", 3, None, [])


def test_another_network_of_the_task_brings_its_own_image(run_demo: RunDemo, built: list[dict[str, Any]]) -> None:
    out = output_of(run_demo, "demo", "classification", "--model", "digits", "--board", "rpi4", "-t", "2")
    assert "digit.png" in out
    assert "thread 2" in out
    assert (built[0]["model"], built[0]["board"], built[0]["threads"]) == ("digits", "rpi4", 2)


@pytest.mark.parametrize("open_shape", [False, True])
def test_a_network_in_a_file_is_fed_like_the_demos_own_and_takes_its_shape_where_it_leaves_that_open(
    run_demo: RunDemo, built: list[dict[str, Any]], tmp_path: Path, open_shape: bool
) -> None:
    model = onnx.load(MODEL)
    if open_shape:
        for dimension in model.graph.input[0].type.tensor_type.shape.dim:
            dimension.dim_param = "any"
    onnx.save(model, tmp_path / "mine.onnx")
    assert re.search(r"0\.9\d{5}, 3", output_of(run_demo, "demo", "digits", "--model", "mine.onnx"))
    assert built[0]["input_shapes"] == ({"data": [1, 1, 16, 16]} if open_shape else {})


def test_save_writes_the_image_with_its_results(run_demo: RunDemo, tmp_path: Path) -> None:
    code, _, err = run_demo("demo", "digits", "--save", "out.png")
    assert (code, "the results are drawn in out.png" in err) == (0, True), err
    image = read_image(tmp_path / "out.png")
    assert image.shape == (320, 320, 3)  # of 160 x 160: enlarged, so that there is room for letters
    assert (image[..., 1] > image[..., 2]).any()  # the green ground of the labels, on a grey image


def test_a_network_for_another_task_is_refused_unopened(run_demo: RunDemo, built: list[dict[str, Any]]) -> None:
    image = str(ROOT / "models" / "digit.png")
    err = refused(run_demo, 7, "demo", "yolo-fastest", "--model", "digits", "--image", image)
    assert "no output 'output0', only prob" in err
    assert "threads" not in built[0]


class TestAll:
    """`demo all`, on two sound demos and, between them, one whose image is missing."""

    @pytest.fixture(autouse=True)
    def _demos(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        data = tmp_path / "data"
        (data / "demos").mkdir(parents=True)
        for folder in ("boards", "models"):
            (data / folder).symlink_to(ROOT / folder)
        text = (ROOT / "demos" / "digits.yaml").read_text()
        for name, image in [("first", "digit.png"), ("gone", "gone.png"), ("last", "digit.png")]:
            (data / "demos" / f"{name}.yaml").write_text(text.replace("digit.png", image))
        monkeypatch.setattr(catalog, "builtin_folder", lambda: data)
        monkeypatch.setattr(catalog, "user_folder", lambda: tmp_path / "none")
        monkeypatch.delenv("EDGEDEPLOY_MODELS", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def test_what_cannot_be_had_is_listed_at_the_end(self, run_demo: RunDemo) -> None:
        code, out, err = run_demo("demo", "all")
        assert code == 0
        table, reason = err.partition("demo ")[2].split("gone unavailable: ")
        rows = [line.split() for line in table.splitlines()[1:]]
        assert rows == [["first", "shown"], ["gone", "unavailable"], ["last", "shown"]]
        assert reason.startswith("there is no file")
        assert "gone.png" in reason
        first, last = out.split("\n\nedgedeploy ")
        assert "edgedeploy " + masked(last) == masked(first) + "\n"

    def test_json_is_a_list_with_those_that_failed(self, run_demo: RunDemo) -> None:
        found = json_of(run_demo, "demo", "all")
        states = [(each["task"], each.get("state")) for each in found]
        assert states == [("first", None), ("gone", "unavailable"), ("last", None)]

    def test_a_fault_gives_the_exit_code(self, run_demo: RunDemo, tmp_path: Path) -> None:
        (tmp_path / "data" / "demos" / "gone.yaml").write_text("no: demo\n")
        code, out, err = run_demo("demo", "all")
        assert (code, out.count("edgedeploy ")) == (3, 2)
        assert "gone failed: " in err

    def test_each_demo_saves_an_image_of_its_own(self, run_demo: RunDemo, tmp_path: Path) -> None:
        run_demo("demo", "all", "--save", "out.png")
        assert sorted(path.name for path in tmp_path.glob("*.png")) == ["out-first.png", "out-last.png"]


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("named", "first_hint"),
    [
        ([], "run it on this machine: --board local"),
        (["--board", "rpi4"], "check that it is switched on and runs an SSH server"),
        (["--host", "pi@127.0.0.1:1"], "check that it is switched on and runs an SSH server"),
    ],
    ids=["nothing", "board", "host"],
)
def test_unless_a_board_is_named_the_first_hint_is_local(run_demo: RunDemo, named: list[str], first_hint: str) -> None:
    Path("dist/rpi4").mkdir(parents=True)
    Path("dist/rpi4/any.tar.gz").touch()
    Path("edgedeploy.toml").write_text('[hosts]\nrpi4 = "pi@127.0.0.1:1"\n')
    err = refused(run_demo, 13, "demo", "digits", "--camera", "auto", *named)
    assert err.split("  try: ")[1] == f"{first_hint}\n"


# What is wrong with what a demo is given is said before anything is built.

IMAGES = ["depth", "face-mesh", "hands", "ocr", "pose", "segmentation", "yolo"]
SOUNDS = ["voice-activity", "wake-word"]
DEMOS = [*IMAGES, *SOUNDS]


def given(demo: str) -> str:
    return "--wav" if demo in SOUNDS else "--image"


def ended_early(command: Command, *arguments: object) -> str:
    """What is said; it is a typed error, and nothing was built."""
    code, out, err = command("demo", *arguments, "--board", "local")
    assert code in range(4, 30), err
    assert out == ""
    assert "error: " in err
    assert "Traceback" not in err
    assert "building" not in err
    return err


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return tiny(tmp_path / "net.onnx")


def needed(demo: str, network: Path) -> list[object]:
    """These have no network of their own."""
    return ["--model", network] if demo in ("depth", "segmentation", "yolo") else []


@pytest.mark.parametrize("demo", DEMOS)
@pytest.mark.parametrize(("name", "why"), [("absent.bin", "there is no|No such file"), ("text.png", "")])
def test_a_file_that_is_not_there_or_of_another_kind(
    demo: str, name: str, why: str, command: Command, network: Path
) -> None:
    Path("text.png").write_text("no image and no sound\n" * 100)
    err = ended_early(command, demo, *needed(demo, network), given(demo), name)
    assert name in err
    assert re.search(why, err)


@pytest.mark.parametrize("demo", DEMOS)
@pytest.mark.parametrize("name", ["absent.onnx", "./absent", "no-such-network"])
def test_a_network_that_is_not_there(demo: str, name: str, command: Command) -> None:
    err = ended_early(command, demo, "--model", name)
    assert ("unknown model" if name == "no-such-network" else f"there is no file {name}") in err


@pytest.mark.parametrize("demo", IMAGES)
def test_a_network_that_is_cut_off(demo: str, command: Command, network: Path) -> None:
    content = network.read_bytes()
    Path("cut.onnx").write_bytes(content[: len(content) // 2])
    cv2.imwrite("image.png", np.zeros((32, 32, 3), np.uint8))
    assert "cut.onnx" in ended_early(command, demo, "--model", "cut.onnx", "--image", "image.png")


@pytest.mark.parametrize("demo", SOUNDS)
def test_a_sound_whose_header_is_cut_off(demo: str, command: Command) -> None:
    with wave.open("whole.wav", "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", "not compressed"))
        sound.writeframes(np.zeros(100, np.int16).tobytes())
    Path("cut.wav").write_bytes(Path("whole.wav").read_bytes()[:20])
    assert "cut.wav" in ended_early(command, demo, "--wav", "cut.wav")


# `edgedeploy demo` on folders, videos and cameras, and on what is wrong.

DIGIT = cv2.imread(str(ROOT / "models" / "digit.png"))
PARTS = r"preprocess \d+\.\d\d ms, inference \d+\.\d\d ms, postprocess \d+\.\d\d ms"


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """Twelve images of the digit three, each a little to the right of the one before."""
    return write_film(tmp_path / "three.avi", [np.roll(DIGIT, index, axis=1) for index in range(12)])


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
        monkeypatch.setattr(type(spec.DEMOS), "names", lambda catalog: ["digits", "digits"])
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

    def test_json_names_the_image_of_each_line_and_the_network_is_built_once(
        self, run_demo: RunDemo, folder: Path, built: list[dict[str, Any]]
    ) -> None:
        _, out, _ = run_demo("demo", "digits", "--image", str(folder), "--json")
        assert len(built) == 1
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
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with started(*command, cwd=tmp_path, stdout=PIPE, stderr=DEVNULL, text=True, env=environment) as process:
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


# Demos whose network is the user's: what its file says travels through the package to the results.


YOURS = ["depth", "segmentation", "yolo"]


def save(path: Path, graph: Graph, **said: Any) -> Path:
    """A network whose last node gives `output0`, and what its file says of it."""
    graph.nodes[-1].output[0] = "output0"
    model = graph.model("output0")
    helper.set_model_props(model, {key: str(value) for key, value in said.items()})
    onnx.save(model, path)
    return path


SAID = {"task": "detect", "names": {0: "red", 1: "green", 2: "blue"}, "stride": 32}


def tells_colours(path: Path, *sides: int | str, **said: Any) -> Path:
    """A detector of one place, (32, 32) with sides of 16 and 8, whose classes are red, green and blue: the means."""
    graph, images = begun(1, 3, *(sides or (64, 64)))
    boxes = np.zeros((1, 4, 84), np.float32)
    boxes[0, :, 5] = [32, 32, 16, 8]
    column = graph.reshape(graph.node("GlobalAveragePool", images), 1, 3, 1)
    scores = graph.node("Mul", column, graph.weight(boxes.any(axis=1, keepdims=True).astype(np.float32)))
    graph.node("Concat", graph.weight(boxes), scores, axis=1)
    return save(path, graph, **{**SAID, **said})


def suppresses_itself(path: Path) -> Path:
    """As `tells_colours`, in rows of corners, score and class that the network itself has picked."""
    graph, images = begun(1, 3, 64, 64)
    rows = np.zeros((3, 6), np.float32)
    rows[:, :4], rows[:, 5] = [24, 28, 40, 36], [0, 1, 2]
    means = graph.node("GlobalAveragePool", images)
    there = graph.node("Mul", graph.reshape(means, 3, 1), graph.weight(np.float32([[0, 0, 0, 0, 1, 0]])))
    scored = graph.node("Add", graph.weight(rows), there)
    high = graph.node("Greater", graph.reshape(means, 3), graph.weight(np.float32(0.1)))
    indices = graph.node("Transpose", graph.node("NonZero", high), perm=[1, 0])
    found = graph.node("GatherND", scored, indices)
    padded = graph.node("ScatterND", graph.weight(np.zeros((3, 6), np.float32)), indices, found)
    graph.reshape(padded, 1, 3, 6)
    return save(path, graph, **SAID)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """128 x 128 pixels of nearly pure green."""
    image = np.zeros((128, 128, 3), np.uint8)
    image[...] = (0, 204, 51)
    cv2.imwrite(str(tmp_path / "green.png"), image)
    return tmp_path / "green.png"


@pytest.mark.parametrize("name", YOURS)
def test_without_a_network_they_say_what_they_need(command: Command, name: str) -> None:
    for more in ([], ["--weights", "random"]):
        err = refused_alone(command, 5, "demo", name, *more)
        assert "stands for a network of your own" in err
        assert "--model FILE" in err
    assert "AGPL" in command("demo", "yolo")[2]
    assert "yolo export model=yolo11n.pt format=onnx" in command("demo", "yolo")[2]


def test_they_are_left_out_where_all_demos_are_shown() -> None:
    assert not set(YOURS) & {*all_demos(), *all_demos("random")}


def test_the_zoo_lists_what_stands_for_them_as_yours_which_cannot_be_built(command: Command) -> None:
    assert "stands for a network of your own" in refused(command, 5, "build", "ultralytics", "--weights", "random")
    entries = {each["name"]: each for each in json_of(command, "models")}
    assert entries["ultralytics"]["state"] == "yours"


@pytest.mark.compiles
@pytest.mark.parametrize("open_sides", [False, True])
def test_classes_task_and_size_are_the_files_own(
    command: Command, tmp_path: Path, picture: Path, open_sides: bool
) -> None:
    model = tells_colours(tmp_path / "net.onnx", *(["height", "width"] if open_sides else []), imgsz=[64, 64])
    options = ["--model", model, "--image", picture, "--board", "local"]
    [found] = json_of(command, "demo", "yolo", *options)["results"]
    assert (found["label"], found["class_id"]) == ("green", 1)
    assert found["score"] == pytest.approx(0.8, abs=1e-5)
    # The image is twice as large as the input.
    assert found["box"] == pytest.approx([48, 56, 80, 72])
    out = output_of(command, "demo", "yolo", *options, "--save", "seen.png")
    assert out.splitlines()[-2:] == ["detection num: 1", " 1:  80%, [  48,   56,   80,   72], green"]
    assert (cv2.imread("seen.png") != cv2.imread(str(picture)).repeat(3, axis=0).repeat(3, axis=1)).any()
    if not open_sides:
        assert command("build", model, "--board", "local")[0] == 0
        shown = json.loads(command("package", "show", "dist/local/net.tar.gz", "--json")[1])
        assert shown["metadata"]["names"] == "{0: 'red', 1: 'green', 2: 'blue'}"
        assert "task  detect" in command("package", "show", "dist/local/net.tar.gz")[1]


@pytest.mark.compiles
def test_networks_that_suppress_boxes_themselves(command: Command, tmp_path: Path, picture: Path) -> None:
    network = suppresses_itself(tmp_path / "net.onnx")
    [box] = json_of(command, "demo", "yolo", "--model", network, "--image", picture)["results"]
    assert (box["label"], box["box"]) == ("green", [48, 56, 80, 72])


@pytest.mark.compiles
def test_metadata_that_makes_no_sense_is_a_typed_error(command: Command, tmp_path: Path, picture: Path) -> None:
    model = tells_colours(tmp_path / "net.onnx", names="{0: __import__('os')}")
    err = refused_alone(command, 5, "demo", "yolo", "--model", model, "--image", picture, "--board", "local")
    assert "the entry 'names' of the network's metadata cannot be read" in err


@pytest.mark.compiles
def test_segmentation_and_depth_of_a_network_that_returns_its_input(
    command: Command, tmp_path: Path, picture: Path
) -> None:
    graph, images = begun(1, 3, 64, 64)
    graph.node("Mul", images, graph.weight(np.array([2], np.float32)))
    whole = save(tmp_path / "whole.onnx", graph)
    options = ["--image", picture, "--board", "local"]
    [found] = json_of(command, "demo", "segmentation", "--model", whole, *options)["results"]
    assert (found["label"], found["class_id"]) == ("aeroplane", 1)  # VOC's class 1: green is the largest
    assert found["mask"] == {"size": [128, 128], "counts": [0, 128 * 128]}
    graph, images = begun(1, 3, 64, 64)
    graph.node("ReduceMean", images, axes=[1])
    one = save(tmp_path / "one.onnx", graph)
    [found] = json_of(command, "demo", "depth", "--model", one, *options, "--save", "depth.png")["results"]
    expected = np.mean([(51 - 123.675) / 58.395, (204 - 116.28) / 57.12, (0 - 103.53) / 57.375])
    assert found["surface"] == pytest.approx(dict.fromkeys(("minimum", "median", "maximum"), expected), abs=1e-5)
    assert cv2.imread("depth.png").shape == (384, 384, 3)  # enlarged by three

"""`edgedeploy demo`, with the bundled network on onnxruntime in the place of a compiled one, and wrong inputs."""

from __future__ import annotations

import json
import re
import shutil
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import Command
from support.commands import output_of
from support.demo_runs import MODEL, ROOT, RunDemo
from support.networks import tiny

from edgedeploy.base import catalog
from edgedeploy.vision.image import read_image


def masked(text: str) -> str:
    return re.sub(r"\d+\.\d+ ms", "# ms", text)


def test_without_a_name_the_demos_are_listed(run_demo: RunDemo) -> None:
    names = [each["name"] for each in json.loads(output_of(run_demo, "demo", "--json"))]
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


def test_a_network_in_a_file_is_fed_like_the_demos_own(run_demo: RunDemo, tmp_path: Path) -> None:
    shutil.copy(MODEL, tmp_path / "mine.onnx")
    assert re.search(r"0\.9\d{5}, 3", output_of(run_demo, "demo", "digits", "--model", "mine.onnx"))


@pytest.mark.parametrize("open_shape", [False, True])
def test_a_file_that_leaves_its_shape_open_takes_that_of_the_demos_own(
    run_demo: RunDemo, built: list[dict[str, Any]], tmp_path: Path, open_shape: bool
) -> None:
    model = onnx.load(MODEL)
    if open_shape:
        for dimension in model.graph.input[0].type.tensor_type.shape.dim:
            dimension.dim_param = "any"
    onnx.save(model, tmp_path / "mine.onnx")
    output_of(run_demo, "demo", "digits", "--model", "mine.onnx")
    assert built[0]["input_shapes"] == ({"data": [1, 1, 16, 16]} if open_shape else {})


def test_save_writes_the_image_with_its_results(run_demo: RunDemo, tmp_path: Path) -> None:
    code, _, err = run_demo("demo", "digits", "--save", "out.png")
    assert (code, "the results are drawn in out.png" in err) == (0, True), err
    image = read_image(tmp_path / "out.png")
    assert image.shape == (320, 320, 3)  # of 160 x 160: enlarged, so that there is room for letters
    assert (image[..., 1] > image[..., 2]).any()  # the green ground of the labels, on a grey image


def test_a_network_for_another_task_is_refused_unopened(run_demo: RunDemo, built: list[dict[str, Any]]) -> None:
    image = str(ROOT / "models" / "digit.png")
    code, _, err = run_demo("demo", "yolo-fastest", "--model", "digits", "--image", image)
    assert (code, "no output 'output0', only prob" in err) == (7, True), err
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
        assert [line.split() for line in table.splitlines()[1:]] == [
            ["first", "shown"],
            ["gone", "unavailable"],
            ["last", "shown"],
        ]
        assert reason.startswith("there is no file")
        assert "gone.png" in reason
        first, last = out.split("\n\nedgedeploy ")
        assert "edgedeploy " + masked(last) == masked(first) + "\n"

    def test_json_is_a_list_with_those_that_failed(self, run_demo: RunDemo) -> None:
        found = json.loads(output_of(run_demo, "demo", "all", "--json"))
        assert [(each["task"], each.get("state")) for each in found] == [
            ("first", None),
            ("gone", "unavailable"),
            ("last", None),
        ]

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
    code, _, err = run_demo("demo", "digits", "--camera", "auto", *named)
    assert code == 13
    assert err.split("  try: ")[1] == f"{first_hint}\n"


# Whatever is wrong with what a demo is given, it ends with an error that says so, before anything is built.

IMAGES = ["depth", "face-mesh", "hands", "ocr", "pose", "segmentation", "yolo"]
SOUNDS = ["voice-activity", "wake-word"]
DEMOS = [*IMAGES, *SOUNDS]


def given(demo: str) -> str:
    return "--wav" if demo in SOUNDS else "--image"


def refused(command: Command, *arguments: object) -> str:
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
def test_a_file_that_is_not_there(demo: str, command: Command, network: Path) -> None:
    err = refused(command, demo, *needed(demo, network), given(demo), "absent.bin")
    assert "absent.bin" in err
    assert "there is no" in err or "No such file" in err


@pytest.mark.parametrize("demo", DEMOS)
def test_a_file_of_another_kind(demo: str, command: Command, network: Path) -> None:
    Path("text.png").write_text("no image and no sound\n" * 100)
    assert "text.png" in refused(command, demo, *needed(demo, network), given(demo), "text.png")


@pytest.mark.parametrize("demo", DEMOS)
@pytest.mark.parametrize("name", ["absent.onnx", "./absent", "no-such-network"])
def test_a_network_that_is_not_there(demo: str, name: str, command: Command) -> None:
    err = refused(command, demo, "--model", name)
    assert ("unknown model" if name == "no-such-network" else f"there is no file {name}") in err


@pytest.mark.parametrize("demo", IMAGES)
def test_a_network_that_is_cut_off(demo: str, command: Command, network: Path) -> None:
    content = network.read_bytes()
    Path("cut.onnx").write_bytes(content[: len(content) // 2])
    assert "cut.onnx" in refused(command, demo, "--model", "cut.onnx", "--image", image())


@pytest.mark.parametrize("demo", SOUNDS)
def test_a_sound_whose_header_is_cut_off(demo: str, command: Command) -> None:
    with wave.open("whole.wav", "wb") as sound:
        sound.setparams((1, 2, 16000, 0, "NONE", "not compressed"))
        sound.writeframes(np.zeros(100, np.int16).tobytes())
    Path("cut.wav").write_bytes(Path("whole.wav").read_bytes()[:20])
    assert "cut.wav" in refused(command, demo, "--wav", "cut.wav")


def image() -> Path:
    import cv2

    cv2.imwrite("image.png", np.zeros((32, 32, 3), np.uint8))
    return Path("image.png")

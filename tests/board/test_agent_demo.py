"""`agent demo` on boards, alone and watched from here: what docs/agent.md and docs/camera.md promise."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import ROOT, Command
from support.agents import call, command_of, digits, digits_with_use, messages, unpack
from support.commands import executable, generous, json_of, output_of, refused, runs, started, until
from support.demo_runs import masked
from support.recordings import read_film
from support.services import BASE
from support.virtual_boards import Bench, Start, root_of, rpicam

from edgedeploy.demo.board_camera import AgentDemo
from edgedeploy.demo.program import Program
from edgedeploy.errors import InputError, ReleaseError
from edgedeploy.release.layout import folder_of
from edgedeploy.virtual.board import down
from edgedeploy.vision.image import read_image

DIGIT = Program.of("digits").image().absolute()
HEIGHT, WIDTH = 480, 640
AGENT = f"{BASE}/releases/digits/current/agent"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_with_use(tmp_path_factory.mktemp("archive") / "digits.tar.gz")


@pytest.fixture(scope="module")
def for_rpi4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_with_use(tmp_path_factory.mktemp("rpi4") / "digits.tar.gz", "rpi4")


@pytest.fixture
def package(archive: Path, tmp_path: Path) -> Path:
    return unpack(archive, tmp_path / "package")


def jpeg_of(path: Path, target: Path) -> Path:
    cv2.imwrite(str(target), read_image(path))
    return target


def test_the_log_is_the_hosts(agent: Path, package: Path, command: Command) -> None:
    done = call(agent, "demo", package, "--image", DIGIT)
    assert done.returncode == 0, done.stderr.decode()
    assert masked(done.stdout.decode()) == masked(output_of(command, "demo", "digits", "--board", "local"))
    assert "0.998865, 3" in done.stdout.decode()


def test_several_images_are_shown_in_turn(agent: Path, package: Path, command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    images = [shutil.copy(DIGIT, folder / "1.png"), jpeg_of(DIGIT, folder / "2.jpg")]
    (tmp_path / "none.png").write_bytes(b"no image")
    done = call(agent, "demo", package, "--image", images[0], tmp_path / "none.png", images[1])
    assert done.returncode == 0
    assert done.stderr.decode().startswith("agent: passed over: ")
    *log, there = re.sub(r"capture [\d.]+ ms, ", "", done.stdout.decode()).splitlines()
    *wanted, here = output_of(command, "demo", "digits", "--board", "local", "--image", folder).splitlines()
    assert masked("\n".join(log)) == masked("\n".join(wanted))
    assert re.match(r"2 frames in [\d.]+ s, [\d.]+ FPS; mean of each: preprocess ", there)
    assert here.startswith("2 frames in ")


def test_lines_of_json_say_what_the_host_says(agent: Path, package: Path, command: Command) -> None:
    done = call(agent, "demo", package, "--image", DIGIT, "--json", "--repeat", 3)
    [(hello, _), (frame, _), (last, _)] = messages(done.stdout)
    assert (hello["ready"], hello["model"], hello["task"], hello["kind"]) == (True, "digits", "digits", "images")
    wanted = json_of(command, "demo", "digits", "--board", "local")
    for there, here in zip(frame["results"], wanted["results"], strict=True):
        assert (there["class_id"], there["label"]) == (here["class_id"], here["label"])
        assert there["score"] == pytest.approx(here["score"], rel=1e-5)
    assert (frame["frame"], frame["height"], frame["width"]) == (0, *read_image(DIGIT).shape[:2])
    times = frame["times"]
    assert len(times["runs_ms"]) == 3
    assert all(times[f"{part}_ms"] >= 0 for part in ("capture", "preprocess", "inference", "postprocess"))
    assert last["summary"]["frames"] == 1
    assert not last["summary"]["interrupted"]


def test_a_stream_has_each_image_as_jpeg(agent: Path, package: Path, tmp_path: Path) -> None:
    jpeg = jpeg_of(DIGIT, tmp_path / "3.jpg")
    done = call(agent, "demo", package, "--image", DIGIT, jpeg, "--stream")
    [_, (_, encoded), (second, same), _] = messages(done.stdout)
    assert same == jpeg.read_bytes()
    assert second["bytes"] == len(same)
    near = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(near.astype(int) - read_image(DIGIT)).mean() < 8


def test_a_line_is_never_longer_than_readers_expect(agent: Path, package: Path) -> None:
    """Results that have no room are left out, and counted."""
    path = package / "manifest.json"
    content = json.loads(path.read_text())
    content["usage"]["labels"] = [f"{number}" * 20_000 for number in range(10)]
    path.write_text(json.dumps(content))
    frame, _ = messages(call(agent, "demo", package, "--image", DIGIT, "--json").stdout)[1]
    assert [each["class_id"] for each in frame["results"]] == [3, 9]
    assert frame["left_out"] == 3


@pytest.fixture
def endless(agent: Path, package: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The agent with a camera in front of which a digit lies, after its first image."""
    image = cv2.resize(read_image(DIGIT), (WIDTH, HEIGHT))
    (tmp_path / "frame").write_bytes(cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420).tobytes())
    endlessly = f"echo $$ >{tmp_path}/pid\nwhile cat {tmp_path}/frame 2>{tmp_path}/said; do sleep 0.05; done"
    executable(tmp_path / "rpicam-vid", endlessly)
    command = [agent, "demo", package, "--camera", "rpicam", "--json"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with started(*command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert json.loads(process.stdout.readline())["kind"] == "camera"
        assert json.loads(process.stdout.readline())["results"][0]["class_id"] == 3
        yield process
    until(lambda: not runs(int((tmp_path / "pid").read_text())), 5)  # the camera's program


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_ends_a_camera_gets_its_summary(endless: subprocess.Popen[bytes], number: signal.Signals) -> None:
    endless.send_signal(number)
    output, _ = endless.communicate(timeout=generous(20))
    summary = json.loads(output.splitlines()[-1])["summary"]
    assert summary["interrupted"]
    assert summary["frames"] >= 1
    assert summary["fps"] > 0
    assert endless.returncode == 0


def test_a_demo_whose_reader_is_gone_ends(endless: subprocess.Popen[bytes]) -> None:
    endless.stdout.close()
    assert endless.wait(generous(20)) == 10


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ([], 2, "there must be one model or package"),
        (["digits"], 2, "give either --image FILE... or --camera"),
        (["digits", "--image", "a.jpg", "--camera"], 2, "give either --image FILE... or --camera"),
        (["digits", "--camera", "--size", "0x3"], 2, "is not a size"),
        (["digits", "--camera", "--json=1"], 2, "option --json has no value"),
        (["digits", "--camera", "--repeat", "2"], 2, "--repeat needs a single image"),
        (["of-nobody", "--camera"], 8, "there is no release"),
        (["../digits", "--camera"], 8, "there is no release"),
        (["a b", "--camera"], 2, "not a model name"),
        (["PACKAGE", "--image", "none.jpg"], 7, "cannot read the image none.jpg"),
        (["PACKAGE", "--camera", "/dev/none"], 7, "there is no camera /dev/none"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_what_cannot_be_shown_is_refused(agent: Path, package: Path, words: list[str], code: int, why: str) -> None:
    done = call(agent, "demo", *(package if word == "PACKAGE" else word for word in words))
    message = done.stderr.decode()
    assert done.returncode == code, message
    assert why in message
    assert done.stdout == b""


def test_a_package_that_does_not_say_its_use_is_refused(agent: Path, tmp_path: Path) -> None:
    done = call(agent, "demo", unpack(digits(tmp_path / "plain.tar.gz"), tmp_path / "plain"), "--image", DIGIT)
    assert done.returncode == 7
    assert "build it with --demo NAME" in done.stderr.decode()


@pytest.mark.parametrize("board", ["rpi4", pytest.param("rpi-armhf", marks=pytest.mark.slow)])
def test_an_emulated_board_agrees(start: Start, command: Command, for_rpi4: Path, tmp_path: Path, board: str) -> None:
    """The agent and the package are copied there; JPEG and PNG are read by the board's own libraries."""
    images = {"digit.png": DIGIT, "digit.jpg": jpeg_of(DIGIT, tmp_path / "digit.jpg")}
    shown = ("demo", "digits", "--board", "local", "--image")
    here = {name: output_of(command, *shown, image) for name, image in images.items()}
    *_, agent = command_of(board)
    with ExitStack() as stack:
        virtual = start(board)
        stack.callback(down, virtual)  # it is none of the session's: `command` has user folders of its own
        home = root_of(virtual) / "opt" / "seen"
        home.mkdir(parents=True)
        archive = for_rpi4 if board == "rpi4" else digits_with_use(tmp_path / "digits.tar.gz", board)
        package = unpack(archive, home / "digits")
        shutil.copy(agent, package / "agent")
        for name, image in images.items():
            shutil.copy(image, home / name)
        bench = stack.enter_context(Bench(virtual, Path(agent), package, package, start, board))
        for name, wanted in here.items():
            log = bench.say(f"cd /opt/seen && ./digits/agent demo ./digits --image {name}")
            assert masked(log) == masked(wanted).rstrip("\n")


def test_an_image_that_needs_a_library_that_is_missing_says_which(for_rpi4: Path, tmp_path: Path) -> None:
    """Debian's C library for the emulator brings no libpng."""
    package = unpack(for_rpi4, tmp_path / "package")
    emulator, *options = command_of("rpi4")
    done = call(Path(emulator), *options, "demo", package, "--image", DIGIT)
    assert done.returncode == 7
    assert "sudo apt install libpng16-16" in done.stderr.decode()


@pytest.fixture
def camera(bench: Bench) -> Iterator[np.ndarray]:
    """A digit in front of the board's camera, as OpenCV sees it; in the end nothing looks any more."""
    with rpicam(bench.virtual, read_image(DIGIT), (WIDTH, HEIGHT)) as shown:
        yield shown
        until(lambda: not looking(bench))


def looking(bench: Bench) -> str:
    return bench.say("ps | grep -e '[r]picam-vid' -e '[a]gent demo'")


def test_a_release_in_use_looks_at_the_boards_camera(bench: Bench, archive: Path, camera: np.ndarray) -> None:
    bench.push(archive)
    lines = bench.say(f"{AGENT} demo digits --camera --frames 3").splitlines()
    assert lines[1:3] == ["model file : digits", "image file : rpicam:0"]
    frames = [line for line in lines if line.startswith("frame ")]
    assert len(frames) == 3
    assert frames[2].startswith("frame 2: capture ")
    assert sum(line.endswith(", 3") for line in lines) == 3
    assert re.match(r"3 frames in [\d.]+ s, [\d.]+ FPS; mean of each: capture ", lines[-1])


def test_a_boards_camera_is_watched(bench: Bench, board_command: Command, camera: np.ndarray, tmp_path: Path) -> None:
    options = ("--camera", "auto", "--frames", 3, "--json", "--save", tmp_path / "seen.avi")
    said = [json.loads(line) for line in output_of(board_command, "demo", "digits", *bench.at, *options).splitlines()]
    *frames, last = said
    assert [each["frame"] for each in frames] == [0, 1, 2]
    assert all(each["results"][0]["class_id"] == 3 for each in frames)
    assert all(each["image"] == "rpicam:0" and each["machine"] for each in frames)
    assert last["summary"]["frames"] == 3
    assert read_film(tmp_path / "seen.avi")[0].shape == (HEIGHT, WIDTH, 3)


def test_the_boards_camera_is_shown_on_a_page_of_this_machine(bench: Bench, camera: np.ndarray, tmp_path: Path) -> None:
    options = ("--camera", "auto", "--serve", "--port", "0", "--json")
    command = [sys.executable, "-m", "edgedeploy", "demo", "digits", *bench.at, *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with started(*command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        address = next(found[0] for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
        assert json.loads(process.stdout.readline())["results"][0]["label"] == "3"
        with urllib.request.urlopen(f"{address}state", timeout=generous(10)) as answer:
            state = json.load(answer)
        assert state["results"][0].startswith("3 ")
        assert list(state["times_ms"]) == ["capture", "preparation", "inference", "decoding"]
        with urllib.request.urlopen(f"{address}frame.jpg", timeout=generous(10)) as answer:
            shown = cv2.imdecode(np.frombuffer(answer.read(), np.uint8), cv2.IMREAD_COLOR)
        assert np.abs(shown.astype(int) - camera)[100:].mean() < 4  # results are listed at the top
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=generous(30))
        assert process.returncode == 130


def test_its_log_is_that_of_a_film(bench: Bench, board_command: Command, camera: np.ndarray) -> None:
    log = output_of(board_command, "demo", "digits", *bench.at, "--camera", "rpicam:1", "--frames", 2)
    *lines, summary, board = log.splitlines()
    assert re.match(r"frame 0: preprocess [\d.]+ ms, inference [\d.]+ ms, postprocess [\d.]+ ms", lines[3])
    assert summary.startswith("2 frames in ")
    assert board.startswith("board : ")


def test_images_come_as_the_board_saw_them(bench: Bench, archive: Path, camera: np.ndarray) -> None:
    folder = folder_of("digits", bench.push(archive).id)
    with bench.connected() as connection, AgentDemo(connection, folder, "rpicam") as demo:
        shot = next(demo.shots())
        assert np.abs(shot.image.astype(int) - camera).mean() < 4
        assert shot.detections[0].class_id == 3
        assert shot.parts.inference_ms > 0
        assert looking(bench)


@pytest.mark.parametrize(
    ("demo", "why"),
    [
        pytest.param("digits", "there is no camera on this board", id="a board without a camera"),
        pytest.param("facepipe", "--image 0", id="a demo of two networks"),
    ],
)
def test_what_no_boards_camera_shows_is_refused(bench: Bench, board_command: Command, demo: str, why: str) -> None:
    assert why in refused(board_command, InputError.exit_code, "demo", demo, *bench.at, "--camera", "auto")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("hello", "it said"),
        ('{"ready": true, "protocol": 99}', "another protocol"),
        ('{"protocol": 1}\n{"frame": 0, "bytes": 99999999999}', "announces"),
        (
            '{"protocol": 1}\n{"frame": 0, "width": 4, "height": 4, "results": [], "bytes": 3}\nabc',
            "an image does not have the size",
        ),
        ('{"protocol": 1}\n{"bytes": "many"}', "it said"),
        ('{"protocol": 1}\n[]', "it said"),
    ],
)
def test_a_board_that_says_something_else_is_not_believed(bench: Bench, said: str, why: str) -> None:
    agent = "#!/bin/sh\\ncat said; sleep 5\\n"
    bench.say(f"mkdir -p strange; cat >strange/said <<'END'\n{said}\nEND")
    bench.say(f"printf '{agent}' >strange/agent; chmod +x strange/agent")
    with bench.connected() as connection, pytest.raises(ReleaseError, match=why):  # noqa: SIM117
        with AgentDemo(connection, "strange", "auto") as demo:
            next(demo.shots())

"""Cameras as the agent reads them on a board: a driver of Video4Linux that a library stands in for, and programs in the
place of `rpicam-vid` and `ffmpeg`. No real camera was at hand."""

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import cv2
import numpy as np
import pytest
from support.agents import build_probe, need_jpeg
from support.commands import executable, generous, printed, runs, until
from support.recordings import write_film

pytestmark = pytest.mark.compiles

HEIGHT, WIDTH = 24, 32
WIDE, HIGH = 64, 48  # of programs' images: rpicam-vid pads other widths
GENERATOR = np.random.default_rng(11)
IMAGES = [cv2.resize(GENERATOR.integers(0, 256, (3, 4, 3), np.uint8), (WIDTH, HEIGHT)) for _ in range(6)]


@pytest.fixture(scope="module")
def probe() -> Path:
    return build_probe().path


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stands in for a driver."""
    library = tmp_path_factory.mktemp("driver") / "fake_camera.so"
    source = Path(__file__).parent.parent / "support" / "fake_camera.c"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1"]
    subprocess.run([*compiler, source, "-o", library, "-ldl"], check=True)
    return library


Look = Callable[..., list[str]]
Program = Callable[[str, str], dict[str, str]]


@pytest.fixture
def look(probe: Path, driver: Path, tmp_path: Path) -> Look:
    """What the agent sees of the camera that stands in: lines of the probe."""

    def seen(images: list[bytes], count: int, *, which: str = "0", jpeg: bool = False, **settings: object) -> list[str]:
        folder = tmp_path / "images"
        folder.mkdir()
        for index, image in enumerate(images):
            (folder / str(index)).write_bytes(image)
        told = {f"FAKE_CAMERA_{name.upper()}": str(value) for name, value in settings.items()}
        about = {"LD_PRELOAD": str(driver), "FAKE_CAMERA_IMAGES": str(folder), "FAKE_CAMERA_LOG": str(tmp_path / "log")}
        return shown(probe, which, count, {"PATH": "", **about, **told}, size=(WIDTH, HEIGHT), jpeg=jpeg)

    return seen


def shown(
    probe: Path,
    which: str,
    count: int,
    environment: dict[str, str],
    *,
    size: tuple[int, int] = (WIDE, HIGH),
    jpeg: bool = False,
) -> list[str]:
    command = (probe, "camera", which, *size, int(jpeg), count)
    return printed(*command, timeout=generous(60), env=environment).splitlines()


def described(image: np.ndarray, jpeg: bytes = b"") -> str:
    return f"{image.shape[0]} {image.shape[1]} {hashlib.sha256(image.tobytes()).hexdigest()} {len(jpeg)}"


def planes(image: np.ndarray) -> np.ndarray:
    """Y, U and V one after another."""
    return cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420)


def yuyv(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(image, cv2.COLOR_BGR2YUV_YUY2)


def nv12(image: np.ndarray) -> np.ndarray:
    flat = planes(image)
    return np.vstack([flat[:HEIGHT], flat[HEIGHT:].reshape(2, -1).T.reshape(HEIGHT // 2, WIDTH)])


FORMATS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], int]] = {
    "YUYV": (yuyv, cv2.COLOR_YUV2BGR_YUY2),
    "NV12": (nv12, cv2.COLOR_YUV2BGR_NV12),
    "YU12": (planes, cv2.COLOR_YUV2BGR_I420),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_camera_gives_its_images_as_pixels(look: Look, name: str) -> None:
    written, back = FORMATS[name]
    raw = [written(image) for image in IMAGES]
    lines = look([each.tobytes() for each in raw], 3, formats=f"XXXX{name}")
    assert lines == ["/dev/video0", *(described(cv2.cvtColor(each, back)) for each in raw[:3])]


def test_rows_may_be_longer_than_their_pixels(look: Look) -> None:
    raw = yuyv(IMAGES[0])
    padded = np.zeros((HEIGHT, 2 * WIDTH + 16), np.uint8)
    padded[:, : 2 * WIDTH] = raw.reshape(HEIGHT, -1)
    lines = look([padded.tobytes()], 1, stride=2 * WIDTH + 16)
    assert lines[1] == described(cv2.cvtColor(raw, cv2.COLOR_YUV2BGR_YUY2))


JPEGS = [cv2.imencode(".jpg", image)[1].tobytes() for image in IMAGES]


def decoded(jpeg: bytes) -> str:
    return described(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR), jpeg)


def test_jpegs_of_a_camera_are_handed_on_where_they_are_wanted(look: Look) -> None:
    need_jpeg()
    lines = look(JPEGS, 2, jpeg=True, formats="YUYVMJPG")
    assert lines[1:] == [decoded(jpeg) for jpeg in JPEGS[:2]]


def test_a_damaged_image_is_passed_over(look: Look) -> None:
    need_jpeg()
    lines = look([JPEGS[0], JPEGS[1][:200], JPEGS[2]], 2, formats="MJPG")
    assert lines[2] == decoded(JPEGS[2])


def test_the_newest_image_is_shown_and_all_memory_goes_back(look: Look) -> None:
    raw = [yuyv(image) for image in IMAGES]
    lines = look([each.tobytes() for each in raw], 2, burst=3)
    newest = [cv2.cvtColor(raw[index], cv2.COLOR_YUV2BGR_YUY2) for index in (2, 5)]
    assert lines[1:] == [described(image) for image in newest]


def test_requests_come_in_the_order_that_drivers_expect(look: Look, tmp_path: Path) -> None:
    look([yuyv(image).tobytes() for image in IMAGES], 1)
    asked = (tmp_path / "log").read_text().split()
    once = " ".join(dict.fromkeys(asked))
    assert once == "open QUERYCAP ENUM_FMT S_FMT REQBUFS QUERYBUF QBUF STREAMON DQBUF STREAMOFF"
    assert asked[: asked.index("STREAMON")].count("QBUF") == asked.count("QUERYBUF") == 4
    assert asked[-1] == "STREAMOFF"


def test_without_a_name_the_first_camera_that_gives_images_is_taken(look: Look) -> None:
    assert look([yuyv(IMAGES[0]).tobytes()], 1, which="", device="/dev/video5")[0] == "/dev/video5"


def test_a_device_that_needs_others_to_give_images_is_not_taken_by_itself(look: Look) -> None:
    lines = look([yuyv(IMAGES[0]).tobytes()], 1, which="", capabilities="0x24000001")
    assert lines == ["refused: there is no camera on this board: connect one, or name it with --camera DEVICE"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"error": f"open {errno.EACCES}"}, "sudo usermod -aG video"),
        ({"error": f"open {errno.ENOENT}"}, "there is no camera /dev/video0"),
        ({"error": f"S_FMT {errno.EBUSY}"}, "is in use"),
        ({"error": f"STREAMON {errno.ENODEV}"}, "is gone"),
        ({"error": f"REQBUFS {errno.ENOMEM}"}, "Cannot allocate memory"),
        ({"capabilities": "0x00800000"}, "try the next number"),
        ({"formats": "pRAAGREY"}, "it has pRAA, GREY"),
        ({"size": "33x24"}, "sides are even"),
    ],
    ids=lambda value: str(value),
)
def test_what_keeps_a_camera_from_giving_images_is_told(look: Look, settings: dict[str, object], why: str) -> None:
    *_, line = look([bytes(4 * WIDTH * HEIGHT)] * 40, 1, **settings)
    assert line.startswith("refused: ")
    assert why in line


def test_a_camera_that_is_unplugged_ends_with_a_word(look: Look) -> None:
    lines = look([yuyv(image).tobytes() for image in IMAGES[:2]], 5)
    assert len(lines) == 4
    assert lines[-1] == "refused: the camera /dev/video0 is gone: connect it again"


# Programs in the place of those that read other cameras. They write what they were called with, and who they are.
PROGRAM = """import os, sys, time
with open({log!r}, "w") as log:
    print(os.getpid(), *sys.argv[1:], file=log, flush=True)
{body}"""

FRAMES = [cv2.resize(image, (WIDE, HIGH)) for image in IMAGES]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes a program of a name; the environment in which it is found."""

    def written(name: str, body: str) -> dict[str, str]:
        script = PROGRAM.format(log=str(tmp_path / "called"), body=body)
        folder = executable(tmp_path / "bin" / name, script, f"{sys.executable} -S").parent
        for index, image in enumerate(FRAMES):
            (folder / f"{index}").write_bytes(planes(image).tobytes())
        return {"PATH": f"{folder}", "FRAMES": str(folder)}

    return written


# Each image stays the newest until the reader has had time to take it.
SLOWLY = """
for index in range(3):
    sys.stdout.buffer.write({before}open(os.environ["FRAMES"] + f"/{index}", "rb").read())
    sys.stdout.flush()
    time.sleep(0.5)
"""
FOR_EVER = SLOWLY + "time.sleep(600)\n"


def pixels(image: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(planes(image), cv2.COLOR_YUV2BGR_I420)


@pytest.mark.parametrize("name", ["rpicam-vid", "libcamera-vid"])
def test_the_raspberry_pis_camera_is_read_through_its_program(
    probe: Path, program: Program, tmp_path: Path, name: str
) -> None:
    lines = shown(probe, "rpicam:1", 2, program(name, FOR_EVER.replace("{before}", "")))
    assert lines == ["rpicam:1", *(described(pixels(image)) for image in FRAMES[:2])]
    pid, *called = (tmp_path / "called").read_text().split()
    assert "yuv420" in called
    assert called[called.index("--camera") + 1] == "1"
    assert called[called.index("--width") + 1] == str(WIDE)
    assert not runs(int(pid))


def test_a_stream_says_itself_how_large_its_images_are(probe: Path, program: Program, tmp_path: Path) -> None:
    head = f'sys.stdout.write("YUV4MPEG2 W{WIDE} H{HIGH} F25:1 Ip A1:1 C420jpeg XYSCSS=420JPEG\\n"); sys.stdout.flush()'
    body = head + FOR_EVER.replace("{before}", 'b"FRAME\\n" + ')
    lines = shown(probe, "rtsp://camera.local/live", 2, program("ffmpeg", body))
    assert lines == ["rtsp://camera.local/live", *(described(pixels(image)) for image in FRAMES[:2])]
    assert "rtsp://camera.local/live" in (tmp_path / "called").read_text().split()


@pytest.mark.parametrize(
    ("which", "name", "body", "why"),
    [
        ("rpicam", "rpicam-vid", 'sys.exit("ERROR: *** no cameras available ***")', "no cameras available"),
        ("rpicam", "rpicam-vid", "sys.stdout.write('too little')", "its program ended"),
        ("rpicam", "other", "", "there is no rpicam-vid"),
        ("http://camera.local/", "ffmpeg", 'sys.exit("Connection refused")', "Connection refused"),
        ("http://camera.local/", "ffmpeg", "print('hello', flush=True)", "gives no YUV4MPEG2"),
        ("http://camera.local/", "ffmpeg", "print('YUV4MPEG2 W100000 H100000', flush=True)", "impossible size"),
        ("http://camera.local/", "ffmpeg", "print('YUV4MPEG2 W64 H48 C444', flush=True)", "other colours"),
        ("http://camera.local/", "other", "", "there is no ffmpeg"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_why_a_program_gives_no_images_is_told(
    probe: Path, program: Program, which: str, name: str, body: str, why: str
) -> None:
    *_, line = shown(probe, which, 1, program(name, body))
    assert line.startswith("refused: ")
    assert why in line


def test_rows_that_rpicam_vid_would_pad_are_not_asked_for(probe: Path, program: Program) -> None:
    [line] = shown(probe, "rpicam", 1, program("rpicam-vid", ""), size=(100, 48))
    assert "a multiple of 64" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_program_outlives_the_agent(probe: Path, program: Program, tmp_path: Path, number: signal.Signals) -> None:
    environment = program("rpicam-vid", FOR_EVER.replace("{before}", ""))
    command = [str(probe), "camera", "rpicam", str(WIDE), str(HIGH), "0", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as agent:
        assert agent.stdout.readline() == b"rpicam:0\n"
        assert agent.stdout.readline()
        agent.send_signal(number)
        agent.communicate(timeout=generous(20))
    assert agent.returncode in (0, -number)
    until(lambda: not runs(int((tmp_path / "called").read_text().split()[0])), 5)


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")
def test_ffmpeg_itself_gives_images_that_are_understood(probe: Path, tmp_path: Path) -> None:
    """A film that a server on the loopback hands out stands in for a camera of the network."""
    write_film(tmp_path / "film.avi", FRAMES * 4)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/film.avi"
            lines = shown(probe, address, 1, dict(os.environ), size=(WIDTH, HEIGHT))
        finally:
            server.shutdown()
            thread.join()
    assert lines[1].split()[:2] == [str(HIGH), str(WIDE)]

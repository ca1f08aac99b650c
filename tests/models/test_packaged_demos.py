"""Packages of demos detect what the demos do, as programs, by the agent, and in frames of cameras; and their size."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import ROOT
from support.agents import call, emulation_here, unpack
from support.demo_runs import assert_alike, masked
from support.library_programs import EXAMPLES, assert_as_python_says, compiled, said

from edgedeploy.agent.library import write_library
from edgedeploy.api.local_runtime import Network
from edgedeploy.building import prepare
from edgedeploy.demo.program import Detector, Program
from edgedeploy.demo.spec import DEMOS, all_demos
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import DownloadError
from edgedeploy.package.usage import Camera
from edgedeploy.runtime.opening import Place
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.frames import frame_of, image_of
from edgedeploy.vision.image import read_image, write_image
from edgedeploy.vision.results import Detection
from edgedeploy.vision.source import Shot

pytestmark = pytest.mark.usefixtures("shared_zoo")

# What the user names may hold networks that the development material has not.
NAMED = os.environ.get("EDGEDEPLOY_MODELS", "")

# Of networks of several sizes a package has one.
ONE_SIZE = [name for name in all_demos() if isinstance(DEMOS.load(name).fit, str)]


def packaged(model: str, board: str = "local", demo: str | None = None, camera: Camera | None = None) -> Path:
    """The package of a network for a board; skips the test where its files are not here."""
    try:
        return prepare(model, resolve(board), use=find_use(model, demo, camera)).package_path
    except DownloadError as error:
        pytest.skip(str(error))


def first_of(program: Program) -> tuple[str, Path]:
    """The first network of a demo, and the demo's image; skips the test where that is not here."""
    try:
        return program.parts[0].model, program.image()
    except DownloadError as error:
        pytest.skip(str(error))


@pytest.mark.quick("classification", "landmark", "retinaface", "yolo-fastest")
@pytest.mark.parametrize("name", ONE_SIZE)
def test_a_package_alone_detects_what_its_demo_does(name: str) -> None:
    program = Program.of(name)
    model, path = first_of(program)
    package, image = packaged(model), read_image(path)
    with program.opened(Place(resolve("local"))) as session:
        wanted = session.infer(Shot(0, path, image), repeat=0).outcome.detections
    assert Detector(package).detect(image) == wanted
    assert wanted
    assert_library_sees(package, image, wanted)


@pytest.mark.parametrize("model", ["landmark-106", pytest.param("face-mesh-attention", marks=pytest.mark.slow)])
def test_a_network_of_crops_gives_its_points(model: str, shared: Path) -> None:
    """The second networks of demos are shown what was cut out."""
    face = read_image(shared / "images" / "mtcnn_face4.jpg")[60:170, 10:110]
    package = packaged(model)
    [wanted] = Detector(package).detect(face)
    assert len(wanted.points) > 100
    assert_library_sees(package, face, [wanted])


@pytest.mark.slow
def test_text_is_found_and_read_as_in_python(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    """The demo's three networks, each of one size; lines are cut out upright."""
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{NAMED}")
    sign = read_image(ROOT / "demos" / "ocr.png")
    found, turned, read = map(packaged, ("ppocr-v4-det", "ppocr-v2-cls", "ppocr-v4-rec"))
    regions = Detector(found).detect(sign)
    assert len(regions) > 2
    assert_library_sees(found, sign, regions)
    texts = []
    for region in regions:
        x1, y1, x2, y2 = map(int, region.box)
        line = np.ascontiguousarray(sign[y1:y2, x1:x2])
        assert_library_sees(turned, line, Detector(turned).detect(line))
        seen = Detector(read).detect(line)
        assert_library_sees(read, line, seen)
        texts += [each.label for each in seen]
    assert len(texts) > 2


def assert_library_sees(package: Path, image: np.ndarray, wanted: list[Detection]) -> None:
    with Network(package) as network:
        seen = network.detect(image)
    assert [(each.label, each.class_id) for each in seen] == [(each.label, each.class_id) for each in wanted]
    for one, other in zip(seen, wanted, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-6)
        assert one.box == pytest.approx(other.box, abs=1e-4)
        np.testing.assert_allclose(np.array(one.corners or ()), np.array(other.corners or ()), atol=1e-4)
        np.testing.assert_allclose(one.points, np.reshape(other.points, np.shape(one.points)), atol=1e-4)
        np.testing.assert_allclose(one.depths, other.depths, atol=1e-4)


@pytest.mark.slow  # zig builds its C++ library for each first
@pytest.mark.parametrize(("board", "name"), [("rpi4", "retinaface"), ("rpi-armhf", "yolo-fastest")])
def test_a_boards_program_agrees(board: str, name: str, tmp_path: Path) -> None:
    """The example in C++, under emulation."""
    emulation = emulation_here(load_board(board))
    model, path = first_of(Program.of(name))
    here, there = packaged(model), packaged(model, board)
    write_library(load_board(board), tmp_path / "library")
    program = compiled([EXAMPLES / "cpp" / "detect.cc"], tmp_path / "detect", tmp_path / "library", board=board)
    image = tmp_path / "image.ppm"
    write_image(image, read_image(path))
    folder = unpack(there, tmp_path / "package")
    assert_as_python_says(said([*emulation, program, image, folder]), here, image)


# Of one network, which is built for one size.
ALONE = [name for name in all_demos() if isinstance(DEMOS.load(name).fit, str) and not DEMOS.load(name).then]


def test_there_are_demos_that_the_agent_serves() -> None:
    assert {"classification", "landmark", "retinaface", "ultraface", "yolo-fastest", "yunet"} <= set(ALONE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_the_agents_log_is_the_hosts(name: str, agent: Path, shared: Path, tmp_path: Path) -> None:
    program = Program.of(name)
    model, demo_image = first_of(program)
    package = unpack(packaged(model, demo=name), tmp_path / "package")
    with program.opened(Place(resolve("local"))) as session:
        for image in [demo_image, *sorted((shared / "images").glob("*.jpg"))]:
            wanted = session.infer(Shot(0, image, read_image(image)), repeat=1).log()
            done = call(agent, "demo", package, "--image", image)
            assert done.returncode == 0, done.stderr.decode()
            assert_alike(masked(done.stdout.decode()).rstrip("\n"), masked("\n".join(wanted)))


# Of levels that are rounded the other way: docs/camera.md states what they do.
SCORES, PIXELS = 0.002, 0.2


@pytest.mark.parametrize(
    ("demo", "camera", "exact"),
    [
        ("yunet", "640x480:rgb", True),  # half the size: means of four
        ("yunet", "800x600:nv12", False),
        pytest.param("classification", "640x480:yuyv", True, marks=pytest.mark.slow),
        pytest.param("yolo-fastest", "640x480:yuv420", True, marks=pytest.mark.slow),
        pytest.param("ultraface", "640x480:bgr", True, marks=pytest.mark.slow),
        pytest.param("retinaface", "640x480:yuv420", False, marks=pytest.mark.slow),
    ],
)
def test_a_cameras_frame_shows_what_its_image_does(demo: str, camera: str, exact: bool) -> None:
    frames, (model, path) = Camera.parsed(camera), first_of(Program.of(demo))
    image = cv2.resize(read_image(path), frames.size[::-1])
    frame, detector = frame_of(image, frames), Detector(packaged(model, camera=frames))
    found = detector.detect_frame(frame)
    assert detector.detect(image) == found
    wanted = Detector(packaged(model)).detect(image_of(frame, frames))
    assert wanted
    if exact:
        assert found == wanted
        return
    assert [each.label for each in found] == [each.label for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert abs(one.score - other.score) < SCORES
        assert np.abs(np.subtract(one.box, other.box)).max() < PIXELS

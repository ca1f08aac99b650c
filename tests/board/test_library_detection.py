"""Images in, results out: what docs/your-program.md and edgedeploy.h promise of `detect`, in C++ and Python."""

import ctypes
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import ROOT, Command
from support.agents import digits_with_use, unpack, unpacked
from support.commands import json_of, output_of, refused
from support.library_programs import Making, assert_as_python_says, compiled, digit_image, said
from support.networks import Graph, tiny

from edgedeploy.agent import edgedeploy_runtime as library
from edgedeploy.api.local_runtime import Network as HostNetwork
from edgedeploy.building import build
from edgedeploy.demo.program import Detector
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import InputError
from edgedeploy.package.usage import Camera
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.results import Detection
from edgedeploy.zoo.source import find_source

OK, MISUSED, INPUT = 0, 2, 7


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a network that sees faces in noise, with outputs as YuNet's; its folder lies beside it."""
    graph = Graph(seed=3)
    image = graph.input("image", [1, 3, 64, 96])
    outputs = []
    for values in (1, 1, 4, 10):
        for stride in (8, 16, 32):
            cells = graph.node("AveragePool", image, kernel_shape=[stride] * 2, strides=[stride] * 2)
            head = graph.node("Sigmoid", graph.conv(cells, 3, values, 1))
            rows = graph.node("Transpose", head, perm=[0, 2, 3, 1])
            outputs.append(graph.node("Reshape", rows, graph.weight(np.array([1, -1, values]))))
    path = graph.save(tmp_path_factory.mktemp("faces") / "faces.onnx", *outputs)
    use = find_use(str(path), "yunet")
    package = build(find_source(str(path)), resolve("local"), path.with_suffix(".tar.gz"), use=use).path
    unpack(package, path.with_suffix(""))
    return package


def folder_of(package: Path) -> Path:
    return package.parent / package.name.removesuffix(".tar.gz")


def noise(height: int, width: int, *more: int) -> np.ndarray:
    return np.random.default_rng(height).integers(0, 256, (height, width, *more)).astype(np.uint8)


def assert_same(found: list[library.Detection], wanted: list[Detection]) -> None:
    assert wanted
    assert [(each.label, each.class_id) for each in found] == [(each.label, each.class_id) for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        np.testing.assert_allclose(one.box, other.box, atol=1e-3)
        np.testing.assert_allclose(one.points, other.points, atol=1e-3)


def test_boxes_and_points_are_those_of_the_demo(network: Making, faces: Path) -> None:
    detector = Detector(faces)
    with network(folder_of(faces)) as opened:
        for size in ((64, 96), (480, 640), (31, 200), (7, 5), (64, 96)):
            image = noise(*size, 3)
            assert_same(opened.detect(image), detector.detect(image))
        assert opened.inputs[0].shape == (1, 3, 64, 96)  # and the network can be run as before
        assert len(opened.run({})) == 12


@pytest.mark.parametrize(
    ("kind", "shape", "code"),
    [
        ("RGB", (90, 120, 3), cv2.COLOR_RGB2BGR),
        (None, (90, 120), cv2.COLOR_GRAY2BGR),
        ("I420", (90, 120), cv2.COLOR_YUV2BGR_I420),
        ("NV12", (90, 120), cv2.COLOR_YUV2BGR_NV12),
        ("YUYV", (90, 120, 2), cv2.COLOR_YUV2BGR_YUY2),
    ],
)
def test_camera_frames_work(network: Making, faces: Path, kind: str | None, shape: tuple[int, ...], code: int) -> None:
    frame = noise(*shape)
    with network(folder_of(faces)) as opened:
        assert_same(opened.detect(frame, kind), Detector(faces).detect(cv2.cvtColor(frame, code)))


def test_a_package_for_a_camera_takes_its_frames_as_they_are(network: Making, faces: Path, tmp_path: Path) -> None:
    camera, net = Camera.parsed("120x60:nv12"), faces.parent / "faces.onnx"
    use = find_use(str(net), "yunet", camera)
    package = build(find_source(str(net)), resolve("local"), tmp_path / "faces.tar.gz", use=use).path
    frame, detector = noise(*camera.shape), Detector(package)
    with network(unpack(package, tmp_path / "faces")) as opened:
        assert_same(opened.detect(frame, "NV12"), detector.detect_frame(frame))
        for other, kind in ((frame, "I420"), (noise(60, 120, 3), None), (noise(90, 122), "NV12")):
            with pytest.raises(library.NetworkError, match="the package takes nv12 of 120 x 60"):
                opened.detect(other, kind)


def test_a_part_of_an_image_is_one_without_a_copy_or_with_one(network: Making, faces: Path) -> None:
    image, detector = noise(200, 300, 3), Detector(faces)
    with network(folder_of(faces)) as opened:
        for part in (image[20:120, 30:180], image[::-1], image[:, ::2], image[:, :, ::-1]):
            assert_same(opened.detect(part), detector.detect(np.ascontiguousarray(part)))


def test_the_host_detects_as_the_board(faces: Path) -> None:
    image = noise(200, 300, 3)
    with HostNetwork(faces) as opened:
        assert_same(opened.detect(image), Detector(faces).detect(image))


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (np.zeros((4, 4, 3), np.float32), None),
        (np.zeros((4, 4, 4), np.uint8), None),
        (np.zeros(4, np.uint8), None),
        (np.zeros((4, 4, 3), np.uint8), "GRAY"),
        (np.zeros((4, 4), np.uint8), "I420"),
        (np.zeros((3, 3), np.uint8), "NV12"),
        (np.zeros((4, 3, 2), np.uint8), "YUYV"),
        (np.zeros((4, 4, 3), np.uint8), "HSV"),
        (np.zeros((0, 4, 3), np.uint8), None),
    ],
)
def test_an_array_that_is_no_image_fails(network: Making, faces: Path, image: np.ndarray, kind: str | None) -> None:
    with network(folder_of(faces)) as opened, pytest.raises(library.NetworkError) as caught:
        opened.detect(image, kind)
    assert caught.value.code == INPUT


def test_wrong_calls_are_told_and_change_nothing(network: Making, faces: Path) -> None:
    pixels = noise(8, 8, 3)
    with network(folder_of(faces)) as opened:
        calls, handle = opened._library, opened._handle
        found, count = ctypes.POINTER(library._Detection)(), ctypes.c_size_t()
        places = ctypes.byref(found), ctypes.byref(count)

        def asked(*fields: object) -> tuple[int, bytes]:
            status = calls.ed_detect(handle, ctypes.byref(library._Image(*fields)), *places)
            return status, calls.ed_error()

        address = pixels.ctypes.data
        assert asked(address, 8, 8, 24, 0)[0] == OK
        kept = count.value
        assert asked(None, 8, 8, 24, 0) == (MISUSED, b"the pixels of a frame are null")
        assert asked(address, 8, 8, 24, 6) == (MISUSED, b"there is no format 6 of images")
        assert asked(address, 8, 8, 24, -1)[0] == MISUSED
        assert asked(address, -8, 8, 24, 0)[0] == INPUT
        assert asked(address, 1 << 30, 1 << 30, 0, 0)[0] == INPUT
        assert asked(address, 8, 8, 23, 0)[0] == INPUT
        assert (bool(found), count.value) == (False, 0)
        image = library._Image(address, 8, 8, 24, 0)
        assert calls.ed_detect(handle, None, *places) == MISUSED
        assert calls.ed_detect(handle, ctypes.byref(image), None, places[1]) == MISUSED
        assert calls.ed_detect(handle, ctypes.byref(image), places[0], None) == MISUSED
        assert calls.ed_detect(None, ctypes.byref(image), *places) == MISUSED
        assert asked(address, 8, 8, 24, 0)[0] == OK
        assert count.value == kept


def test_a_package_that_does_not_say_its_use_can_be_run_alone(network: Making, tmp_path: Path) -> None:
    folder = unpacked(tiny(tmp_path / "net.onnx")) and tmp_path / "net"
    with network(folder) as opened:
        with pytest.raises(library.NetworkError, match="does not say how images become its input") as caught:
            opened.detect(noise(8, 8, 3))
        assert caught.value.code == INPUT
        assert opened.run({})
    with HostNetwork(folder) as opened, pytest.raises(InputError, match="does not say how images become"):
        opened.detect(noise(8, 8, 3))


_CXX = """
#include <cstdio>
#include <edgedeploy.hpp>
#include <vector>

// What a program sees of a cv::Mat.
struct Mat {
  int dims, rows, cols;
  unsigned char* data;
  struct { std::size_t of_row; std::size_t operator[](int) const { return of_row; } } step;
  int depth, count;
  std::size_t elemSize1() const { return depth; }
  int channels() const { return count; }
};

int main(int, char** words) {
  edgedeploy::Network network(words[1]);
  std::vector<unsigned char> pixels(100 * 600);
  if (std::fread(pixels.data(), 1, pixels.size(), stdin) != pixels.size()) return 1;
  const auto print = [](const std::vector<edgedeploy::Detection>& all) {
    for (const auto& found : all) {
      std::printf("%s %d %.6f %.3f %.3f", found.label.c_str(), found.class_id, found.score, found.box.x1, found.box.y2);
      std::printf(" %d %zu %zu %.3f\\n", found.has_box, found.corners.size(), found.points.size(), found.points[4].y);
    }
  };
  const Mat mat{2, 100, 150, pixels.data(), {600}, 1, 3};
  print(network.detect(mat));
  print(network.detect(edgedeploy::Image(pixels.data(), 150, 100, ED_BGR, 600)));
  try {
    network.detect(Mat{2, 100, 150, pixels.data(), {600}, 4, 1});
  } catch (const edgedeploy::Error& error) {
    std::printf("%d %s\\n", error.status(), error.what());
  }
}
"""


def test_the_header_for_cxx_takes_what_opencv_has(written: Path, faces: Path, tmp_path: Path) -> None:
    (tmp_path / "mat.cc").write_text(_CXX)
    program = compiled([tmp_path / "mat.cc"], tmp_path / "mat", written, board="local")
    image = noise(100, 200, 3)
    *lines, last = said([program, folder_of(faces)], stdin=image.tobytes())
    wanted = Detector(faces).detect(np.ascontiguousarray(image[:, :150]))
    assert len(lines) == 2 * len(wanted) > 0
    assert lines[: len(wanted)] == lines[len(wanted) :]
    for line, found in zip(lines, wanted, strict=False):
        label, class_id, *numbers = line.split()
        assert (label, int(class_id)) == ("face", 0)
        expected = [found.score, found.box[0], found.box[3], 1, 0, 5, found.points[4][1]]
        np.testing.assert_allclose([float(number) for number in numbers], expected, atol=2e-3)
    assert last == "7 an image has one or three channels of bytes"


def test_classes_are_those_of_the_demo(network: Making, tmp_path: Path) -> None:
    package = digits_with_use(tmp_path / "digits.tar.gz")
    image = cv2.imread(str(ROOT / "models" / "digit.png"))
    with network(unpack(package, tmp_path / "digits")) as opened:
        found = opened.detect(image)
    assert [(each.label, each.box, each.points) for each in found[:2]] == [("3", None, ()), ("9", None, ())]
    assert [each.score for each in found] == pytest.approx([each.score for each in Detector(package).detect(image)])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder in which the digits are a release in use; their archive lies in it."""
    folder = tmp_path_factory.mktemp("home")
    package = digits_with_use(folder / "digits.tar.gz")
    releases = folder / ".local" / "share" / "edgedeploy" / "releases" / "digits"
    unpack(package, releases / "first")
    (releases / "current").symlink_to("first")
    return folder


@pytest.mark.parametrize("language", ["c", "cpp", "python"])
def test_a_new_program_runs_the_release_in_use(
    command: Command, written: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    found = json_of(command, "new", "app", "--language", language, "--model", "digits")
    folder, image = Path(found["folder"]), digit_image(tmp_path)
    assert {path.name for path in folder.iterdir()} == set(found["files"])
    if language == "python":
        shutil.copyfile(library.__file__, folder / "edgedeploy_runtime.py")  # as the wheel has it, and the library too
        shutil.copyfile(written / "lib" / library.LIBRARY_NAME, folder / library.LIBRARY_NAME)
        program = [sys.executable, folder / "detect.py"]
    else:
        source = folder / ("detect.c" if language == "c" else "detect.cc")
        program = [compiled([source], tmp_path / "detect", written, board="local")]
    monkeypatch.setenv("HOME", str(home))
    assert_as_python_says(said([*program, image]), home / "digits.tar.gz", image)


def test_a_new_program_takes_nothings_place(command: Command) -> None:
    output_of(command, "new", "app", "--language", "c", "--model", "digits", "--output", "mine")
    Path("mine/detect.c").write_text("mine")
    err = refused(command, 10, "new", "app", "--language", "c", "--model", "retinaface", "--output", "mine")
    assert "mine/detect.c is left as it is" in err
    assert Path("mine/detect.c").read_text() == "mine"


@pytest.mark.parametrize("model", ["../x", "", '"; system("ls"); "', "x" * 101])
def test_a_new_program_is_for_what_a_release_can_be_called(command: Command, model: str) -> None:
    err = refused(command, 7, "new", "app", "--language", "c", "--model", model, "--output", "mine")
    assert "invalid name of a model" in err
    assert not Path("mine").exists()

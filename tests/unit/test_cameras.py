"""Cameras' frames: formats, resampling, generated code, and the packages that are built for them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from conftest import Command
from onnx import TensorProto
from support.agreement import network_of, results_of
from support.commands import output_of, refusal
from support.networks import Graph, tiny
from support.packages import changed

from edgedeploy.build_key import build_key
from edgedeploy.compile.output.entries import taking_frames
from edgedeploy.compile.output.explain import explain
from edgedeploy.compile.pipeline import compile_network
from edgedeploy.demo.program import Detector, Program
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.model.tensors import Steps
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import parse_manifest
from edgedeploy.package.usage import PIXEL_FORMATS, Camera, Fit, ModelInput
from edgedeploy.target.board import load_board
from edgedeploy.vision.frames import Preparation, frame_of, image_of, resampling
from edgedeploy.vision.geometry import BORDER
from edgedeploy.vision.image import read_image
from edgedeploy.vision.preprocess import LineFit, place, to_tensor
from edgedeploy.zoo.source import find_source

Size = tuple[int, int]

# Of an image and a network's input: made smaller, halved, larger, of the same size, in one direction only.
SIZES = [((48, 64), size) for size in ((30, 30), (24, 32), (33, 47), (80, 70), (48, 64), (48, 30))]
SIZES += [((96, 128), (24, 32)), ((7, 9), (31, 5))]


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Noise has as many levels on the edge of the next as there can be."""
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def preparation(camera: str, fit: Fit, size: tuple[int, int], **other: Any) -> Preparation:
    usual = {"layout": "NCHW", "colour": "RGB", "mean": [127.0, 120.0, 1.5], "scale": [0.01, 0.02, 1.0]}
    return Preparation(camera=Camera.parsed(camera), fit=fit, size=size, **{**usual, "dtype": "float32", **other})


class TestFormats:
    @pytest.mark.parametrize("pixels", PIXEL_FORMATS)
    def test_a_frame_is_an_image_and_an_image_a_frame(self, pixels: str) -> None:
        camera = Camera.parsed(f"64x48:{pixels}")
        smooth = cv2.resize(noise(6, 8, 3), camera.size[::-1], interpolation=cv2.INTER_CUBIC)
        image = cv2.cvtColor(cv2.cvtColor(smooth, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
        frame = frame_of(image, camera)
        assert (frame.shape, frame.dtype) == (camera.shape, np.uint8)
        assert np.abs(image_of(frame, camera).astype(int) - image).max() <= 2  # limited range has fewer levels

    @pytest.mark.parametrize(("pixels", "u", "v"), [("yuv420", (48, 5), (60, 5)), ("nv12", (48, 10), (48, 11))])
    def test_planes_lie_where_video4linux_says(self, pixels: str, u: tuple[int, int], v: tuple[int, int]) -> None:
        camera, frame = Camera.parsed(f"64x48:{pixels}"), np.full((72, 64), 128, np.uint8)
        grey = image_of(frame, camera)
        for place_of, channel in ((u, 0), (v, 2)):  # more U is more blue, more V more red, in two by two pixels
            changed = frame.copy()
            changed[place_of] = 200
            differs = image_of(changed, camera).astype(int) - grey
            assert (differs[:2, 10:12, channel] > 0).all()
            assert np.count_nonzero(differs.any(axis=2)) == 4

    def test_a_user_writes_size_and_format(self) -> None:
        assert Camera.parsed("640x481:yuyv").shape == (481, 640, 2)  # pairs side by side have any number of rows
        camera = Camera.parsed("1280x720:nv12")
        assert (camera.size, camera.shape, str(camera)) == ((720, 1280), (1080, 1280), "1280x720:nv12")

    @pytest.mark.parametrize("text", ["640:rgb", "640x480", "640x480:jpeg", "0x480:rgb", "99999x4:rgb", "-1x4:rgb", ""])
    def test_what_is_no_camera_is_refused(self, text: str) -> None:
        with pytest.raises(InputError, match="invalid frames"):
            Camera.parsed(text)

    @pytest.mark.parametrize(
        ("text", "needed"),
        [
            ("641x480:yuv420", "an even width and height"),
            ("640x481:nv12", "an even width and height"),
            ("641x480:yuyv", "an even width:"),
        ],
    )
    def test_pixels_that_share_their_colour_come_in_pairs(self, text: str, needed: str) -> None:
        with pytest.raises(InputError, match="there are no frames") as raised:
            Camera.parsed(text)
        assert needed in str(raised.value.why)


class TestLevels:
    @pytest.mark.parametrize("fit", ["stretch", "fill", "letterbox", "pad", "cover"])
    @pytest.mark.parametrize(("image", "size"), SIZES)
    def test_they_are_those_of_tengine_opencv_and_pillow(self, fit: Fit, image: Size, size: Size) -> None:
        """Means may differ where a level is between two."""
        pixels = noise(*image, 3)
        wanted, frame = place(pixels, size, fit)
        found = resampling(image, size, fit)
        differs = np.abs(found.of(pixels, BORDER.get(fit, 0)).astype(int) - wanted)
        means = fit in ("pad", "cover")
        assert differs.max() <= means
        assert differs.mean() < 0.02
        assert found.frame == frame

    def test_a_mean_of_two_by_two_is_exact(self) -> None:
        pixels = noise(48, 64, 3)
        wanted, _ = place(pixels, (24, 32), "pad")
        np.testing.assert_array_equal(resampling((48, 64), (24, 32), "pad").of(pixels, 0), wanted)

    def test_of_a_turned_part_there_is_no_code(self) -> None:
        with pytest.raises(UnsupportedError, match="'contain'"):
            resampling((48, 64), (24, 32), "contain")


@pytest.mark.parametrize("pixels", PIXEL_FORMATS)
@pytest.mark.parametrize("colour", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_frame_becomes_what_its_image_does(pixels: str, colour: Any, layout: Any) -> None:
    channels = 1 if colour == "GRAY" else 3
    camera, mean, scale = Camera.parsed(f"64x48:{pixels}"), [127.0, 120.0, 1.5][:channels], [0.01, 0.02, 1.0][:channels]
    frame, steps = noise(*camera.shape), Steps(scale=0.02, zero_point=3)
    spec = ModelInput(name="data", shape=[1, 1, 1, 1], layout=layout, colour=colour, mean=mean, scale=scale)
    levels, _ = place(image_of(frame, camera), (30, 50), "stretch")
    of_frames = spec.model_dump(include={"layout", "colour", "mean", "scale"})
    for dtype, quantised in (("float32", None), ("uint8", None), ("int8", steps)):
        found = preparation(str(camera), "stretch", (30, 50), **of_frames, dtype=dtype, steps=quantised).tensor(frame)
        wanted = to_tensor(levels, spec, dtype, quantised)
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype


def assert_code_is_exact(wanted: Preparation) -> None:
    """The generated function's tensor must be the preparation's, bit for bit."""
    graph = Graph()
    kinds = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
    data = graph.input("data", list(wanted.shape), kinds[wanted.dtype])
    value = data if wanted.dtype == "float32" else graph.node("Cast", data, to=TensorProto.FLOAT)
    network = taking_frames(network_of(graph, graph.node("Neg", value)), wanted)
    compiled = compile_network(network, load_board("local"))
    assert "frames" in compiled.templates.values()
    assert not explain(compiled)["slow_operators"]
    for seed in (1, 2):
        [(found, negated)] = results_of(compiled, network, {"data": noise(*wanted.camera.shape, seed=seed)})
        np.testing.assert_array_equal(found, negated)
        assert np.unique(found).size > 100


@pytest.mark.compiles
class TestCode:
    @pytest.mark.parametrize("pixels", PIXEL_FORMATS)
    def test_of_every_format(self, pixels: str) -> None:
        assert_code_is_exact(preparation(f"70x46:{pixels}", "stretch", (31, 37)))

    @pytest.mark.parametrize("fit", ["fill", "pad", "letterbox", "cover"])
    def test_of_every_fit(self, fit: Fit) -> None:
        assert_code_is_exact(preparation("70x46:yuv420", fit, (40, 45)))
        assert_code_is_exact(preparation("46x70:bgr", fit, (150, 77)))

    def test_of_a_frame_of_the_right_size(self) -> None:
        assert_code_is_exact(preparation("64x48:nv12", "pad", (48, 64)))

    def test_of_other_layouts_colours_and_types(self) -> None:
        grey = {"colour": "GRAY", "mean": [10.0], "scale": [0.1]}
        assert_code_is_exact(preparation("64x46:yuv420", "stretch", (31, 37), layout="NHWC", colour="BGR"))
        assert_code_is_exact(preparation("64x46:yuyv", "fill", (31, 37), **grey))
        assert_code_is_exact(preparation("64x46:gray", "letterbox", (31, 37), **grey, layout="NHWC"))
        plain = {"mean": [0.0] * 3, "scale": [1.0] * 3}
        assert_code_is_exact(preparation("64x46:rgb", "stretch", (31, 37), **plain, dtype="uint8", layout="NHWC"))
        whole, fine = ({"dtype": "int8", "steps": Steps(scale=s, zero_point=z)} for s, z in ((1.0, -128), (0.02, 3)))
        assert_code_is_exact(preparation("64x46:rgb", "stretch", (31, 37), **plain, **whole))
        assert_code_is_exact(preparation("64x46:rgb", "letterbox", (31, 37), **fine))


# Packages that are built for a camera: what they say, what they take, and what is refused.

CAMERA = Camera.parsed("64x48:yuv420")
ORDINARY, OF_FRAMES = Path("ordinary/digits.tar.gz"), Path("frames/digits.tar.gz")


@pytest.mark.compiles
def test_a_package_for_a_camera_says_so_and_takes_its_frames(command: Command) -> None:
    output_of(command, "build", "digits", "--output", ORDINARY.parent)
    output_of(command, "build", "digits", "--camera", str(CAMERA), "--output", OF_FRAMES.parent)
    [taken] = read_manifest(OF_FRAMES).inputs
    assert (taken.shape, taken.dtype) == ([72, 64], "uint8")
    shown = " ".join(output_of(command, "package", "show", OF_FRAMES).split())
    assert "frames: 64x48, yuv420, as a camera gives them" in shown
    usage = json.loads(output_of(command, "package", "show", OF_FRAMES, "--json"))["usage"]
    assert usage["camera"] == {"width": 64, "height": 48, "pixels": "yuv420"}
    assert usage["input"]["shape"] == [1, 1, 16, 16]
    assert "prepare_frame" in output_of(command, "run", OF_FRAMES, "--profile")

    image = cv2.resize(read_image(Program.of("digits").image()), (64, 48))
    frame, detector = frame_of(image, CAMERA), Detector(OF_FRAMES)
    found = detector.detect_frame(frame)
    assert found == Detector(ORDINARY).detect(image_of(frame, CAMERA)) == detector.detect(image)
    assert found[0].score > 0.5

    with pytest.raises(InputError, match="the image has 48x64 pixels") as raised:
        detector.detect(np.ascontiguousarray(image.transpose(1, 0, 2)))
    assert "frames of 64x48" in str(raised.value.why)
    with pytest.raises(InputError, match="takes no frames of a camera"):
        Detector(ORDINARY).detect_frame(frame)
    with pytest.raises(InputError, match="data"):
        detector.detect_frame(frame[:48])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["digits", "--camera", "63x48:yuv420"], "yuv420 needs an even width and height"),
        (["digits", "--camera", "64x48:jpeg"], "formats are yuv420, nv12, yuyv, rgb, bgr, gray"),
        (["digits", "--camera", "64x48:rgb", "--batch", "1,2"], "a camera needs a network with one shape"),
        (["net.onnx", "--camera", "64x48:rgb"], "name a demo with --demo"),
    ],
)
def test_what_no_package_can_take_is_refused(command: Command, arguments: list[str], why: str) -> None:
    tiny(Path("net.onnx"))
    assert why in refusal(command, 7, "build", *arguments)


@pytest.mark.parametrize("fit", ["contain", LineFit(kind="line", widths=[16])])
def test_ways_to_fit_images_that_no_code_is_for_are_refused(fit: Fit | LineFit) -> None:
    use = find_use("digits", camera=CAMERA)
    stage = use.part.stage.model_copy(update={"fit": fit})
    with pytest.raises(UnsupportedError) as raised:
        replace(use, part=replace(use.part, stage=stage)).of(find_source("digits").read())
    assert raised.value.hints == ("build the package without --camera",)


def test_the_camera_is_part_of_the_build_key() -> None:
    source, board = find_source("digits"), load_board("local")
    uses = [find_use("digits", camera=camera) for camera in (None, CAMERA, Camera.parsed("64x48:nv12"))]
    assert len({build_key(source, board, usage=use.usage) for use in uses if use}) == 3


@pytest.mark.parametrize("pixels", ["jpeg", "yuv420"])
def test_manifests_with_impossible_cameras_are_refused(pixels: str) -> None:
    use = find_use("digits", camera=CAMERA)
    usage = {**use.usage.model_dump(mode="json"), "camera": {"width": 63, "height": 48, "pixels": pixels}}
    with pytest.raises(ValueError, match="camera"):
        parse_manifest(changed("usage", usage))

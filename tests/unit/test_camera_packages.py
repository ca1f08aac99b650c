"""Packages that are built for a camera: what they say, what they take, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import Command
from support.commands import output_of
from support.networks import tiny
from support.packages import changed

from edgedeploy.build_key import build_key
from edgedeploy.demo.packaged import Detector
from edgedeploy.demo.program import Program
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import InputError, UnsupportedError
from edgedeploy.package.archive import read_manifest
from edgedeploy.package.manifest import parse_manifest
from edgedeploy.package.usage import Camera, Fit
from edgedeploy.target.board import load_board
from edgedeploy.vision.camera import frame_of, image_of
from edgedeploy.vision.image import read_image
from edgedeploy.vision.preprocess import LineFit
from edgedeploy.zoo.source import find_source

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
    ],
)
def test_what_no_package_can_take_is_refused(command: Command, arguments: list[str], why: str) -> None:
    code, _, err = command("build", *arguments)
    assert code != 0
    assert why in " ".join(err.split())


def test_a_network_of_which_no_demo_is_known_takes_no_frames(command: Command, tmp_path: Path) -> None:
    code, _, err = command("build", tiny(tmp_path / "net.onnx"), "--camera", "64x48:rgb")
    assert code == 7
    assert "name a demo with --demo" in err


@pytest.mark.parametrize("fit", ["contain", LineFit(kind="line", widths=[16])])
def test_ways_to_fit_images_that_no_code_is_for_are_refused(fit: Fit | LineFit) -> None:
    use = find_use("digits", camera=CAMERA)
    assert use
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
    assert use
    usage = {**use.usage.model_dump(mode="json"), "camera": {"width": 63, "height": 48, "pixels": pixels}}
    with pytest.raises(ValueError, match="camera"):
        parse_manifest(changed("usage", usage))

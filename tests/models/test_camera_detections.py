"""Packages built for a camera detect in its frames what the ordinary packages do in the same images."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from edgedeploy.building import prepare
from edgedeploy.demo.packaged import Detector
from edgedeploy.demo.program import Program
from edgedeploy.demo.usage import find_use
from edgedeploy.errors import DownloadError
from edgedeploy.package.usage import Camera
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.camera import frame_of, image_of
from edgedeploy.vision.image import read_image

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
def test_a_cameras_frame_shows_what_its_image_does(
    demo: str, camera: str, exact: bool, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", f"{shared / 'models'}:{shared / 'images'}")
    program, board, frames = Program.of(demo), resolve("local"), Camera.parsed(camera)
    model = program.parts[0].model
    try:
        image = cv2.resize(read_image(program.image()), frames.size[::-1])
        ordinary = prepare(model, board, use=find_use(model)).package_path
    except DownloadError as error:
        pytest.skip(str(error))
    package = prepare(model, board, use=find_use(model, camera=frames)).package_path
    frame, detector = frame_of(image, frames), Detector(package)
    found = detector.detect_frame(frame)
    assert detector.detect(image) == found
    wanted = Detector(ordinary).detect(image_of(frame, frames))
    assert wanted
    if exact:
        assert found == wanted
        return
    assert [each.label for each in found] == [each.label for each in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.box
        assert other.box
        assert abs(one.score - other.score) < SCORES
        assert np.abs(np.subtract(one.box, other.box)).max() < PIXELS

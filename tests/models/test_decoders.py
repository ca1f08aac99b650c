"""Decoders on real networks and images, against the same formulas as plain loops (support/plain_decoders.py)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
from support import plain_decoders as plain
from support.demo_runs import demo_network

from edgedeploy.demo.pipeline import Network
from edgedeploy.demo.spec import Stage
from edgedeploy.vision.decoders.keypoints import Landmark
from edgedeploy.vision.geometry import Frame
from edgedeploy.vision.image import read_image
from edgedeploy.vision.preprocess import input_size, place, to_tensor
from edgedeploy.vision.results import Detection

FACES = ["mtcnn_face4.jpg", "mtcnn_face6.jpg", "face5.jpg", "grace_hopper.jpg"]
SCENES = ["dog.jpg", "horses.jpg", "person.jpg", "eagle.jpg", "bike.jpg"]


@dataclass
class Seen:
    """What a network output for an image, and what the demo's decoder made of it."""

    stage: Stage
    outputs: dict[str, np.ndarray]
    frame: Frame
    found: list[Detection]


Look = Callable[..., Seen]


@pytest.fixture(scope="module")
def look(shared: Path) -> Look:
    networks = cache(lambda demo_name: demo_network(shared, demo_name))

    def run(demo_name: str, image: str) -> Seen:
        network = networks(demo_name)
        outputs, frame = run_on(network, shared / "images" / image)
        return Seen(network.stage, outputs, frame, network.stage.decoder.decode(outputs, frame, network.labels))

    return run


def run_on(network: Network, image: Path) -> tuple[dict[str, np.ndarray], Frame]:
    taken, runner = network.input, network.runner
    pixels, frame = place(read_image(image), input_size(taken, runner.inputs[0]), network.stage.fit)
    return runner.run({taken.name: to_tensor(pixels, taken)}), frame


@pytest.mark.parametrize("image", FACES)
def test_yunet(look: Look, image: str) -> None:
    seen = look("yunet", image)
    expected = plain.kept(plain.yunet(seen.outputs, seen.frame.network, seen.stage.decoder.threshold), 0.3)
    assert expected
    plain.assert_reported(seen.found, expected, seen.frame)


@pytest.mark.parametrize("image", FACES)
def test_yunet_finds_what_opencv_finds(look: Look, shared: Path, image: str) -> None:
    """OpenCV runs the network and decodes its outputs; it compares boxes of whole pixels with one another."""
    seen = look("yunet", image)
    network = next((shared / "models" / "yunet").glob("*.onnx"))
    detector = cv2.FaceDetectorYN.create(str(network), "", (320, 320), seen.stage.decoder.threshold, 0.3, 5000)
    pixels, frame = place(read_image(shared / "images" / image), (320, 320), "pad")
    _, faces = detector.detect(pixels)
    assert len(faces) == len(seen.found)
    width, height = frame.image[1] - 1, frame.image[0] - 1
    for face, found in zip(faces, seen.found, strict=True):
        corners = np.array([face[:2], face[:2] + face[2:4]]) / frame.scale
        assert np.abs(np.clip(corners, 0, (width, height)).ravel() - found.box).max() < 0.5
        assert np.abs(face[4:14].reshape(5, 2) / frame.scale - found.points).max() < 0.5
        assert found.score == pytest.approx(face[14], abs=1e-3)


@pytest.mark.parametrize("image", FACES)
def test_retinaface_of_pytorch(look: Look, image: str) -> None:
    seen = look("retinaface-pytorch", image)
    levels = [
        (step, [(side, side) for side in sides]) for step, sides in ((8, (16, 32)), (16, (64, 128)), (32, (256, 512)))
    ]
    priors = plain.priors(seen.frame.network, levels, even=False)
    places = plain.ssd(*(seen.outputs[name] for name in ("conf", "loc", "landms")), priors, 0.6)
    expected = plain.kept(places, 0.4)
    assert expected
    plain.assert_reported(seen.found, expected, seen.frame)
    for face in seen.found:
        assert face.label == "face"
        eyes, nose, mouth = (
            np.mean([y for _, y in part]) for part in (face.points[:2], face.points[2:3], face.points[3:])
        )
        assert eyes < nose < mouth


@pytest.mark.parametrize("image", FACES)
def test_retinaface(look: Look, image: str) -> None:
    seen = look("retinaface", image)
    expected = plain.kept(plain.retinaface(seen.outputs, 0.8), 0.4)
    assert expected
    plain.assert_reported(seen.found, expected, seen.frame)


@pytest.mark.parametrize("image", SCENES)
def test_yolo_fastest(look: Look, image: str) -> None:
    seen = look("yolo-fastest", image)
    decoder = seen.stage.decoder
    heads = [("output0", [(115, 73), (119, 199), (242, 238)]), ("output1", [(12, 18), (37, 49), (52, 132)])]
    for confidence, threshold in (("tengine", 0.48), ("darknet", 0.2)):
        chosen = decoder.model_copy(update={"confidence": confidence, "threshold": threshold, "tie": 0.0})
        places = [
            found
            for name, anchors in heads
            for found in plain.yolo(
                seen.outputs[name], anchors, seen.frame.network, threshold, tengine=confidence == "tengine"
            )
        ]
        expected = plain.kept(places, 0.45)
        assert expected
        plain.assert_reported(chosen.decode(seen.outputs, seen.frame, []), expected, seen.frame, clip=False)


@pytest.mark.parametrize("image", SCENES)
def test_yolo_lite(look: Look, image: str) -> None:
    """A region head, whose configuration states anchors in cells of 32 pixels."""
    cells = [(1.08, 1.19), (3.42, 4.41), (6.63, 11.38), (9.42, 5.11), (16.62, 10.52)]
    seen = look("yolo-lite", image)
    anchors = [(32 * width, 32 * height) for width, height in cells]
    for threshold in (seen.stage.decoder.threshold, 0.05):
        chosen = seen.stage.decoder.model_copy(update={"threshold": threshold})
        places = plain.yolo(seen.outputs["output0"], anchors, seen.frame.network, threshold, region=True)
        expected = plain.kept(places, 0.45, class_aware=True)
        assert expected or threshold > 0.05
        plain.assert_reported(chosen.decode(seen.outputs, seen.frame, []), expected, seen.frame)


def test_yolo_lite_sees_dog_and_bicycle(look: Look) -> None:
    """Where the published Yolo-Fastest sees them."""
    bicycle, dog = look("yolo-lite", "dog.jpg").found[:2]
    assert (bicycle.label, dog.label) == ("bicycle", "dog")
    assert plain.overlap_of(bicycle.box, (243, 187, 589, 422)) > 0.5
    assert plain.overlap_of(dog.box, (122, 221, 366, 516)) > 0.5


def test_pfld_gives_the_68_points_of_a_face(shared: Path) -> None:
    """In the order of iBUG 300-W: the jaw, brows, nose, eyes, mouth."""
    outputs, frame = run_on(demo_network(shared, "landmark", "pfld"), shared / "images" / "mobileface02.jpg")
    [face] = Landmark(kind="landmark", points=68).decode(outputs, frame, [])
    height, width = frame.image
    values = outputs["output"].ravel().tolist()
    expected = [(values[2 * index] * width, values[2 * index + 1] * height) for index in range(68)]
    points = np.array(face.points)
    assert np.allclose(points, expected, atol=1e-3)
    brows, nose, eyes, mouth = points[17:27], points[30:36], points[36:48], points[48:68]
    assert brows[:, 1].mean() < eyes[:, 1].mean() < nose[:, 1].mean() < mouth[:, 1].mean() < points[8, 1]
    assert points[0, 0] < eyes[:6, 0].mean() < nose[:, 0].mean() < eyes[6:, 0].mean() < points[16, 0]

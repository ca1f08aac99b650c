"""Images and results in the agent's C++, held against Python's: the same levels, the same boxes in the same order."""

import json
import random as random_numbers
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from support import heads
from support.agent_vision import (
    FORMATS,
    assert_same,
    described,
    input_in_cpp,
    input_in_python,
    line,
    manifest,
    results_in_cpp,
    results_in_python,
    said,
    spec,
    written,
)
from support.agents import call
from support.fuzzing import somewhere
from support.heads import NETWORK, probabilities, random

from edgedeploy.demo import spec as spec_of_demos
from edgedeploy.model.metadata import kept
from edgedeploy.package.archive import manifest_bytes
from edgedeploy.package.manifest import Manifest, parse_manifest
from edgedeploy.package.usage import PIXEL_FORMATS, Camera
from edgedeploy.vision.decoder import kind_of

pytestmark = pytest.mark.compiles

Size = tuple[int, int]

IMAGE = (300, 400)
SCORES = [spec("scores", np.zeros((1, 10), np.float32))]


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


# Images


def shows(size: tuple[int, int], fit: object, dtype: str = "float32", **fields: Any) -> Manifest:
    """A classifying network of images of a size."""
    layout, colour = fields.get("layout", "NCHW"), fields.get("colour", "RGB")
    channels = 1 if colour == "GRAY" else 3
    shape = [1, channels, *size] if layout == "NCHW" else [1, *size, channels]
    steps = fields.pop("steps", None)
    image = {"name": "image", "shape": shape, "dtype": dtype, **({"steps": steps} if steps else {})}
    fields = {"mean": [104.5, 3, 7][:channels], "scale": [0.017, 1, 2][:channels], **fields}
    return manifest(image, SCORES, {"kind": "classification"}, fit=fit, **fields)


SIZES = [((33, 57), (24, 40)), ((40, 26), (40, 26)), ((11, 9), (24, 40)), ((48, 80), (24, 40)), ((96, 120), (24, 40))]
SIZES += [((1, 1), (8, 8)), ((1, 97), (16, 16)), ((97, 1), (16, 16)), ((301, 200), (7, 90))]
SCALED = {"kind": "scaled", "shortest": 32, "multiple": 8}


@pytest.mark.parametrize("fit", ["stretch", "fill", "pad", "letterbox", "contain", {"kind": "line"}, SCALED])
@pytest.mark.parametrize(("image", "size"), SIZES)
def test_images_give_the_same_values(probe: Path, fit: object, image: Size, size: Size) -> None:
    for layout, colour in (("NCHW", "RGB"), ("NHWC", "BGR"), ("NCHW", "GRAY")):
        described = shows(size, fit, layout=layout, colour=colour)
        pixels = picture(*image)
        np.testing.assert_array_equal(input_in_cpp(probe, described, pixels), input_in_python(described, pixels))


@pytest.mark.parametrize(("image", "size"), SIZES)
def test_a_cropped_image_differs_by_a_rounded_level_here_and_there(probe: Path, image: Size, size: Size) -> None:
    """Python's sums are those of a BLAS, whose order nobody knows."""
    described = shows(size, "cover", mean=[0, 0, 0], scale=[1, 1, 1])
    pixels = picture(*image)
    apart = np.abs(input_in_cpp(probe, described, pixels) - input_in_python(described, pixels))
    assert apart.max() <= 1
    assert np.count_nonzero(apart) <= 0.02 * apart.size


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float16"])
def test_beyond_the_end_of_a_line_the_input_is_zeros(probe: Path, dtype: str) -> None:
    described, pixels = shows((24, 40), {"kind": "line"}, dtype, layout="NHWC"), picture(48, 33)
    found = input_in_cpp(probe, described, pixels)
    np.testing.assert_array_equal(found, input_in_python(described, pixels))
    assert found[:, :, :17].any()
    assert not found[:, :, 17:].any()


STEPS = {"scale": 0.37, "zero_point": 3}
WHOLE = [("stretch", dtype, steps) for dtype in ("int8", "uint8", "int16") for steps in (STEPS, None)]


@pytest.mark.parametrize(("fit", "dtype", "steps"), [*WHOLE, ("fill", "float16", None), ("fill", "float64", None)])
def test_inputs_of_other_types_get_the_same_values(probe: Path, fit: str, dtype: str, steps: object) -> None:
    described, pixels = shows((24, 40), fit, dtype, steps=steps), picture(50, 60)
    np.testing.assert_array_equal(input_in_cpp(probe, described, pixels), input_in_python(described, pixels))


def test_rows_may_lie_apart(probe: Path) -> None:
    described_use, wide = shows((24, 40), "stretch"), picture(50, 80)
    content = line({"height": 50, "width": 60, "stride": 3 * 80, "format": 0}) + wide.tobytes()
    found = np.frombuffer(said(probe, "input", written(described_use) + content), np.float32)
    wanted = input_in_python(described_use, np.ascontiguousarray(wide[:, :60]))
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    ("kind", "shape", "code"),
    [
        ("RGB", (14, 18, 3), cv2.COLOR_RGB2BGR),
        ("GRAY", (14, 18), cv2.COLOR_GRAY2BGR),
        ("I420", (600, 700), cv2.COLOR_YUV2BGR_I420),
        ("NV12", (600, 700), cv2.COLOR_YUV2BGR_NV12),
        ("YUYV", (400, 700, 2), cv2.COLOR_YUV2BGR_YUY2),
    ],
)
def test_camera_frames_become_opencvs_images(probe: Path, kind: str, shape: tuple[int, ...], code: int) -> None:
    frame = np.random.default_rng(1).integers(0, 256, shape).astype(np.uint8)
    wanted = cv2.cvtColor(frame, code)
    found = np.frombuffer(said(probe, "frame", described(frame, kind)), np.uint8)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    ("height", "width", "stride", "kind", "why"),
    [
        (0, 4, 0, "BGR", "above zero"),
        (4, -1, 0, "RGB", "above zero"),
        (1 << 20, 1 << 20, 0, "BGR", "at most 134217728"),
        (4, 4, 11, "BGR", "need 12 bytes"),
        (4, 3, 0, "YUYV", "sides are even"),
        (3, 4, 0, "I420", "sides are even"),
        (4, 4, 5, "I420", "need 4 bytes"),
        (1 << 13, 4, (1 << 63) - 1, "BGR", "the frame has"),
    ],
)
def test_impossible_frames_are_refused(probe: Path, height: int, width: int, stride: int, kind: str, why: str) -> None:
    asked = {"height": height, "width": width, "stride": stride, "format": FORMATS.index(kind)}
    done = call(probe, "frame", stdin=line(asked) + b"\0" * 64)
    assert done.returncode == 1
    assert why in done.stderr.decode()


# Frames of packages that were built for a camera


def takes(camera: Camera, **fields: Any) -> Manifest:
    """A classifying network that begins with what becomes of a camera's frames."""
    image = {"name": "image", "shape": list(camera.shape), "dtype": "uint8"}
    said_of = {"camera": camera.model_dump(mode="json"), "shape": [1, 3, 24, 40], **fields}
    return manifest(image, SCORES, {"kind": "classification"}, **said_of)


IN_CPP = {"bgr": "BGR", "rgb": "RGB", "gray": "GRAY", "yuv420": "I420", "nv12": "NV12", "yuyv": "YUYV"}


@pytest.mark.parametrize("pixels", PIXEL_FORMATS)
def test_a_cameras_frame_goes_in_as_it_is(probe: Path, pixels: Any) -> None:
    camera = Camera(width=48, height=32, pixels=pixels)
    frame = np.random.default_rng(0).integers(0, 256, camera.shape).astype(np.uint8)
    content = written(takes(camera)) + described(frame, IN_CPP[pixels])
    assert said(probe, "input", content) == frame.tobytes()


@pytest.mark.parametrize("pixels", ["yuv420", "nv12", "yuyv", "rgb"])
def test_rows_of_a_cameras_frame_may_lie_apart(probe: Path, pixels: Any) -> None:
    camera, height = Camera(width=48, height=32, pixels=pixels), 32
    frame = np.random.default_rng(0).integers(0, 256, camera.shape).astype(np.uint8)
    row = frame[0].size
    stride = row + 10
    apart = np.zeros((frame.shape[0], stride), np.uint8)
    apart[:, :row] = frame.reshape(-1, row)
    if pixels == "yuv420":  # rows of colours are half as long, and half as far apart
        colours = np.zeros((height, stride // 2), np.uint8)
        colours[:, : row // 2] = frame[height:].reshape(height, -1)
        apart = np.concatenate([apart[:height].ravel(), colours.ravel()])
    asked = {"height": height, "width": 48, "stride": stride, "format": FORMATS.index(IN_CPP[pixels])}
    assert said(probe, "input", written(takes(camera)) + line(asked) + apart.tobytes()) == frame.tobytes()


@pytest.mark.parametrize(("kind", "shape"), [("NV12", (48, 48)), ("I420", (48, 50)), ("BGR", (32, 48, 3))])
def test_other_frames_than_the_cameras_are_refused(probe: Path, kind: str, shape: tuple[int, ...]) -> None:
    content = written(takes(Camera(width=48, height=32, pixels="yuv420"))) + described(np.zeros(shape, np.uint8), kind)
    done = call(probe, "input", stdin=content)
    assert done.returncode == 1
    assert "the package takes yuv420 of 48 x 32" in done.stderr.decode()


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"camera": {"width": 64}}, "not a frame of the camera that the package names"),
        ({"camera": {"height": 33}}, "sides are even"),
        ({"camera": {"pixels": "jpeg"}}, "frames of 'jpeg' are not known here"),
        ({"camera": {"width": 0, "pixels": "rgb"}}, "width: 0 is not from 1 to 16384"),
        ({"camera": {"width": 1 << 40, "pixels": "rgb"}}, "is not from 1 to 16384"),
        ({"camera": {"pixels": None}}, "there is no field 'pixels'"),
        ({"input": {"shape": [1, 3, 1 << 40, 8]}}, "become an impossible image"),
        ({"input": {"shape": [1, 1, 8, 8]}}, "its shape is 1x1x8x8"),
        ({"input": {"shape": None}}, "there is no field 'shape'"),
    ],
)
def test_impossible_cameras_are_refused(probe: Path, fields: dict[str, Any], why: str) -> None:
    usual = {"camera": {"width": 48, "height": 32, "pixels": "yuv420"}, "input": {"name": "image"}}
    content = takes(Camera(**usual["camera"])).written()
    for name, changed in fields.items():
        stated = {**usual[name], **changed}
        content["usage"][name] = {key: value for key, value in stated.items() if value is not None}
    assert why in refused(probe, line(content))


# Results

FLOATS = {"name": "image", "shape": [1, 3, *NETWORK], "dtype": "float32"}
LOGS = {"landmark": "landmark", "landmarks": "points", "text-line": "text"}


class Given:
    """Outputs, and what a package says of them; they are at least so many results."""

    def __init__(
        self, decoder: dict[str, Any], outputs: dict[str, np.ndarray], fit: str = "pad", *, least: int = 5, **said: Any
    ) -> None:
        self.decoder, self.outputs, self.least = decoder, outputs, least
        self.said = {"fit": fit, "log": LOGS.get(decoder["kind"], "objects"), **said}

    @property
    def manifest(self) -> Manifest:
        return manifest(FLOATS, [spec(name, each) for name, each in self.outputs.items()], self.decoder, **self.said)


def yolo(kind: str, **fields: Any) -> Given:
    stated = [{"output": name, "kind": kind, "anchors": heads.ANCHORS, "scale_x_y": 1.1} for name in heads.YOLO]
    decoder = {"kind": "yolo", "threshold": 0.3, **fields}
    return Given(decoder, heads.YOLO, "stretch", labels=["cat", "dog"], heads=stated)


def ssd(**fields: Any) -> Given:
    return Given({**heads.SSD_FIELDS, "points": "points", **fields}, heads.SSD)


def retinaface() -> Given:
    outputs = {}
    for stride in (32, 16, 8):
        rows, columns = NETWORK[0] // stride, NETWORK[1] // stride
        outputs[f"face_rpn_cls_prob_reshape_stride{stride}"] = probabilities(1, 4, rows, columns, seed=stride)
        outputs[f"face_rpn_bbox_pred_stride{stride}"] = random(1, 8, rows, columns, seed=stride + 1)
        outputs[f"face_rpn_landmark_pred_stride{stride}"] = random(1, 20, rows, columns, seed=stride + 2)
    return Given({"kind": "retinaface", "tie": 0.01}, outputs)


def nanodet(fields: dict[str, Any], outputs: dict[str, np.ndarray], **more: Any) -> Given:
    return Given({"kind": "nanodet", "threshold": 0.8, **fields, **more}, outputs)


def efficientdet(fields: dict[str, Any], outputs: dict[str, np.ndarray]) -> Given:
    return Given({"kind": "efficientdet", "threshold": 0.2, **fields}, outputs)


def ultralytics(task: str | None, form: str, **fields: Any) -> Given:
    names = {number: f"thing {number}" for number in range(4)}
    boxes, scores, generator = heads.places(NETWORK, 4, 3, crafted=True)
    count = len(boxes)
    extras = {
        "pose": np.concatenate(
            [generator.uniform(0, 160, (count, 5, 2)), generator.random((count, 5, 1))], axis=2
        ).reshape(count, 15),
        "obb": generator.uniform(-1, 2, (count, 1)),
        "segment": generator.normal(0, 1, (count, 8)),
    }.get(task or "", np.zeros((count, 0)))
    if form == "chosen":
        table = heads.chosen(boxes, scores, extras, most=40)
    elif form == "objectness":
        sure = np.sqrt(scores.max(axis=1, keepdims=True))
        table = np.concatenate([boxes, sure, scores, extras], axis=1)[None]
    else:
        table = heads.channels(boxes, scores, extras)
    outputs = {"output0": np.ascontiguousarray(table, np.float32)}
    if task == "segment":
        outputs["output1"] = random(1, 8, NETWORK[0] // 4, NETWORK[1] // 4, seed=5)
    said_of = {"names": names, "kpt_shape": [5, 3], **({"task": task} if task else {})}
    metadata = kept((key, str(value)) for key, value in said_of.items())
    return Given({"kind": "ultralytics", **fields}, outputs, "letterbox", metadata=dict(metadata))


def blaze() -> Given:
    count = 2 * 12 * 20 + 6 * 6 * 10
    values = random(1, count, 12) * 20
    values[..., 2:4] = np.abs(values[..., 2:4]) * 2
    levels = [{"stride": 8, "anchors": 2}, {"stride": 16, "anchors": 6}]
    decoder = {"kind": "blaze", "scores": "s", "boxes": "b", "points": 4, "levels": levels, "name": "palm"}
    return Given(decoder, {"b": values, "s": random(1, count, 1, seed=3)}, "contain")


def landmarks(**fields: Any) -> Given:
    outputs = {
        "p": random(1, 39 * 5) * 20 + 60,
        "sure": np.array([[2.0]], np.float32),
        "left": np.array([[0.3]], np.float32),
        "heat": random(1, 24, 40, 39, seed=2) * 3,
        "lips": random(1, 1, 8, seed=4) * 10 + 50,
    }
    decoder = {"kind": "landmarks", "output": "p", "values": 5, "score": "sure", "logits": True}
    return Given({**decoder, **fields}, outputs, "contain", least=1)


def segmentation(outputs: np.ndarray, least: int = 4, **fields: Any) -> Given:
    return Given({"kind": "segmentation", **fields}, {"o": outputs}, "letterbox", labels=["sky", "road"], least=least)


def depth(*shape: int) -> Given:
    return Given({"kind": "depth"}, {"o": random(*shape)}, "fill", least=1)


def text_regions(least: int = 5, **fields: Any) -> Given:
    """Lines of text at several angles, rings, and specks, in which pixels have different probabilities."""
    generator = np.random.default_rng(5)
    mask = np.zeros(NETWORK, np.uint8)
    strokes = (((30, 12), (40, 7), 0), ((100, 14), (60, 9), -6), ((30, 50), (30, 10), 25), ((140, 60), (8, 40), 3))
    for stroke in strokes:
        cv2.fillPoly(mask, [np.rint(cv2.boxPoints(stroke)).astype(np.int32)], 1)
    cv2.rectangle(mask, (60, 34), (110, 60), 1, 4)
    cv2.ellipse(mask, (70, 80), (40, 8), 4, 0, 360, 1, -1)
    mask[generator.random(NETWORK) < 0.01] = 1
    values = np.where(mask, generator.random(NETWORK) * 0.6 + 0.4, generator.random(NETWORK) * 0.2)
    return Given(
        {"kind": "text-regions", **fields}, {"map": values[None, None].astype(np.float32)}, "fill", least=least
    )


def text_line(*labels: str, **metadata: str) -> Given:
    """Characters, blanks and the space, some of them several times in a row."""
    best = [0, 1, 1, 0, 1, 2, 4, 4, 3, 0, 0, 5, 2]
    table = probabilities(1, len(best), 6) * 0.3
    table[0, np.arange(len(best)), best] = 0.9
    return Given({"kind": "text-line"}, {"o": table}, "fill", labels=list(labels), metadata=metadata, least=1)


CASES: dict[str, Callable[[], Given]] = {
    "blaze": blaze,
    "landmarks": landmarks,
    "landmarks, the first": lambda: landmarks(points=33, guides=[33, 34], lines=[[0, 1, 2]], depth_scale=0.4),
    "landmarks, of classes": lambda: landmarks(classes="left", names=["Left", "Right"], values=3),
    "landmarks, by heat": lambda: landmarks(heatmap={"output": "heat", "kernel": 9, "threshold": 0.5}),
    "landmarks, refined": lambda: landmarks(
        values=3, refinements=[{"output": "lips", "points": [3, 4, 65, 66], "depth_of": [1, 2]}]
    ),
    "segmentation": lambda: segmentation(random(1, 6, 12, 20), background=0),
    "segmentation, NHWC": lambda: segmentation(random(1, 48, 80, 5), layout="NHWC"),
    "segmentation, one class": lambda: segmentation(random(1, 1, 24, 40), 1, threshold=0.2),
    "segmentation, classes": lambda: segmentation(np.random.default_rng(0).integers(0, 7, (1, 24, 40))),
    "depth": lambda: depth(1, 1, 24, 40),
    "depth, of the input's size": lambda: depth(1, *NETWORK),
    "text-regions": text_regions,
    "text-regions, as they are": lambda: text_regions(dilate=False, unclip=2.1, pixel_threshold=0.5, threshold=0.3),
    "text-regions, few": lambda: text_regions(2, candidates=60, threshold=0),
    "text-line": lambda: text_line("a", "b", "é", "犬"),
    "text-line, of the file": lambda: text_line(character="a\nb\r\n\x0bé\u2028犬\n"),
    "text-line, with few labels": lambda: text_line("a"),
    "classification": lambda: Given({"kind": "classification"}, {"o": probabilities(1, 300, 1, 1)}, labels=["a"] * 200),
    "landmark": lambda: Given({"kind": "landmark", "points": 106}, {"p": probabilities(1, 212)}, "stretch", least=1),
    "yolo": lambda: yolo("yolo"),
    "yolo, as tengine": lambda: yolo("yolo", confidence="tengine", threshold=0.6),
    "yolo, regions": lambda: yolo("region", suppression="class_aware"),
    "yolo, few candidates": lambda: yolo("yolo", candidates=20, clip=True),
    "ssd": ssd,
    "ssd, spread": lambda: ssd(spacing="even", variances=(0.2, 0.3), suppression="class_aware"),
    "ssd, rows first": lambda: ssd(box_format="cycxhw", background="last"),
    "ssd, centres": lambda: ssd(levels=None, box_format="cxcywh", background="none", points=None, clip=False),
    "ssd, corners, rows first": lambda: ssd(levels=None, box_format="yxyx", threshold=0.2, points=None, clip=False),
    "ssd, corners": lambda: ssd(levels=None, iou_threshold=1, threshold=0.2, points=None, clip=False),
    "retinaface": retinaface,
    "yunet": lambda: Given({"kind": "yunet"}, heads.YUNET),
    "yolox": lambda: Given({"kind": "yolox", "iou_threshold": 0.3}, {"mine": heads.YOLOX}, names=["output"]),
    "nanodet": lambda: nanodet({"output": "o"}, {"o": np.concatenate(heads.SIDES, axis=2)}, suppression="class_aware"),
    "nanodet, by level": lambda: nanodet(*heads.nanodet_levels(), offset=0),
    "efficientdet": lambda: efficientdet({"scores": ["s"], "boxes": ["b"]}, heads.EFFICIENTDET),
    "efficientdet, NHWC": lambda: efficientdet(*heads.efficientdet_levels("NHWC")),
    "efficientdet, NCHW": lambda: efficientdet(*heads.efficientdet_levels("NCHW")),
    "ultralytics": lambda: ultralytics("detect", "channels"),
    "ultralytics, any class": lambda: ultralytics("detect", "channels", suppression="agnostic", most=7),
    "ultralytics, v5": lambda: ultralytics(None, "objectness"),
    "ultralytics, chosen": lambda: ultralytics("detect", "chosen"),
    "ultralytics, points": lambda: ultralytics("pose", "channels"),
    "ultralytics, chosen points": lambda: ultralytics("pose", "chosen"),
    "ultralytics, turned": lambda: ultralytics("obb", "channels"),
    "ultralytics, chosen turned": lambda: ultralytics("obb", "chosen"),
    "ultralytics, masks": lambda: ultralytics("segment", "channels"),
    "ultralytics, chosen masks": lambda: ultralytics("segment", "chosen"),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_become_the_same_results(probe: Path, name: str) -> None:
    given = CASES[name]()
    for image in (IMAGE, (53, 311)):
        wanted = results_in_python(given.manifest, list(given.outputs.values()), image)
        assert len(wanted) >= given.least
        assert_same(results_in_cpp(probe, given.manifest, list(given.outputs.values()), image), wanted)


@pytest.mark.parametrize("name", CASES)
def test_nan_and_infinities_harm_no_other_result(probe: Path, name: str) -> None:
    given, generator = CASES[name](), np.random.default_rng(4)
    outputs = []
    for each in given.outputs.values():
        damaged = each.copy()
        where = (generator.random(each.shape) < 0.01) & (each.dtype.kind == "f")
        damaged[where] = generator.choice(np.array([np.nan, np.inf, -np.inf, 1e38, -1e38], np.float32), where.sum())
        outputs.append(damaged)
    if given.decoder["kind"] in ("classification", "landmark", "depth", "segmentation"):  # which report them
        results_in_cpp(probe, given.manifest, outputs, IMAGE)
        return
    with np.errstate(all="ignore"):
        wanted = results_in_python(given.manifest, outputs, IMAGE)
    # A mask is a sum, and not the same one of values that overflow.
    assert_same(results_in_cpp(probe, given.manifest, outputs, IMAGE), wanted, masks=False)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_integers_stand_for_what_their_steps_say(probe: Path, dtype: str) -> None:
    given = yolo("yolo")
    integers = [np.random.default_rng(2).integers(0, 100, each.shape).astype(dtype) for each in given.outputs.values()]
    steps = {"scale": 0.05, "zero_point": 50}
    specs = [spec(name, each, steps) for name, each in zip(given.outputs, integers, strict=True)]
    described = manifest(FLOATS, specs, given.decoder, heads=given.said["heads"])
    wanted = results_in_python(described, integers, IMAGE)
    assert len(wanted) > 5
    assert_same(results_in_cpp(probe, described, integers, IMAGE), wanted)


def refused(probe: Path, given: Manifest | bytes) -> str:
    text = given if isinstance(given, bytes) else written(given)
    done = call(probe, "results", stdin=text + line({"height": 4, "width": 4}) + b"\0" * (1 << 20))
    assert done.returncode == 1
    return done.stderr.decode()


# Fields of drawings and of later images, and the task, which the agent reads from the network's file as well.
NOT_DESCRIBED = {"kind", "guides", "lines", "task"}

Said = dict[tuple[str, ...], Any]  # what a schema says of a field, by the path of the field and the word for it


def in_float32(value: Any) -> Any:
    """With numbers of the precision that the agent has for most of them."""
    if isinstance(value, list | tuple):
        return [in_float32(each) for each in value]
    return float(np.float32(value)) if type(value) in (int, float) else value


def limits_of(part: dict[str, Any]) -> dict[str, Any]:
    names = ["minimum", "exclusiveMinimum", "maximum", "enum", *(["minItems"] if "items" in part else [])]
    found = {name: part[name] for name in names if name in part}
    if part.get("type") == "integer" and "exclusiveMinimum" in part:
        found["minimum"] = found.pop("exclusiveMinimum") + 1
    if part.get("type") == "integer" and "exclusiveMaximum" in part:
        found["maximum"] = part["exclusiveMaximum"] - 1
    return found


def said_by_the_record(record: dict[str, Any], records: dict[str, Any], *path: str) -> Said:
    """Limits of a list's items are those of the list."""
    said = {}
    for name, part in record["properties"].items():
        at, required, parts = (*path, name), name in record.get("required", []), [part]
        while inner := next((parts[-1][word] for word in ("anyOf", "prefixItems", "items") if word in parts[-1]), None):
            parts.append(inner[0] if isinstance(inner, list) else inner)
        for each in reversed(parts):
            said |= {(*at, word): in_float32(limit) for word, limit in limits_of(each).items()}
        said[(*at, "required")] = required
        if reference := parts[-1].get("$ref"):
            said |= said_by_the_record(records[reference.rpartition("/")[2]], records, *at)
        elif not required:
            said[(*at, "default")] = in_float32(part["default"])
    return said


def said_by_the_agent(schema: dict[str, Any], *path: str) -> Said:
    said = {}
    for name, field in schema.items():
        said |= said_by_the_agent(field.pop("fields", {}), *path, name)
        said |= {(*path, name, word): in_float32(value) for word, value in field.items()}
    return said


def test_the_agents_decoders_have_the_parameters_of_the_records(probe: Path) -> None:
    """The same names, and for each the same limits, words and default."""
    schemas = json.loads(said(probe, "schemas", b""))
    kinds = {kind: each for each in vars(spec_of_demos).values() if (kind := kind_of(each))}
    assert schemas.keys() == kinds.keys()
    for kind, decoder in kinds.items():
        schema = decoder.model_json_schema()
        wanted = said_by_the_record(schema, schema.get("$defs", {}))
        found = said_by_the_agent(schemas[kind])
        # The agent has defaults of required fields and of records, and limits of numbers that have none in Python.
        found = {at: found[at] for at in found if at in wanted or at[-1] not in ("default", "maximum")}
        assert {at: found[at] for at in found if at[0] not in NOT_DESCRIBED} == {
            at: wanted[at] for at in wanted if at[0] not in NOT_DESCRIBED
        }, kind


def changed_usage(**fields: Any) -> bytes:
    content = yolo("yolo").manifest.written()
    return line({**content, "usage": {**content["usage"], **fields}})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"decoder": {"kind": "of tomorrow", "threshold": 1}}, "decoder 'of tomorrow' is not known here"),
        ({"decoder": {"kind": "yolo", "threshold": 0.3, "new": 1}}, "the field 'new' is not known"),
        ({"decoder": {"kind": "yolo"}}, "there is no field 'threshold'"),
        ({"decoder": {"kind": "yolo", "threshold": 2}}, "threshold: 2 is not from 0 to 1"),
        ({"decoder": {"kind": "yolo", "threshold": "x"}}, "it is not a number"),
        ({"decoder": {"kind": "yolo", "threshold": 0.3, "suppression": "none"}}, "suppression: it cannot be 'none'"),
        ({"decoder": {"kind": "yolo", "threshold": 0.3, "candidates": 0}}, "candidates: 0 is below 1"),
        ({"decoder": {"kind": "yolox", "strides": [0]}}, "0 is not from 1 to 4096"),
        ({"decoder": {"kind": "yolox"}}, "it has no output 'output', only large, small"),
        ({"decoder": {"kind": "yolox", "output": "large"}}, "its output 'large' is 1x24x3x5, not 1x315xM"),
        ({"decoder": {"kind": "efficientdet", "scores": ["large"], "boxes": []}}, "boxes: it is empty"),
        ({"fit": {"kind": "of tomorrow"}}, "the fit 'of tomorrow' of the package is not known here"),
        ({"fit": "of tomorrow"}, "the fit 'of tomorrow' of the package is not known here"),
    ],
)
def test_what_is_not_known_here_is_told(probe: Path, fields: dict[str, Any], why: str) -> None:
    """The package can be run nevertheless: its manifest is sound."""
    text = changed_usage(**fields)
    assert call(probe, "manifest", stdin=text.strip().hex().encode() + b"\n").stdout == b"net\n"
    assert why in refused(probe, text)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"demo": None}, "it is not a string"),
        ({"stage": 0}, "stage: 0 is below 1"),
        ({"decoder": {}}, "there is no field 'kind'"),
        ({"decoder": "yolo"}, "it is not an object"),
        ({"fit": {}}, "there is no field 'kind'"),
        ({"fit": None}, "it is not a string"),
        ({"labels": [1]}, "it is not a string"),
        ({"input": {"mean": [1]}}, "mean and scale need 3 values each"),
        ({"input": {"scale": ["1", "1", "1"]}}, "it is not a number"),
    ],
)
def test_a_use_that_no_package_has_is_refused_with_the_manifest(probe: Path, fields: dict[str, Any], why: str) -> None:
    assert why in refused(probe, changed_usage(**fields))


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"task": "detect", "names": "{0: 'a'"}, "the entry 'names' of the network's metadata cannot be read"),
        ({"task": "detect", "names": "{0: 'a', 99999999999: 'b'}"}, "the entry 'names'"),
        ({"task": "detect", "names": "{-1: 'a'}"}, "the entry 'names'"),
        ({"task": "detect", "names": r"{0: '\ud800'}"}, "the entry 'names'"),
        ({"task": "detect", "names": "[" * 50000}, "the entry 'names'"),
        ({"task": "pose", "kpt_shape": "[0, 3]"}, "the entry 'kpt_shape'"),
        ({"task": "pose", "kpt_shape": "[17, 4]"}, "the entry 'kpt_shape'"),
        ({"task": "Detect"}, "the entry 'task'"),
        ({"task": "depth"}, "results of the task 'depth' are not known here"),
    ],
)
def test_metadata_that_cannot_be_read_is_told(probe: Path, metadata: dict[str, str], why: str) -> None:
    content = ultralytics("detect", "channels").manifest.written()
    assert why in refused(probe, line({**content, "metadata": metadata}))


def test_names_of_classes_are_read_as_python_writes_them(probe: Path) -> None:
    names = {0: "it's", 1: 'a "b"', 2: "Bäckerei\n", 3: "\\x", 5: "\x07犬"}
    given = ultralytics("detect", "channels")
    boxes, _, _ = heads.places(NETWORK, 6, 3, crafted=True)
    scores = np.zeros((len(boxes), 6), np.float32)
    scores[np.arange(6) * 30, np.arange(6)] = 0.9
    table = heads.channels(boxes, scores)
    metadata = {"task": "detect", "names": str(names)}
    described = Given(given.decoder, {"output0": table}, "letterbox", metadata=metadata).manifest
    found = results_in_cpp(probe, described, [table], IMAGE)
    assert {each["class_id"]: each["label"] for each in found} == {**names, 4: "4"}


OF_USES = ("usage", "heads", "metadata")
STRANGE: list[Any] = [None, True, 0, 1, -1, 2**31, 2**63, 1e-3, -0.5, 1e300, "", "x", "GRAY", [], {}, [4], [1, 2, 3]]


def test_a_use_that_edgedeploy_takes_is_one_that_the_agent_takes(probe: Path) -> None:
    generator, taken = random_numbers.Random(3), []
    contents = [CASES[name]().manifest.written() for name in ("yolo", "ssd", "ultralytics, points", "landmark")]
    for _ in range(1500):
        content = json.loads(json.dumps(generator.choice(contents)))
        node, key = somewhere({name: content[name] for name in OF_USES}, generator)
        node[key] = generator.choice(STRANGE)
        with suppress(ValueError):
            taken.append(manifest_bytes(parse_manifest(json.dumps(content).encode())))
    assert len(taken) > 100
    done = call(probe, "manifest", stdin=b"".join(each.hex().encode() + b"\n" for each in taken))
    assert done.stdout.decode().splitlines() == ["net"] * len(taken)


def test_damaged_uses_are_refused_or_read_but_never_crash(probe: Path) -> None:
    generator = random_numbers.Random(6)
    for name in CASES:
        given = CASES[name]()
        content = given.manifest.written()
        outputs = b"".join(each.tobytes() for each in given.outputs.values())
        for _ in range(4):
            damaged = json.loads(json.dumps({name: content[name] for name in OF_USES}))
            node, key = somewhere(damaged, generator)
            node[key] = generator.choice([*STRANGE, 1 << 40, [[]], [-1, 2], {"kind": "ssd"}])
            stdin = line({**content, **damaged}) + line({"height": 9, "width": 7}) + outputs
            assert call(probe, "results", stdin=stdin).returncode in (0, 1)

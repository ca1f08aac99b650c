"""What the agent's C++ makes of images and of outputs, and what Python makes of the same, by one manifest."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgedeploy.demo.pipeline import called, placed
from edgedeploy.demo.program import look_of
from edgedeploy.package.manifest import Manifest, parse_manifest
from edgedeploy.vision.preprocess import input_size, place
from edgedeploy.vision.results import Detection
from support.agents import call
from support.packages import document, selftest

FORMATS = ("BGR", "RGB", "GRAY", "I420", "NV12", "YUYV")


def spec(name: str, array: np.ndarray, steps: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "dtype": str(array.dtype), **({"steps": steps} if steps else {})}


def manifest(
    image: dict[str, Any],
    outputs: Sequence[dict[str, Any]],
    decoder: dict[str, Any],
    *,
    fit: object = "stretch",
    labels: Sequence[str] = (),
    names: Sequence[str] = (),
    heads: Sequence[dict[str, Any]] = (),
    metadata: Mapping[str, str] | None = None,
    log: str = "objects",
    camera: Mapping[str, Any] | None = None,
    **preparation: object,
) -> Manifest:
    """That of a package whose one input is `image`, and whose use is as given; its files are none.

    With a camera, `image` is the frame, and `shape` what it becomes.
    """
    usage = {"demo": "mine", "input": {"name": image["name"], "shape": image["shape"], **preparation}, "fit": fit}
    usage |= {"decoder": decoder, "log": log, "labels": list(labels), "outputs": list(names)}
    usage |= {"camera": camera} if camera else {}
    tensors = {"input-0.bin": image} | {f"output-{number}.bin": each for number, each in enumerate(outputs)}
    whole = document()
    for name, each in tensors.items():
        size = int(np.prod(each["shape"])) * np.dtype(each["dtype"]).itemsize
        whole["files"][name] = {"size": size, "sha256": "0" * 64}
    read, *made = tensors
    tolerances = {"relative": [1e-4] * len(made), "spread": [None] * len(made)}
    whole |= {"inputs": [image], "outputs": list(outputs), "heads": list(heads), "metadata": dict(metadata or {})}
    whole |= {"usage": usage, "selftest": selftest(inputs=[read], outputs=made, **tolerances)}
    return parse_manifest(json.dumps(whole).encode())


def line(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"


def written(manifest: Manifest) -> bytes:
    return line(manifest.written())


def said(probe: Path, part: str, stdin: bytes) -> bytes:
    done = call(probe, part, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def described(image: np.ndarray, kind: str) -> bytes:
    """A frame as the probe reads it; of formats with planes `image` has all of them, one below the other."""
    height = image.shape[0] * 2 // 3 if kind in ("I420", "NV12") else image.shape[0]
    said_of = {"height": height, "width": image.shape[1], "stride": 0, "format": FORMATS.index(kind)}
    return line(said_of) + image.tobytes()


def input_in_cpp(probe: Path, manifest: Manifest, image: np.ndarray) -> np.ndarray:
    content = said(probe, "input", written(manifest) + described(image, "BGR"))
    [tensor] = manifest.inputs
    return np.frombuffer(content, tensor.dtype).reshape(tensor.shape)


def input_in_python(manifest: Manifest, image: np.ndarray) -> np.ndarray:
    look = look_of(manifest, Path("net")).fitted(manifest)
    [tensor] = manifest.inputs
    tensors, _ = placed(image, look.stage, look.input, tensor)
    return tensors[tensor.name]


def results_in_cpp(
    probe: Path, manifest: Manifest, outputs: Sequence[np.ndarray], image: tuple[int, int]
) -> list[dict[str, Any]]:
    content = b"".join(np.ascontiguousarray(each).tobytes() for each in outputs)
    stdin = written(manifest) + line({"height": image[0], "width": image[1]}) + content
    return list(json.loads(said(probe, "results", stdin)))


def results_in_python(manifest: Manifest, outputs: Sequence[np.ndarray], image: tuple[int, int]) -> list[Detection]:
    look = look_of(manifest, Path("net")).fitted(manifest)
    names = called([spec.name for spec in manifest.outputs], look.outputs)
    real = [
        each if spec.steps is None else spec.steps.values(each)
        for spec, each in zip(manifest.outputs, outputs, strict=True)
    ]
    _, frame = place(np.zeros((*image, 3), np.uint8), input_size(look.input, manifest.inputs[0]), look.stage.fit)
    return look.stage.decoder.decode(dict(zip(names, real, strict=True)), frame, look.labels)


def assert_same(found: Sequence[dict[str, Any]], wanted: Sequence[Detection], *, masks: bool = True) -> None:
    """As many results in the same order, with the same labels, and places that differ by less than 1e-4 pixels of those
    that are no farther away than a large image is wide. JSON has no infinite numbers; null stands for them."""
    expected = [each.as_dict() for each in wanted]
    assert [each["class_id"] for each in found] == [each["class_id"] for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert one["label"] == other["label"]
        assert not masks or one.get("mask") == other.get("mask")
        for name in ("score", "box", "corners", "points", "point_scores", "depths"):
            values = [np.array(each.get(name), np.float64) for each in (one, other)]
            values = [np.where(np.isfinite(each), each, np.nan) for each in values]
            tolerance = 1e-6 if "score" in name else 1e-4
            np.testing.assert_allclose(*values, rtol=2e-6, atol=tolerance, err_msg=name)
        for name, value in (other.get("surface") or {}).items():
            np.testing.assert_allclose(one["surface"][name], value, rtol=1e-5, atol=1e-5, err_msg=name)

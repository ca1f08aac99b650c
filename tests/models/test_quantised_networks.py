"""Networks that onnxruntime's own quantiser makes of the development material give what onnxruntime gives.

Of quantised operators to the last bit. Of dynamic ones the same class: their scales follow from values, so that changes
of a few millionths in the input move onnxruntime's own outputs by up to a tenth of the largest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import SHARED
from support.quantised_networks import FORMS, image_samples, quantise
from support.running import outputs_of

from edgedeploy.compile.pipeline import compile_network
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.target.board import load_board

IMAGES = sorted((SHARED / "images" / "imagenet").glob("*.JPEG"))

# By entry of the zoo: its file, and how it is quantised.
CASES = [
    ("mobilenet_v1_0.25", "mobilenet_v1/mobilenet_v1_0.25_224_float.onnx", "operators-u8s8-channels"),
    ("mobilenet_v1_0.25", "mobilenet_v1/mobilenet_v1_0.25_224_float.onnx", "dynamic-s8"),
    ("resnet18-cifar10", "resnet18_cifar10/resnet18_cifar10_tengine.onnx", "operators-s8s8"),
    ("resnet18-cifar10", "resnet18_cifar10/resnet18_cifar10_tengine.onnx", "dynamic-u8-channels"),
    ("squeezenet_v1.1-onnx", "squeezenet_v1.1/squeezenet_v1.1_227.onnx", "operators-u8u8"),
]

pytestmark = pytest.mark.skipif(not IMAGES, reason=f"there are no images in {SHARED / 'images'}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("model", "file", "form"), CASES, ids=lambda value: Path(value).stem)
def test_a_quantised_network_matches_onnxruntime(model: str, file: str, form: str, tmp_path: Path) -> None:
    path = quantise(SHARED / "models" / file, tmp_path / "net.onnx", FORMS[form], image_samples(model, IMAGES[:8]))
    network = read_onnx(path)
    compiled = compile_network(network, load_board("local"))
    same = 0
    for inputs in image_samples(model, IMAGES[::2]):
        [found], [wanted] = outputs_of(compiled, inputs), network.reference(inputs).values()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        if FORMS[form].kind == "operators":
            np.testing.assert_array_equal(found, wanted)
        same += int(np.argmax(found) == np.argmax(wanted))
    assert same >= len(IMAGES[::2]) - 1

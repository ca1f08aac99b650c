"""Networks of the development material, of TensorFlow Lite and ONNX, give the values of LiteRT and of onnxruntime."""

import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from conftest import SHARED
from support.agreement import FILES, NETWORKS, SHAPES, outputs_of, random_inputs, results_of, serial_functions

from edgedeploy.compile.output.explain import explain
from edgedeploy.compile.pipeline import Compiled, compile_network, lower_network
from edgedeploy.demo.pipeline import infer_with
from edgedeploy.demo.program import Program
from edgedeploy.frontends.formats import describing
from edgedeploy.frontends.onnx import read_onnx
from edgedeploy.model.network import Network
from edgedeploy.runtime.opening import Place
from edgedeploy.selftest.tolerance import EXACT, TOLERANCE
from edgedeploy.target.board import load_board
from edgedeploy.target.resolved import resolve
from edgedeploy.vision.frames import resize
from edgedeploy.vision.image import read_image

FLOAT = [
    "mlperf_tiny/resnet8_cifar10_fp32.tflite",
    "mlperf_tiny/vww_mobilenet_v1_025_96_fp32.tflite",
    "mobilenet_v1/mobilenet_v1_0.25_224_float.tflite",
]
BYTES = "mobilenet_v1/mobilenet_v1_0.25_224_quant.tflite"
INTEGER = [
    "mlperf_tiny/resnet8_cifar10_int8.tflite",
    BYTES,
    pytest.param("mobilenet_v2/mobilenet_v2_1.0_224_quant.tflite", marks=pytest.mark.slow),
]


def network_of(shared: Path, name: str) -> Network:
    path = shared / "models" / name
    return describing(path)[0].read([path], {})


def pixels_of(image: Path, rows: int, columns: int) -> np.ndarray:
    return cv2.cvtColor(resize(cv2.imread(str(image)), rows, columns), cv2.COLOR_BGR2RGB)[None]


@pytest.mark.quick("mobilenet_v1/mobilenet_v1_0.25_224_float.tflite")
@pytest.mark.parametrize("name", FLOAT)
def test_values_are_litert_s(shared: Path, name: str) -> None:
    network = network_of(shared, name)
    compiled = compile_network(network, load_board("local"))
    for array, expected in results_of(compiled, network, random_inputs(network, 0)):
        assert np.abs(array - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("board", ["local", "rpi4"])
@pytest.mark.parametrize("name", FLOAT)
def test_every_function_has_a_template_and_nothing_is_transposed(shared: Path, name: str, board: str) -> None:
    report = explain(lower_network(network_of(shared, name), load_board(board)))
    assert [record["function"] for record in report["functions"] if record["fallback"]] == []
    assert report["transposes"] == {"edges": 0, "inside": 0}


@pytest.mark.quick("mlperf_tiny/*")
@pytest.mark.parametrize("name", INTEGER)
def test_quantised_networks_agree_with_litert_as_its_own_kernels_do(shared: Path, name: str) -> None:
    """On real images, of which most have the same first class; and without transposes, weights in their integers."""
    network = network_of(shared, name)
    compiled = compile_network(network, load_board("local"))
    assert explain(compiled)["transposes"]["inside"] == 0
    [given], same, away, between = network.inputs, 0, [], []
    images = sorted((shared / "images").rglob("*.jpg"))[:12]
    for path in images:
        pixels = pixels_of(path, *given.shape[1:3])
        levels = pixels if given.dtype == "uint8" else (pixels.astype(np.int16) - 128).astype(np.int8)
        inputs = {given.name: levels}
        [found] = outputs_of(compiled, inputs)
        [wanted] = network.reference(inputs).values()
        [other] = network.other_kernels[0](inputs).values()
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        same += int(found.argmax() == wanted.argmax())
        away.append(np.abs(found.astype(int) - wanted).max())
        between.append(np.abs(other.astype(int) - wanted).max())
    assert same >= len(images) - 1
    assert np.mean(away) <= 1.25 * np.mean(between)


def test_litert_s_recorded_outputs_are_met_from_the_very_bytes(shared: Path) -> None:
    recorded = np.load(shared / "reference" / "litert_mobilenet_v1_0.25_224_quant.npz")
    network = network_of(shared, BYTES)
    compiled = compile_network(network, load_board("local"))
    for image, wanted in zip(recorded["input_u8_nhwc_rgb"], recorded["output"], strict=True):
        [found] = outputs_of(compiled, {"input": image[None]})
        [spec] = network.outputs
        values = spec.steps.values(found[0])
        assert values.argmax() == wanted.argmax()
        assert np.abs(values - wanted).max() < 0.06


def test_the_demo_shows_litert_s_first_five(shared: Path) -> None:
    program, image = Program.of("classification", str(shared / "models" / BYTES)), shared / "images" / "cat.jpg"
    with program.opened(Place(resolve("local"))) as session:
        results = infer_with(read_image(image), session.networks).detections
    [wanted] = network_of(shared, BYTES).reference({"input": pixels_of(image, 224, 224)}).values()
    first = np.argsort(-wanted[0].astype(int), kind="stable")[:5]
    assert [each.class_id for each in results] == first.tolist()
    np.testing.assert_allclose([each.score for each in results], wanted[0, first] / 256, rtol=0, atol=0.02)


# ONNX networks: quantised ones give onnxruntime's outputs exactly, and none falls back to serial scalar loops.


@pytest.mark.skipif(not FILES and "CI" not in os.environ, reason=f"there are no networks in {SHARED / 'models'}")
def test_there_are_networks_to_compare() -> None:
    assert len(FILES) >= 18


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    path: Path = request.param
    return read_onnx(path, SHAPES.get(path.name))


@pytest.fixture(scope="module")
def compiled(network: Network) -> Compiled:
    return compile_network(network, load_board("local"))


@pytest.mark.quick("mobilenetv2_int8_static", "retinaface_mnet25_316x474", "yolo-fastest-1.1_320")
def test_outputs_agree(network: Network, compiled: Compiled) -> None:
    relative, absolute = EXACT if network.quantised else TOLERANCE
    for array, wanted in results_of(compiled, network, random_inputs(network, 0)):
        assert np.abs(array - wanted).max() <= relative * np.abs(wanted).max() + absolute


def test_no_function_computes_value_by_value_on_one_thread(compiled: Compiled) -> None:
    assert serial_functions(compiled) == {}


@pytest.mark.quick("mobilenet_v1_0.25_224_qdq", "retinaface_mnet25_dyn")
@pytest.mark.parametrize("path", NETWORKS)
def test_no_function_computes_value_by_value_on_arm(path: Path) -> None:
    network = read_onnx(path, SHAPES.get(path.name))
    assert serial_functions(lower_network(network, load_board("rpi4"))) == {}

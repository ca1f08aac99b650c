"""Real Darknet networks against OpenCV's outputs and against a second implementation."""

from pathlib import Path

import numpy as np
import pytest
from conftest import Command
from support.agreement import assert_near, computed, run_onnx
from support.commands import output_of, refused
from support.darknet_interpreter import interpret

from edgedeploy.frontends.darknet import FORMAT
from edgedeploy.frontends.darknet.configuration import read_sections
from edgedeploy.frontends.darknet.graph import RandomWeights
from edgedeploy.frontends.darknet.translation import translated
from edgedeploy.frontends.format import ImportOptions
from edgedeploy.package.archive import read_manifest

# Files, OpenCV's outputs (cv2.dnn of OpenCV 4, whose epsilon is 1e-6), and the names of ours in the same order.
WITH_WEIGHTS = {
    "yolo-fastest": ("yolo-fastest-1.1/yolo-fastest-1.1.cfg", "yolo-fastest-1.1", ["yolo_121", "yolo_130"]),
    "yolo-lite": ("yolo-lite-voc/tiny-yolov2-trial3-noBatch.cfg", "yolo-lite-voc", ["region_12"]),
}
ARCHITECTURES = ["resnet18", "resnet50", "yolov2-tiny", "yolov2-tiny-voc", "yolov3-tiny"]
AS_OPENCV = ImportOptions(epsilon=1e-6)
RANDOM = ImportOptions(weights="random")


def opencv(shared: Path, name: str) -> tuple[Path, np.ndarray, dict[str, np.ndarray]]:
    """A network's cfg file, what it was shown, and what OpenCV made of that."""
    cfg, reference, names = WITH_WEIGHTS[name]
    with np.load(shared / "reference" / f"cv2dnn_{reference}_dog.npz") as arrays:
        image = arrays["input_u8_hwc_rgb"].transpose(2, 0, 1)[None].astype(np.float32) / 255
        wanted = {output: arrays[f"output{index}"] for index, output in enumerate(names)}
    return shared / "models" / cfg, np.ascontiguousarray(image), wanted


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_converted_networks_give_opencvs_heads(name: str, shared: Path) -> None:
    cfg, image, wanted = opencv(shared, name)
    converted = FORMAT.convert(FORMAT.files(cfg), {}, AS_OPENCV)
    found = run_onnx(converted.model, image)
    assert list(wanted) == [head.output for head in converted.heads]
    assert_near(found, wanted, 1e-4)


@pytest.mark.quick("yolo-fastest")
@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_compiled_networks_give_opencvs_heads(name: str, shared: Path) -> None:
    cfg, image, wanted = opencv(shared, name)
    network = FORMAT.read(FORMAT.files(cfg), {}, AS_OPENCV)
    names = [spec.name for spec in network.outputs]
    assert_near(dict(zip(names, computed(network, {"data": image}), strict=True)), wanted, 1e-4)


@pytest.mark.parametrize(
    ("name", "onnx"),
    [
        ("yolo-fastest", "yolo-fastest-1.1/yolo-fastest-1.1_320.onnx"),
        ("yolo-lite", "yolo-lite-voc/yolo-lite-voc_224.onnx"),
    ],
)
def test_without_a_word_epsilon_is_that_of_the_onnx_files_made_of_them(name: str, onnx: str, shared: Path) -> None:
    cfg, image, _ = opencv(shared, name)
    converted = FORMAT.convert(FORMAT.files(cfg), {})
    # Another converter's, with 1e-5, and in another order.
    found, wanted = (
        {array.shape: array for _, array in sorted(run_onnx(model, image).items(), key=lambda item: item[1].shape)}
        for model in (converted.model, shared / "models" / onnx)
    )
    assert_near(found, wanted, 1e-4)


@pytest.mark.quick("resnet18")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_with_seeded_weights_equal_a_second_implementation(name: str, shared: Path) -> None:
    cfg = shared / "models" / "darknet_cfg_only" / f"{name}.cfg"
    model = FORMAT.convert([cfg], {}, RANDOM).model
    weights = RandomWeights()
    drawn = (weights.take(parameter) for parameter in translated(cfg, read_sections(cfg), {}).parameters)
    shape = [dimension.dim_value for dimension in model.graph.input[0].type.tensor_type.shape.dim]
    image = np.random.default_rng(0).uniform(0, 1, shape).astype(np.float32)
    every = interpret(cfg.read_text(), image[0], lambda _, shape: next(drawn).reshape(shape))
    found = run_onnx(model, image)
    assert next(drawn, None) is None
    assert found
    wanted = {output: every[int(output.rpartition("_")[2])][None] for output in found}
    assert_near(found, wanted, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_build_and_equal_onnxruntime(name: str, shared: Path, command: Command) -> None:
    path = shared / "models" / "darknet_cfg_only" / f"{name}.cfg"
    assert "equal to onnxruntime" in output_of(command, "build", path, "--weights", "random")
    assert read_manifest(Path(f"dist/local/{name}.tar.gz")).weights == "random"


@pytest.mark.slow
def test_either_file_of_the_pair_is_built_into_a_package_that_knows_its_heads(shared: Path, command: Command) -> None:
    folder = shared / "models" / "yolo-fastest-1.1"
    manifests = []
    for suffix in (".cfg", ".weights"):
        assert "equal to onnxruntime" in output_of(command, "build", folder / f"yolo-fastest-1.1{suffix}")
        manifests.append(read_manifest(Path("dist/local/yolo-fastest-1.1.tar.gz")))
    assert manifests[0] == manifests[1]
    assert [(head.output, head.classes) for head in manifests[0].heads] == [("yolo_121", 80), ("yolo_130", 80)]
    assert manifests[0].heads[1].anchors == [(12, 18), (37, 49), (52, 132)]
    printed = output_of(command, "package", "show", "dist/local/yolo-fastest-1.1.tar.gz")
    assert "yolo_121  yolo, 3 anchors of 80 classes" in printed


@pytest.mark.slow
def test_the_zoos_entry_is_built_of_both_files(shared: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEDEPLOY_MODELS", str(shared / "models"))
    assert "equal to onnxruntime" in output_of(command, "build", "yolo-lite-voc-darknet")
    said = refused(command, 5, "build", "yolov3-tiny-darknet-cfg")
    assert "the zoo has no weights of yolov3-tiny-darknet-cfg" in said
    assert "--weights random" in said

"""Networks that are not read: the error says what they are, and how they are converted."""

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import pytest
from conftest import Command
from support.commands import output_of, refused
from support.ncnn_files import plain, write
from support.networks import tiny

from edgedeploy.vision.decoders.ultralytics import Description
from edgedeploy.zoo.source import find_source

PROTOTXT = """name: "LeNet"
input: "data" input_dim: 1 input_dim: 1 input_dim: 28 input_dim: 28
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1" inner_product_param { num_output: 10 } }
"""


def answer(command: Command, *files: Path) -> str:
    return refused(command, 5, "models", "import", *files, "--name", "mine")


def test_a_network_of_caffe_goes_through_ncnn(command: Command, tmp_path: Path) -> None:
    (tmp_path / "lenet.prototxt").write_text(PROTOTXT)
    (tmp_path / "lenet.caffemodel").write_bytes(b"\x0a\x05LeNet\xa2\x06\x10")
    said = answer(command, tmp_path / "lenet.prototxt", tmp_path / "lenet.caffemodel")
    assert "is a network of Caffe" in said
    assert f"caffe2ncnn {tmp_path}/lenet.prototxt {tmp_path}/lenet.caffemodel lenet.param lenet.bin" in said
    assert "edgedeploy models import lenet.param lenet.bin --name lenet" in said
    assert "is a network of Caffe" in answer(command, tmp_path / "lenet.caffemodel")
    (tmp_path / "lenet.prototxt").write_text("nothing of the kind")
    assert "Caffe" not in answer(command, tmp_path / "lenet.prototxt")


def test_a_saved_model_goes_through_onnx_or_tensorflow_lite(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"\x08\x01\x12\x04test")
    for given in (folder, folder / "saved_model.pb"):
        said = answer(command, given)
        assert "is a SavedModel of TensorFlow" in said
        assert f"python -m tf2onnx.convert --saved-model {folder} --opset 17 --output net.onnx" in said
        assert "TFLiteConverter.from_saved_model" in said


def zipped(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return stream.getvalue()


HDF = b"\x89HDF\r\n\x1a\n" + bytes(64)
PNNX = b"7767517\n2 1\npnnx.Input               pnnx_input_0             0 1 0\n"

# By name, content, what is said of it, and what is to be done.
FILES = [
    ("net.onnx.gz", gzip.compress(b"\x08\x08" * 40), "compressed by gzip", "gzip -dc {} > {folder}/net.onnx"),
    ("my net.onnx", gzip.compress(b""), "compressed by gzip", "gzip -dc '{}' > '{folder}/my net-unpacked.onnx'"),
    ("net.onnx.xz", lzma.compress(b"x"), "compressed by xz", "xz -dc"),
    ("net.onnx.bz2", bz2.compress(b"x"), "compressed by bzip2", "bzip2 -dc"),
    ("net.zst", b"\x28\xb5\x2f\xfd" + bytes(9), "compressed by zstd", "zstd -dc"),
    ("net.pt2", zipped("m/data/aotinductor/model/a.so", "m/archive_format"), "AOTInductor", "torch.export.save"),
    *((name, HDF, "TensorFlow", "tf2onnx.convert --keras {}") for name in ("net.h5", "net.keras")),
    ("net.pb", HDF, "TensorFlow", "tf2onnx.convert --graphdef {}"),
    ("net.pt", zipped("net/data.pkl", "net/version"), "a pickle or a TorchScript archive", "torch.export.save"),
    ("net.keras", zipped("model.weights.h5", "config.json"), "a network of Keras", "tf2onnx.convert --keras {}"),
    ("net.onnx", zipped("folder/net.onnx"), "a zip archive", "unzip {}"),
    ("net.pnnx.bin", zipped("conv.weight"), "weights in the form of pnnx", "next to it: {folder}/net.ncnn.param"),
    ("net.pnnx.param", PNNX, "a network in the form of pnnx", "next to it: {folder}/net.ncnn.param"),
    ("net.onnx", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS", "git lfs pull"),
    ("net.onnx", b"\n<!DOCTYPE html>\n<html>", "a web page", "download the file itself"),
    ("net.xml", b'<?xml version="1.0"?>\n<net name="x">', "a network of OpenVINO", "export that network"),
    ("net.engine", b"ftrt" + bytes(20), "an engine of TensorRT", "export that network"),
    ("net.trt", bytes(20), "an engine of TensorRT", "export that network"),
    ("net.pte", bytes(4) + b"ET12", "a network of ExecuTorch", "torch.export.save"),
    ("net.rknn", b"RKNN" + bytes(9), "Rockchip", "export that network"),
    ("net.hef", b"\x01HEF", "Hailo", "export that network"),
    ("net.mlmodel", b"\x08\x04", "a network of Core ML", "export that network"),
    ("net.mnn", bytes(9), "a network of MNN", "export that network"),
    ("net.safetensors", bytes(9), "weights without a network", "torch.export.save"),
]


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"), FILES, ids=[f"{what}: {name}" for name, _, what, _ in FILES]
)
def test_files_that_are_no_network_are_named_for_what_they_are(
    command: Command, tmp_path: Path, name: str, content: bytes, what: str, hint: str
) -> None:
    (tmp_path / name).write_bytes(content)
    said = answer(command, tmp_path / name)
    assert what in said
    assert hint.format(tmp_path / name, folder=tmp_path) in said


def test_folders_are_named_with_the_file_to_give(command: Command, tmp_path: Path) -> None:
    for name in ("a_saved_model/net.tflite", "b_openvino_model/net.xml", "c/one.onnx", "c/two.onnx", "d/x.prototxt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert f"give the file in it: {tmp_path}/a_saved_model/net.tflite" in answer(command, tmp_path / "a_saved_model")
    assert "a folder with a network of OpenVINO" in answer(command, tmp_path / "b_openvino_model")
    assert f"give a file in it: {tmp_path}/c/one.onnx, {tmp_path}/c/two.onnx" in answer(command, tmp_path / "c")
    said = answer(command, tmp_path / "d")
    assert "it is a folder" in said
    assert "give a file" not in said


LAYERS = ["Input in0 0 1 in0", "Bias bias 1 1 in0 out0 0=3"]
METADATA = """\
description: Ultralytics YOLO11n model
date: '2026-01-31T10:00:00'
args: {batch: 1, half: false}
stride: 32
task: detect
imgsz: [64, 96]
names:
  0: person
  1: "fire's hydrant"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As Ultralytics' `format=ncnn` writes it."""
    folder = tmp_path / "net_ncnn_model"
    folder.mkdir()
    write(folder, LAYERS, plain([1, 2, 3]), name="model.ncnn")
    (folder / "metadata.yaml").write_text(METADATA)
    return folder


def test_a_folder_of_one_ncnn_network_is_read(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    source = find_source("net_ncnn_model")
    assert (source.name, source.format.name) == ("net_ncnn_model", "ncnn")
    assert [file.name for file in source.files] == ["model.ncnn.param", "model.ncnn.bin", "metadata.yaml"]
    write(folder, LAYERS, plain([1, 2, 3]), name="other.ncnn")
    assert "give a file in it" in answer(command, folder)


@pytest.mark.parametrize("imported", [False, True])
def test_metadata_of_ultralytics_says_size_task_and_labels(command: Command, folder: Path, *, imported: bool) -> None:
    if imported:
        assert command("models", "import", folder, "--name", "mine")[0] == 0
    network = find_source("mine" if imported else str(folder)).read()
    description = Description.of(network.metadata)
    assert network.inputs[0].shape == [1, 3, 64, 96]
    assert (description.task, description.imgsz) == ("detect", (64, 96))
    assert description.names == ["person", "fire's hydrant"]
    assert find_source(str(folder), {"in0": [1, 3, 32, 32]}).read().inputs[0].shape == [1, 3, 32, 32]


def test_empty_metadata_says_nothing(folder: Path) -> None:
    (folder / "metadata.yaml").write_bytes(b"")
    assert find_source(str(folder), {"in0": [1, 3, 32, 32]}).read().metadata == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("names: !!python/object/apply:os.system [id]", "not valid YAML"),
        ("imgsz: [640, true]", "imgsz"),
        ("imgsz: [640, 640, 640]", "imgsz"),
        ("stride: 1.0e+9", "stride"),
        ("names: {0: [a]}", "names"),
        ("- a list", "(document)"),
        ("[" * 500, "not valid YAML"),
        ("#" * (1 << 18), "is too large"),
    ],
)
def test_metadata_that_is_malformed_is_refused(command: Command, folder: Path, content: str, reason: str) -> None:
    (folder / "metadata.yaml").write_text(content)
    said = answer(command, folder)
    assert f"{folder}/metadata.yaml" in said
    assert reason in said


def test_a_network_is_known_by_its_content_whatever_its_name_says(command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx").rename(tmp_path / "net.pb")
    output_of(command, "models", "import", net, "--name", "mine")

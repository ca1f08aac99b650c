"""Networks that are not read: the error says what they are, and how they are converted."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Command
from support.networks import tiny

from edgedeploy.errors import ModelError

PROTOTXT = """name: "LeNet"
input: "data"
input_dim: 1
input_dim: 1
input_dim: 28
input_dim: 28
layer {
  name: "ip1"
  type: "InnerProduct"
  bottom: "data"
  top: "ip1"
  inner_product_param { num_output: 10 }
}
"""


def refused(command: Command, *files: Path) -> str:
    code, _, err = command("models", "import", *files, "--name", "mine")
    assert code == ModelError.exit_code
    return err


def test_a_network_of_caffe_goes_through_ncnn(command: Command, tmp_path: Path) -> None:
    (tmp_path / "lenet.prototxt").write_text(PROTOTXT)
    (tmp_path / "lenet.caffemodel").write_bytes(b"\x0a\x05LeNet\xa2\x06\x10")
    said = refused(command, tmp_path / "lenet.prototxt", tmp_path / "lenet.caffemodel")
    assert "is a network of Caffe" in said
    assert f"caffe2ncnn {tmp_path}/lenet.prototxt {tmp_path}/lenet.caffemodel lenet.param lenet.bin" in said
    assert "edgedeploy models import lenet.param lenet.bin --name lenet" in said
    assert "is a network of Caffe" in refused(command, tmp_path / "lenet.caffemodel")


def test_a_saved_model_goes_through_onnx_or_tensorflow_lite(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"\x08\x01\x12\x04test")
    for given in (folder, folder / "saved_model.pb"):
        said = refused(command, given)
        assert "is a SavedModel of TensorFlow" in said
        assert f"python -m tf2onnx.convert --saved-model {folder} --opset 17 --output net.onnx" in said
        assert "TFLiteConverter.from_saved_model" in said


@pytest.mark.parametrize(
    ("name", "option"), [("net.pb", "--graphdef"), ("net.h5", "--keras"), ("net.keras", "--keras")]
)
def test_other_files_of_tensorflow_go_through_onnx(command: Command, tmp_path: Path, name: str, option: str) -> None:
    (tmp_path / name).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    assert f"tf2onnx.convert {option} {tmp_path / name}" in refused(command, tmp_path / name)


def test_other_text_and_folders_are_no_such_network(command: Command, tmp_path: Path) -> None:
    (tmp_path / "notes.prototxt").write_text("nothing of the kind")
    assert "Caffe" not in refused(command, tmp_path / "notes.prototxt")
    assert "it is a folder" in refused(command, tmp_path)


def test_a_network_is_known_by_its_content_whatever_its_name_says(command: Command, tmp_path: Path) -> None:
    net = tiny(tmp_path / "net.onnx").rename(tmp_path / "net.pb")
    code, _, err = command("models", "import", net, "--name", "mine")
    assert code == 0, err

"""Networks of formats that are not read: what they are, and how they become one that is."""

from __future__ import annotations

import re
from pathlib import Path

from edgedeploy.errors import ModelError
from edgedeploy.files import is_folder

_HEAD_BYTES = 1 << 16

# What Caffe's text has at the beginning of a line, and no other format's here: layers in braces, and sizes of inputs.
_PROTOTXT = re.compile(rb"^\s*(layers?\s*\{|input_dim\s*:|input_shape\s*\{)", re.MULTILINE)

_TENSORFLOW = "tf2onnx and TensorFlow are needed: pip install tf2onnx tensorflow"


def foreign(path: Path) -> ModelError | None:
    """The error that says how a network of a format that is not read is converted; None if it is none that is known."""
    if is_folder(path):
        if (path / "saved_model.pb").is_file():
            return _saved_model(path)
        return None
    if path.name == "saved_model.pb":
        return _saved_model(path.parent)
    if path.suffix == ".pb":
        convert = f"python -m tf2onnx.convert --graphdef {path} --inputs INPUT:0 --outputs OUTPUT:0 --output net.onnx"
        return _error(path, "a frozen graph of TensorFlow", [convert, _TENSORFLOW])
    if path.suffix in (".h5", ".keras"):
        convert = f"python -m tf2onnx.convert --keras {path} --output net.onnx"
        return _error(path, "a network of Keras", [convert, _TENSORFLOW])
    if path.suffix == ".caffemodel" or (path.suffix == ".prototxt" and _is_prototxt(path)):
        text, weights = path.with_suffix(".prototxt"), path.with_suffix(".caffemodel")
        convert = f"caffe2ncnn {text} {weights} {path.stem}.param {path.stem}.bin"
        taken = f"then: edgedeploy models import {path.stem}.param {path.stem}.bin --name {path.stem}"
        tool = "caffe2ncnn is one of ncnn's tools (ncnn-VERSION-ubuntu-VERSION.zip of its releases)"
        return _error(path, "a network of Caffe", [convert, taken, tool])
    return None


def _saved_model(folder: Path) -> ModelError:
    onnx = f"python -m tf2onnx.convert --saved-model {folder} --opset 17 --output net.onnx"
    lite = (
        f"python -c \"import tensorflow as tf; open('net.tflite', 'wb').write("
        f"tf.lite.TFLiteConverter.from_saved_model('{folder}').convert())\""
    )
    return _error(folder, "a SavedModel of TensorFlow", [onnx, lite, _TENSORFLOW])


def _error(path: Path, what: str, hints: list[str]) -> ModelError:
    return ModelError(f"{path} is {what}", why="that is not read here, and can be converted", hints=hints)


def _is_prototxt(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return _PROTOTXT.search(stream.read(_HEAD_BYTES)) is not None
    except OSError:
        return False

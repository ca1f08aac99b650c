"""What quantised networks hold, read from their ONNX graphs."""

import importlib.util
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgedeploy.base.catalog import builtin_folder


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}


def producer(model: onnx.ModelProto, name: str) -> onnx.NodeProto | None:
    return next((node for node in model.graph.node if name in node.output), None)


def integers_of(model: onnx.ModelProto, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, scale and zero point of the constant that is dequantised to a tensor."""
    node = producer(model, name)
    assert node.op_type == "DequantizeLinear"
    values, scale, zero = (constants(model)[each] for each in node.input)
    return values, scale, zero


def scale_of(model: onnx.ModelProto, name: str) -> tuple[float, int] | None:
    """Scale and zero point by which a tensor is quantised; None if it is not."""
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] == name:
            return float(constants(model)[node.input[1]]), int(constants(model)[node.input[2]])
    return None


def training() -> ModuleType:
    """The script that trained the bundled network, with its data; skips where scikit-learn is missing."""
    pytest.importorskip("sklearn")
    path = builtin_folder() / "models" / "train" / "digits.py"
    spec = importlib.util.spec_from_file_location("train_digits", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_digits(folder: Path, count: int | None = None, *, held_out: bool) -> Path:
    """Digits as images in folders named after them: those that training held out, or some that it had."""
    script = training()
    images, classes = script.load()
    chosen = np.flatnonzero(script.held_out(classes) == held_out)[:count]
    for index in chosen:
        (folder / str(classes[index])).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / str(classes[index]) / f"{index}.png"), np.rint(images[index]).astype(np.uint8))
    return folder

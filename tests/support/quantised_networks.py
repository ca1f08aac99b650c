"""Networks quantised by onnxruntime's own quantiser, in each of the forms that it writes, and what such files hold."""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import onnx
import onnx.version_converter
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from edgedeploy.base.catalog import builtin_folder
from edgedeploy.frontends.onnx.nodes import opset_of
from support.agreement import OnnxruntimeRunner

Inputs = Mapping[str, np.ndarray]

# As of this one DequantizeLinear has a scale for each channel.
_PER_CHANNEL_OPSET = 13


@dataclass(frozen=True)
class Form:
    """How a network is quantised.

    `pairs` surround float operators with QuantizeLinear and DequantizeLinear, `operators` are quantised ones
    (QLinearConv, QGemm, QLinearAdd...), and `dynamic` computes scales of activations as it runs. `per_channel`: of
    weights.
    """

    kind: str
    activations: str = "uint8"
    weights: str = "int8"
    per_channel: bool = False


# Those that people use: int8 weights with uint8 activations are fastest on x86, int8 of both on ARM.
FORMS = {
    "pairs-u8s8": Form("pairs"),
    "pairs-u8s8-channels": Form("pairs", per_channel=True),
    "pairs-s8s8-channels": Form("pairs", "int8", per_channel=True),
    "pairs-u8u8": Form("pairs", weights="uint8"),
    "operators-u8s8-channels": Form("operators", per_channel=True),
    "operators-s8s8": Form("operators", "int8"),
    "operators-u8u8": Form("operators", weights="uint8"),
    "dynamic-s8": Form("dynamic"),
    "dynamic-u8-channels": Form("dynamic", weights="uint8", per_channel=True),
}

_TYPES = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}


def quantise(source: Path, target: Path, form: Form, samples: Iterable[Inputs] = (), **options: Any) -> Path:
    """Write a float ONNX network with fixed input shapes quantised, and return `target`.

    `samples` calibrate by min-max; `dynamic` needs none. `options` go to `quantize_static` or `quantize_dynamic`.
    """
    prepared = target.with_suffix(".prepared.onnx")
    _prepare(source, prepared)
    options |= {"per_channel": form.per_channel, "weight_type": _TYPES[form.weights]}
    if form.kind == "dynamic":
        quantize_dynamic(prepared, target, **options)
    else:
        options["quant_format"] = QuantFormat.QDQ if form.kind == "pairs" else QuantFormat.QOperator
        options["activation_type"] = _TYPES[form.activations]
        quantize_static(prepared, target, _Reader(samples), **options)
    prepared.unlink()
    return target


def random_samples(path: Path, count: int = 4) -> Iterator[Inputs]:
    """Normally distributed float32 inputs of a network; the same every time."""
    random, inputs = np.random.default_rng(0), OnnxruntimeRunner(path).inputs
    for _ in range(count):
        yield {spec.name: random.standard_normal(spec.shape).astype(np.float32) for spec in inputs}


class _Reader(CalibrationDataReader):
    def __init__(self, samples: Iterable[Inputs]) -> None:
        self._samples = iter(samples)

    def get_next(self) -> Inputs | None:
        return next(self._samples, None)


def _prepare(source: Path, target: Path) -> None:
    """Infer shapes and fold batch normalisation, without which the quantiser leaves operators in float."""
    model = onnx.load(source)
    weights = {weight.name for weight in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]  # old files list weights among them
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    if opset_of(model) < _PER_CHANNEL_OPSET:
        model = onnx.version_converter.convert_version(model, _PER_CHANNEL_OPSET)
    onnx.save(model, target)
    quant_pre_process(target, target, skip_symbolic_shape=True)


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

"""Normalisation, and Dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, Translation, dtype_of


def _batch_normalisation(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta."""
    if "spatial" in attr and not attr["spatial"]:
        raise ModelError("statistics of each position (spatial=0) are not supported")
    parts = [constant_value(value) for value in inputs[1:5]]
    # Up to opset 13 the number of outputs shows that it is in training, from 14 on an attribute.
    training = bool(attr.get("training_mode", 0))
    if training or any(part is None for part in parts):
        return _by_tensors(build, inputs, attr, training=training)
    dtype = dtype_of(inputs[0])
    # Float16 is computed in float32; relax.const would take float64 for float32.
    wide = np.float64 if dtype == "float64" else np.float32
    gamma, beta, mean, variance = (np.asarray(value).astype(wide) for value in parts)
    scale = gamma / np.sqrt(variance + wide(attr.get("epsilon", 1e-5)))
    shape = (1, -1) + (1,) * (len(inputs[0].ty.shape) - 2)
    scaled = build.block.emit(relax.op.multiply(inputs[0], relax.const(scale.reshape(shape), dtype)))
    return relax.op.add(scaled, relax.const((beta - mean * scale).reshape(shape), dtype))


def _by_tensors(build: Builder, inputs: list[Any], attr: dict[str, Any], *, training: bool) -> Any:
    """The same by unknown statistics; in training by those of the batch, with running ones as outputs."""
    data, gamma, beta, mean, variance = inputs[:5]
    shape, dtype = shape_of(data), dtype_of(data)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    column = [1, shape[1] if len(shape) > 1 else 1] + [1] * (len(shape) - 2)
    wide = "float64" if dtype == "float64" else "float32"
    x = build.cast(data, wide)
    running = []
    if training:
        given = (mean, variance)
        mean = build.reduce("mean", x, axes)
        away = build.subtract(x, build.reshape(mean, column))
        variance = build.reduce("mean", build.multiply(away, away), axes)
        momentum = float(attr.get("momentum", 0.9))
        for old, new in zip(given, (mean, variance), strict=True):
            kept = build.multiply(build.cast(old, wide), momentum)
            running.append(build.cast(build.add(kept, build.multiply(new, 1 - momentum)), dtype_of(old)))
    mean, variance, gamma, beta = (
        build.reshape(build.cast(value, wide), column) for value in (mean, variance, gamma, beta)
    )
    deviation = build.sqrt(build.add(variance, float(attr.get("epsilon", 1e-5))))
    scaled = build.divide(build.multiply(build.subtract(x, mean), gamma), deviation)
    result = build.cast(build.add(scaled, beta), dtype)
    return relax.Tuple([result, *running]) if running else result


def _dropout(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Dropout at inference, which keeps all values: its mask is true everywhere, a boolean as of opset 10."""
    if attr["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]
    mask = np.ones(shape_of(inputs[0]), bool if build.importer.opset >= 10 else dtype_of(inputs[0]))
    return relax.Tuple([inputs[0], constant(mask)])


def _lp_normalisation(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """LpNormalization: x divided by its norm along an axis; zeros stay zeros."""
    data, axis, order = inputs[0], int(attr.get("axis", -1)), int(attr.get("p", 2))
    norm = build.reduce("sum", build.abs(data) if order == 1 else build.multiply(data, data), [axis], keepdims=True)
    norm = build.sqrt(norm) if order == 2 else norm
    return build.divide(data, build.maximum(norm, float(np.finfo(np.float32).tiny)))


def _of_any_opset(operator: str, since: int) -> Translation:
    """An operator that onnxruntime also writes into files of older opsets, perhaps under another name."""
    return lambda build, inputs, attr: build.importer.theirs(operator, inputs, attr, max(build.importer.opset, since))


def _rms_normalisation(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """RMSNormalization; over all axes it is one row, as TVM's needs an axis that remains."""
    translate = _of_any_opset("RMSNormalization", 23)
    data, scale = inputs[:2]
    shape = shape_of(data)
    if int(attr.get("axis", -1)) % len(shape):
        return translate(build, inputs, attr)
    size = math.prod(shape)
    scale = build.reshape(build.broadcast_to(scale, shape), [size])
    row = build(translate(build, [build.reshape(data, [1, size]), scale], {**attr, "axis": 1}))
    return build.reshape(row, shape)


TRANSLATIONS: dict[str, Translation] = {
    "BatchNormalization": _batch_normalisation,
    "Dropout": _dropout,
    "LayerNormalization": _of_any_opset("LayerNormalization", 17),
    "LpNormalization": _lp_normalisation,
    "RMSNormalization": _rms_normalisation,
    "SimplifiedLayerNormalization": _rms_normalisation,
}

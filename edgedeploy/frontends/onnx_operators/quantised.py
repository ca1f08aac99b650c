"""Integer products of quantised tensors, summed up in int32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import shape_of
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, dtype_of, optional


def _centred(build: Builder, data: Any, zero: Any, axis: int) -> Any:
    """A quantised tensor without its zero point, which may be one for each place on an axis; int32."""
    wide = build.cast(data, "int32")
    if zero is None:
        return wide
    return build.subtract(wide, _along(build, build.cast(zero, "int32"), len(shape_of(data)), axis))


def _along(build: Builder, value: Any, rank: int, axis: int) -> Any:
    """One value, or one for each place on an axis, to be broadcast to a tensor of this rank."""
    count = math.prod(shape_of(value))
    if count == 1:
        return build.reshape(value, [])
    if len(shape_of(value)) > 1:
        return value
    return build.reshape(value, [count if place == axis % rank else 1 for place in range(rank)])


def _requantised(build: Builder, summed: Any, scale: Any, result_scale: Any, zero: Any) -> Any:
    """Sums in the integers of the result, rounded to even and saturated."""
    dtype = dtype_of(zero)
    limits = np.iinfo(dtype)
    factor = build.divide(scale, build.reshape(build.cast(result_scale, "float32"), []))
    rounded = build.round(build.multiply(build.cast(summed, "float32"), factor))
    moved = build.add(rounded, build.reshape(build.cast(zero, "float32"), []))
    return build.cast(build.minimum(build.maximum(moved, float(limits.min)), float(limits.max)), dtype)


def _matrix_product(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """QLinearMatMul."""
    build = Builder(importer)
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    product = relax.op.matmul(_centred(build, a, a_zero, -2), _centred(build, b, b_zero, -1), out_dtype="int32")
    product = importer.bb.normalize(product)
    rank = len(shape_of(product))
    scale = build.multiply(
        _along(build, build.cast(a_scale, "float32"), rank, -2), _along(build, build.cast(b_scale, "float32"), rank, -1)
    )
    return _requantised(build, product, scale, y_scale, y_zero)


def _convolved(importer: Any, data: Any, weights: Any, attr: dict[str, Any]) -> Any:
    """The convolution of int32 tensors, in float64: it holds all of their sums exactly."""
    build = Builder(importer)
    wide = [build.cast(value, "float64") for value in (data, weights)]
    return build.cast(importer.bb.normalize(importer.convert("Conv", wide, attr)), "int32")


def _convolution(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """QLinearConv."""
    build = Builder(importer)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = inputs[:8]
    summed = _convolved(importer, _centred(build, x, x_zero, 1), _centred(build, w, w_zero, 0), attr)
    rank = len(shape_of(summed))
    if optional(inputs, 8) is not None:
        summed = build.add(summed, _along(build, inputs[8], rank, 1))
    scale = build.multiply(
        build.reshape(build.cast(x_scale, "float32"), []), _along(build, build.cast(w_scale, "float32"), rank, 1)
    )
    return _requantised(build, summed, scale, y_scale, y_zero)


def _integer_convolution(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """ConvInteger; zero points may be left out."""
    build = Builder(importer)
    x = _centred(build, inputs[0], optional(inputs, 2), 1)
    w = _centred(build, inputs[1], optional(inputs, 3), 0)
    return _convolved(importer, x, w, attr)


TRANSLATIONS: dict[str, Translation] = {
    "ConvInteger": _integer_convolution,
    "QLinearConv": _convolution,
    "QLinearMatMul": _matrix_product,
}

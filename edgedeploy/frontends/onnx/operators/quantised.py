"""Quantisation, and sums of products of integers, in int32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import helper
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx.operators.windows import pads_of
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, optional

_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")  # integers that Relax's quantise and dequantise know

# Code takes smaller numbers for zero. As scales they saturate all but numbers below 1e-35, as this one does.
_LEAST_SCALE = np.finfo(np.float32).tiny


def _quantise(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    zero, stated = optional(inputs, 2), attr.get("output_dtype") or None
    dtype = helper.tensor_dtype_to_np_dtype(stated).name if stated else dtype_of(zero) if zero is not None else "uint8"
    if dtype.startswith("float"):
        return None
    _check(attr, dtype, _INTEGERS[:4])
    data, (scale, zero, axis) = inputs[0], _parameters(build, inputs, attr, dtype)
    if dtype_of(data) == "int32" or dtype == "uint16":  # which has more values than float16
        data, scale = build.cast(data, "float32"), build.cast(scale, "float32")
    if (known := constant_value(scale)) is not None and dtype_of(scale) == "float32":
        scale = constant(np.maximum(known, _LEAST_SCALE))
    return relax.op.quantize(data, scale, zero, axis=axis, out_dtype=dtype)


def _dequantise(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    dtype = dtype_of(inputs[0])
    if dtype.startswith("float"):
        return None
    _check(attr, dtype, _INTEGERS)
    stated = attr.get("output_dtype") or None
    made = dtype_of(inputs[1]) if build.importer.opset >= 19 else "float32"  # older ones know no other
    made = helper.tensor_dtype_to_np_dtype(stated).name if stated else made
    scale, zero, axis = _parameters(build, inputs, attr, dtype)
    return relax.op.dequantize(inputs[0], scale, zero, axis=axis, out_dtype=made)


def _check(attr: dict[str, Any], dtype: str, known: tuple[str, ...]) -> None:
    if dtype not in known:
        raise ModelError(f"integers of {dtype} are not supported", why=f"known are {', '.join(known)}")
    for name in ("block_size", "precision"):
        if attr.get(name):
            raise ModelError(f"attribute {name} is not supported")


def _parameters(build: Builder, inputs: list[Any], attr: dict[str, Any], dtype: str) -> tuple[Any, Any, int]:
    """Scale, zero point, and the axis along which there is one of each for every place; otherwise both are scalars."""
    scale, zero = inputs[1], optional(inputs, 2)
    if zero is None:
        zero = constant(np.zeros(shape_of(scale)), dtype)
    rank = len(shape_of(inputs[0]))
    if max(math.prod(shape_of(each)) for each in (scale, zero)) == 1:
        return _scalar(build, scale), _scalar(build, zero), 0
    return scale, zero, attr.get("axis", 1) % rank if rank > 1 else 0


def _scalar(build: Builder, value: Any) -> Any:
    """A tensor of one value, without axes."""
    known = constant_value(value)
    return build.reshape(value, []) if known is None else constant(known.reshape(()))


def _quantise_by_range(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """DynamicQuantizeLinear: uint8, with scale and zero point from the values."""
    data, axes = inputs[0], list(range(len(shape_of(inputs[0]))))
    high = build.maximum(build.reduce("max", data, axes), 0.0)
    low = build.minimum(build.reduce("min", data, axes), 0.0)
    # Zeros alone have no range. Any scale is right for them; onnxruntime's is 1.
    extent = build.where(build.equal(high, low), constant(255.0, "float32"), build.subtract(high, low))
    scale = build.divide(extent, 255.0)
    zero = build.round(build.minimum(build.maximum(build.divide(build.negative(low), scale), 0.0), 255.0))
    zero = build.cast(zero, "uint8")
    return relax.Tuple([build.quantize(data, scale, zero, axis=0, out_dtype="uint8"), scale, zero])


def _without_zero_point(build: Builder, weights: Any, zero: Any, axis: int) -> Any:
    """Weights less their zero point, which may be one for each place on an axis; of int8 where that holds them."""
    known, zeros = constant_value(weights), np.zeros([], np.uint8) if zero is None else constant_value(zero)
    if known is None or zeros is None:
        wide = build.cast(weights, "int16")
        return wide if zero is None else build.subtract(wide, _along(build, build.cast(zero, "int16"), weights, axis))
    shape = [1] * known.ndim
    shape[axis] = -1
    values = known.astype(np.int16) - (zeros.reshape(shape) if zeros.ndim < 2 else zeros)
    limits = np.iinfo(np.int8)
    is_small = values.min(initial=0) >= limits.min and values.max(initial=0) <= limits.max
    return constant(values, "int8" if is_small else "int16")


def _along(build: Builder, value: Any, tensor: Any, axis: int) -> Any:
    """One value, or one for each place on an axis, to be broadcast to a tensor."""
    shape = shape_of(value)
    if len(shape) > 1:
        return value
    wanted = [1] * len(shape_of(tensor))
    if math.prod(shape) > 1:
        wanted[axis] = shape[0]
    return build.reshape(value, wanted)


def _matrix_product(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """MatMulInteger: the products of the integers as they are, less what the zero point of the first adds to them."""
    data, weights, zero = inputs[0], _without_zero_point(build, inputs[1], optional(inputs, 3), -1), optional(inputs, 2)
    product = build.matmul(data, weights, out_dtype="int32")
    if zero is None:
        return product
    ranks = [len(shape_of(each)) for each in (data, weights)]
    zero = build.cast(zero, "int32")
    zero = _along(build, zero, data, -2) if min(ranks) > 1 else build.reshape(zero, [])
    columns = build.reduce("sum", build.cast(weights, "int32"), [max(ranks[1] - 2, 0)], keepdims=min(ranks) > 1)
    return build.subtract(product, build.multiply(zero, columns))


def _convolution(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """ConvInteger: sums of the integers as they are, less what the data's zero point adds; it is in the padding too."""
    data, zero = inputs[0], optional(inputs, 2)
    weights = _without_zero_point(build, inputs[1], optional(inputs, 3), 0)
    rank = len(shape_of(data)) - 2
    pads = pads_of(shape_of(data)[2:], shape_of(weights)[2:], attr)
    if zero is not None and any(pads):
        data, pads = _padded(build, data, build.reshape(zero, []), pads), [0] * 2 * rank
    convolve = getattr(relax.op.nn, f"conv{rank}d", None)
    if convolve is None:
        raise ModelError(f"convolutions over {rank} axes are not supported")
    settings = {"strides": attr.get("strides", [1] * rank), "dilation": attr.get("dilations", [1] * rank)}
    settings |= {"padding": pads, "groups": attr.get("group", 1), "out_dtype": "int32"}
    summed = build.bind(convolve(data, weights, **settings))
    if zero is None:
        return summed
    axes = list(range(1, rank + 2))
    kernels = build.reshape(build.reduce("sum", build.cast(weights, "int32"), axes), [-1, *[1] * rank])
    return build.subtract(summed, build.multiply(build.reshape(build.cast(zero, "int32"), []), kernels))


def _padded(build: Builder, data: Any, zero: Any, pads: list[int]) -> Any:
    """A feature map with a border of its zero point, which may be unknown."""
    rank = len(pads) // 2
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    border = 1 - np.pad(np.ones([1, 1, *shape_of(data)[2:]], np.uint8), widths)
    wide = build.bind(relax.op.nn.pad(data, [each for pair in widths for each in pair]))
    return build.add(wide, build.multiply(constant(border, dtype_of(data)), zero))


TRANSLATIONS: dict[str, Translation] = {
    "ConvInteger": _convolution,
    "DequantizeLinear": _dequantise,
    "DynamicQuantizeLinear": _quantise_by_range,
    "MatMulInteger": _matrix_product,
    "QuantizeLinear": _quantise,
}

"""Quantised programs of PyTorch (torchao's `convert_pt2e`), whose operators are pairs already.

What they compute: the library `quantized_decomposed`, in PyTorch's `torch/ao/quantization/fx/_decomposed.py`. PyTorch
multiplies by the inverse of a scale, where ONNX and the compiler divide: values between two steps may go to the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, shape_of


def _quantise(node: Any, importer: Any) -> Any:
    """quantize_per_tensor and quantize_per_channel: data, scale, zero point, [axis], least and largest value, dtype."""
    emit = importer.block_builder.emit
    data, scale, zero, axis, limits, dtype = _arguments(node, importer)
    made = emit(relax.op.quantize(data, scale, zero, axis=axis, out_dtype=dtype))
    range_of_dtype = np.iinfo(dtype)
    for operator, limit, widest in (
        (relax.op.maximum, limits[0], range_of_dtype.min),
        (relax.op.minimum, limits[1], range_of_dtype.max),
    ):
        made = made if limit == widest else emit(operator(made, constant(limit, dtype)))
    return made


def _dequantise(node: Any, importer: Any) -> Any:
    """dequantize_per_tensor and dequantize_per_channel, whose arguments are those of `_quantise`."""
    data, scale, zero, axis, _, _ = _arguments(node, importer)
    return importer.block_builder.emit(relax.op.dequantize(data, scale, zero, axis=axis, out_dtype="float32"))


def _arguments(node: Any, importer: Any) -> tuple[Any, Any, Any, int, tuple[int, int], str]:
    """Data, scale, zero point, axis, least and largest value, dtype."""
    data, scale, zero, *others = importer.retrieve_args(node)
    axis = others.pop(0) if len(others) > 3 else 0
    least, largest, dtype = others
    name = str(dtype).removeprefix("torch.")
    wanted = ((scale, "float32"), (zero, name))
    emit = importer.block_builder.emit
    scale, zero = (
        emit(relax.op.astype(value, kind)) if isinstance(value, relax.Expr) else constant(value, kind)
        for value, kind in wanted
    )
    return data, scale, zero, axis % len(shape_of(data)), (least, largest), name


CONVERSIONS = {
    "quantize_per_tensor.default": _quantise,
    "quantize_per_channel.default": _quantise,
    "dequantize_per_tensor.default": _dequantise,
    "dequantize_per_channel.default": _dequantise,
}

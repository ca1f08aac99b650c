"""Transposed convolutions, resizing, and reductions of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tflite
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.onnx.operators.resize import Axis, Rules, resized
from edgedeploy.frontends.translation import Builder, dtype_of, is_float


def _transpose_conv(converter: Any, op: Any) -> Any:
    """TRANSPOSE_CONV of NHWC images; an input states the shape of its output."""
    options = converter._get_builtin_options(op, tflite.TransposeConvOptions)
    expressions = [converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(op)]
    wanted = constant_value(expressions[0])
    if wanted is None:
        raise ModelError("the shape of its output depends on the network's input")
    sizes, strides = [int(size) for size in wanted[1:3]], [options.StrideH(), options.StrideW()]
    kernels = shape_of(expressions[1])[1:3]
    same = options.Padding() == tflite.Padding.SAME
    before, _ = halves(same_padding(sizes, kernels, strides)) if same else ([0, 0], [])
    made = transposed(converter, expressions[2], expressions[1], strides, before, sizes)
    made = Builder(converter).add(made, expressions[3]) if len(expressions) > 3 else made
    activation = getattr(options, "FusedActivationFunction", lambda: 0)()
    return converter.convert_fused_activation_function(made, activation)


def transposed(
    converter: Any, data: Any, weights: Any, strides: Sequence[int], before: Sequence[int], wanted: Sequence[int]
) -> Any:
    """A transposed convolution of NHWC images, with weights of (output channels, rows, columns, input channels).

    `before` rows and columns are cut off at the start; the result has the height and width `wanted`.
    """
    pairs = zip(shape_of(data)[1:3], shape_of(weights)[1:3], strides, before, wanted, strict=True)
    after = [(size - 1) * stride + kernel - cut - want for size, kernel, stride, cut, want in pairs]
    extra = [max(-cut, 0) for cut in after]
    if any(more >= stride for more, stride in zip(extra, strides, strict=True)):
        raise ModelError(f"its output of {wanted[0]}x{wanted[1]} is larger than what its weights reach")
    build, padding = Builder(converter), [*before, *(max(cut, 0) for cut in after)]
    settings = {"padding": padding, "output_padding": extra, "data_layout": "NHWC", "kernel_layout": "IOHW"}
    turned = build.permute(weights, [3, 0, 1, 2])
    return build.bind(relax.op.nn.conv2d_transpose(data, turned, strides=list(strides), **settings))


def _resize(method: str, options: str, theirs: str, converter: Any, op: Any) -> Any:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR; with aligned corners, halves are rounded up."""
    if not converter._get_builtin_options(op, getattr(tflite, options)).AlignCorners():
        return getattr(converter, theirs)(op)
    data, size = (converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(op))
    wanted = constant_value(size)
    if wanted is None:
        raise ModelError("the size of its output depends on the network's input")
    axes = [
        Axis(axis, shape_of(data)[axis], int(after), after / shape_of(data)[axis])
        for axis, after in zip((1, 2), wanted.ravel(), strict=True)
    ]
    if any(axis.after == 1 for axis in axes):
        return resized(Builder(converter), data, axes, Rules(method, "align_corners", "round_prefer_ceil"))
    return relax.op.image.resize2d(
        data,
        [axis.after for axis in axes],
        layout="NHWC",
        method={"nearest": "nearest_neighbor"}.get(method, method),
        coordinate_transformation_mode="align_corners",
        rounding_method="round_prefer_ceil",
    )


_MOST_PLACES = 64  # a reduction of windows other than pooling becomes one operator for each place in a window

_REDUCERS = {"MAXIMUM": "maximum", "MINIMUM": "minimum", "ADD": "add", "MULTIPLY": "multiply", "MUL": "multiply"}


@dataclass(frozen=True)
class _Windows:
    """Windows over all axes of a tensor."""

    sizes: list[int]
    strides: list[int]
    dilations: list[int]
    padding: list[int]  # before and after, of one axis after another


def _reduce_window(converter: Any, op: Any) -> Any:
    """STABLEHLO_REDUCE_WINDOW by an operator of two values."""
    options = converter._get_stablehlo_options(op, tflite.StablehloReduceWindowOptions)
    data, first = (converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(op))
    body = converter._get_stablehlo_simple_body_op(int(options.BodySubgraphIndex()), "STABLEHLO_REDUCE_WINDOW", 2)
    reducer = converter.get_op_code_str(body).removeprefix("STABLEHLO_")
    start, rank = constant_value(first), len(shape_of(data))
    if reducer not in _REDUCERS or start is None:
        raise ModelError(f"windows are reduced by {reducer}", why="no translation of that is known")
    ones = [1] * rank

    def of(name: str, default: list[int]) -> list[int]:
        values = getattr(options, f"{name}AsNumpy")()
        return default if isinstance(values, int) else [int(value) for value in values]

    if of("BaseDilations", ones) != ones:
        raise ModelError("gaps between values (base_dilations) are not supported")
    sizes, strides, dilations = (of(f"Window{name}", ones) for name in ("Dimensions", "Strides", "Dilations"))
    windows = _Windows(sizes, strides, dilations, of("Padding", [0, 0] * rank))
    if [*map(len, (sizes, strides, dilations)), len(windows.padding) // 2] != [rank] * 4:
        raise ModelError(f"its windows do not fit a tensor of {rank} dimensions")
    pooled = _max_pool(converter, data, windows) if reducer == "MAXIMUM" and is_float(data) else None
    if pooled is None:
        return _by_places(converter, data, windows, _REDUCERS[reducer], start)
    lowest = float(start) <= float(np.finfo(start.dtype).min)
    return pooled if lowest else Builder(converter).maximum(pooled, float(start))


def _max_pool(converter: Any, data: Any, windows: _Windows) -> Any:
    """The largest values of windows over two or three adjacent axes; None for others."""
    rank = len(windows.sizes)
    layouts = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}.get(rank, ())
    for layout in layouts:
        axes = [layout.index(axis) for axis in "DHW"[5 - rank :]]
        moved = zip(windows.sizes, windows.strides, windows.padding[::2], windows.padding[1::2], strict=True)
        if any(each != (1, 1, 0, 0) for axis, each in enumerate(moved) if axis not in axes):
            continue
        return getattr(relax.op.nn, f"max_pool{rank - 2}d")(
            data,
            pool_size=[windows.sizes[axis] for axis in axes],
            strides=[windows.strides[axis] for axis in axes],
            padding=[windows.padding[2 * axis + end] for end in (0, 1) for axis in axes],
            dilation=[windows.dilations[axis] for axis in axes],
            layout=layout,
        )
    return None


def _by_places(converter: Any, data: Any, windows: _Windows, operator: str, start: np.ndarray) -> Any:
    """Windows reduced one place after another: all first values, all second ones, and so on."""
    build, rank = Builder(converter), len(windows.sizes)
    if math.prod(windows.sizes) > _MOST_PLACES or min(windows.padding) < 0:
        raise ModelError(f"windows of {windows.sizes} values are not supported")
    if any(windows.padding):
        data = build.bind(relax.op.nn.pad(data, windows.padding, pad_value=float(start)))
    ends = [
        size - dilation * (window - 1)
        for size, dilation, window in zip(shape_of(data), windows.dilations, windows.sizes, strict=True)
    ]
    result = constant(start.reshape(()), dtype_of(data))
    for place in np.ndindex(*windows.sizes):
        begin = [index * dilation for index, dilation in zip(place, windows.dilations, strict=True)]
        end = [first + last for first, last in zip(begin, ends, strict=True)]
        part = build.strided_slice(data, axes=list(range(rank)), begin=begin, end=end, strides=windows.strides)
        result = getattr(build, operator)(part, result)
    return result


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "RESIZE_BILINEAR": partial(_resize, "linear", "ResizeBilinearOptions", "convert_resize_bilinear"),
    "RESIZE_NEAREST_NEIGHBOR": partial(
        _resize, "nearest", "ResizeNearestNeighborOptions", "convert_resize_nearest_neighbor"
    ),
    "STABLEHLO_REDUCE_WINDOW": _reduce_window,
    "TRANSPOSE_CONV": _transpose_conv,
}

"""Operators of TensorFlow Lite's own.

Windows, resizing, PRELU, GATHER, FULLY_CONNECTED, and steps between types and forms of weights.
"""

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


_MOST_VALUES = 1 << 25  # of sparse weights, written out: a few bytes of a file can stand for any number of them


def _dequantize(converter: Any, op: Any) -> Any:
    """DEQUANTIZE of weights in half precision, or of a quantised tensor, whose real numbers are seen already."""
    (tensor,) = converter.get_input_tensors(op)
    expression = converter.get_tensor_expr(tensor)
    value = constant_value(expression)
    return relax.op.astype(expression, "float32") if value is None else constant(value.astype(np.float32))


def _densify(converter: Any, op: Any) -> Any:
    """DENSIFY: weights without their zeros, written out."""
    (tensor,) = converter.get_input_tensors(op)
    sparsity, shape = tensor.tensor.Sparsity(), [int(size) for size in tensor.tensor.ShapeAsNumpy()]
    values = np.frombuffer(tensor.buffer.DataAsNumpy(), converter.get_tensor_type_as_numpy(tensor))
    if sparsity is None:
        return constant(values.reshape(shape))
    return constant(_written_out(values, shape, sparsity))


def _written_out(values: np.ndarray, shape: list[int], sparsity: Any) -> np.ndarray:
    """A sparse tensor as a dense one.

    The format is that of `SparsityParameters` in the schema: levels in the order of traversal, first those of the
    tensor's dimensions (or of blocks along them), then those inside of a block; a level is dense, or has the indices
    of its own entries for each entry of the level before (compressed sparse rows).
    """
    order = [int(level) for level in np.atleast_1d(sparsity.TraversalOrderAsNumpy())]
    blocks = [int(axis) for axis in np.atleast_1d(sparsity.BlockMapAsNumpy())] if sparsity.BlockMapLength() else []
    rank, limit = len(shape), math.prod(shape)
    if sorted(order) != list(range(rank + len(blocks))) or sparsity.DimMetadataLength() != len(order):
        raise ModelError("sparse weights are malformed", why=f"levels {order} do not fit shape {shape}")
    if limit > _MOST_VALUES:
        raise ModelError(f"sparse weights of {limit:,} values are not supported")
    entries = np.zeros(1, np.int64)  # of the level before, by their place in it
    found: dict[int, np.ndarray] = {}  # by dimension or block, the index of each entry along it
    sizes: dict[int, int] = {}
    for level, dimension in enumerate(order):
        entries, indices, parents, sizes[dimension] = _entries_of(sparsity.DimMetadata(level), entries, limit)
        found = {each: along[parents] for each, along in found.items()} | {dimension: indices}
    for number, axis in enumerate(blocks):
        found[axis] = found[axis] * sizes[rank + number] + found[rank + number]
    outside = any(((found[axis] < 0) | (found[axis] >= size)).any() for axis, size in enumerate(shape))
    if outside or (entries >= len(values)).any():
        raise ModelError("sparse weights are malformed", why="an index is outside of them")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(found[axis] for axis in range(rank))] = values[entries]
    return dense


def _entries_of(level: Any, before: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """A level's entries: their places in it, indices along its dimension, the entries before them, and its size."""
    if level.Format() == tflite.DimensionType.DENSE:
        size = level.DenseSize()
        if not 0 < size * len(before) <= limit:
            raise ModelError("sparse weights are malformed", why=f"a level has {size} entries")
        parents = np.repeat(np.arange(len(before)), size)
        indices = np.tile(np.arange(size), len(before))
        return before[parents] * size + indices, indices, parents, size
    segments = _vector(level.ArraySegments(), level.ArraySegmentsType())
    every = _vector(level.ArrayIndices(), level.ArrayIndicesType())
    if before.max(initial=-1) + 1 >= len(segments) or (np.diff(segments) < 0).any():
        raise ModelError("sparse weights are malformed", why="segments of a level are missing")
    counts = segments[before + 1] - segments[before]
    if segments[0] != 0 or segments[-1] > len(every) or counts.sum() > limit:
        raise ModelError("sparse weights are malformed", why="indices of a level are missing")
    parents = np.repeat(np.arange(len(before)), counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = segments[before][parents] + within
    return places, every[places], parents, 0


def _vector(table: Any, kind: int) -> np.ndarray:
    """The integers of one of the schema's `SparseIndexVector`s."""
    kinds = {1: tflite.Int32Vector, 2: tflite.Uint16Vector, 3: tflite.Uint8Vector}
    if table is None or kind not in kinds:
        raise ModelError("sparse weights are malformed", why="a level has no indices")
    vector = kinds[kind]()
    vector.Init(table.Bytes, table.Pos)
    return np.atleast_1d(vector.ValuesAsNumpy()).astype(np.int64)


def _prelu(converter: Any, op: Any) -> Any:
    """PRELU; with one slope for each channel it stays one operator, which layouts pass through."""
    data, slopes = (converter.get_tensor_expr(tensor) for tensor in converter.get_input_tensors(op))
    build, shape = Builder(converter), shape_of(slopes)
    if shape and math.prod(shape) == shape[-1] == shape_of(data)[-1]:
        return relax.op.nn.prelu(data, build.reshape(slopes, [shape[-1]]), axis=len(shape_of(data)) - 1)
    return build.where(build.greater_equal(data, 0), data, build.multiply(data, slopes))


def _gather(converter: Any, op: Any) -> Any:
    """GATHER; with batch dimensions each part of the data is read by its own indices."""
    options = converter._get_builtin_options(op, tflite.GatherOptions)
    tensors = converter.get_input_tensors(op)
    indices = converter.get_tensor_expr(tensors[1])
    batch = options.BatchDims() % max(len(shape_of(indices)), 1)
    if not batch:
        return converter.convert_gather(op)
    data, build = converter.get_tensor_expr(tensors[0]), Builder(converter)
    rank, axis = len(shape_of(data)), options.Axis() % len(shape_of(data))
    # The axis moves behind the batch, the axes of the indices take its place, and go where it was.
    moved = build.permute(data, [*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)])
    places = build.reshape(build.cast(indices, "int64"), [*shape_of(indices), 1])
    read = converter.bb.normalize(relax.op.gather_nd(moved, places, batch_dims=batch))
    inner = len(shape_of(indices)) - batch
    before, after = axis - batch, rank - axis - 1
    ends = batch + inner + before
    order = [*range(batch), *range(batch + inner, ends), *range(batch, batch + inner), *range(ends, ends + after)]
    return build.permute(read, order)


def _fully_connected(converter: Any, op: Any) -> Any:
    """FULLY_CONNECTED: x Wᵀ + b, activation.

    Unless the operator keeps the axes of its input, its values form rows of the weights' length, and the result is a
    matrix. Quantised weights are seen as floats.
    """
    options = converter._get_builtin_options(op, tflite.FullyConnectedOptions)
    given = [tensor for tensor in converter.get_input_tensors(op) if tensor.tensor_idx != -1]
    data, weights, *bias = (converter.get_tensor_expr(tensor) for tensor in given)
    build = Builder(converter)
    if not options.KeepNumDims() and (width := shape_of(weights)[1]) and len(shape_of(data)) != 2:
        data = build.reshape(data, [-1, width])
    made = build.matmul(data, build.permute(weights, [1, 0]))
    for each in bias:
        made = build.add(made, each)
    return converter.convert_fused_activation_function(made, options.FusedActivationFunction())


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "DENSIFY": _densify,
    "DEQUANTIZE": _dequantize,
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "PRELU": _prelu,
    # Its output is quantised anyway.
    "QUANTIZE": lambda converter, op: converter.get_tensor_expr(*converter.get_input_tensors(op)),
    "RESIZE_BILINEAR": partial(_resize, "linear", "ResizeBilinearOptions", "convert_resize_bilinear"),
    "RESIZE_NEAREST_NEIGHBOR": partial(
        _resize, "nearest", "ResizeNearestNeighborOptions", "convert_resize_nearest_neighbor"
    ),
    "STABLEHLO_REDUCE_WINDOW": _reduce_window,
    "TRANSPOSE_CONV": _transpose_conv,
}

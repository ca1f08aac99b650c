"""Operators without windows: PRELU, GATHER, FULLY_CONNECTED, and steps between types and forms of weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tflite
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder

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
}

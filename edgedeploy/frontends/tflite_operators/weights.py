"""Weights that are stored in half precision, or without their zeros; and steps between types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, constant_value
from edgedeploy.errors import ModelError

# Of sparse weights, written out. A few bytes of a file can stand for any number of them.
_MOST_VALUES = 1 << 25


def _dequantize(converter: Any, op: Any) -> Any:
    """DEQUANTIZE of weights in half precision, or of a quantised tensor, whose real numbers it gives."""
    (tensor,) = converter.get_input_tensors(op)
    expression = converter.get_tensor_expr(tensor)
    value = constant_value(expression)
    return relax.op.astype(expression, "float32") if value is None else constant(value.astype(np.float32))


def _quantize(converter: Any, op: Any) -> Any:
    """QUANTIZE, of real numbers or of a quantised tensor: that its output is quantised says all."""
    (tensor,) = converter.get_input_tensors(op)
    return converter.get_tensor_expr(tensor)


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
        raise ModelError("sparse weights are malformed", why="an index lies outside of them")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(found[axis] for axis in range(rank))] = values[entries]
    return dense


def _entries_of(level: Any, before: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """A level's entries: their places in it, indices along its dimension, the entries before them, and its size."""
    from tflite import DimensionType

    if level.Format() == DimensionType.DENSE:
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
    import tflite

    kinds = {1: tflite.Int32Vector, 2: tflite.Uint16Vector, 3: tflite.Uint8Vector}
    if table is None or kind not in kinds:
        raise ModelError("sparse weights are malformed", why="a level has no indices")
    vector = kinds[kind]()
    vector.Init(table.Bytes, table.Pos)
    return np.atleast_1d(vector.ValuesAsNumpy()).astype(np.int64)


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "DENSIFY": _densify,
    "DEQUANTIZE": _dequantize,
    "QUANTIZE": _quantize,
}

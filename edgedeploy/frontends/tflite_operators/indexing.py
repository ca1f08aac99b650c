"""Operators that read where another tensor says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from edgedeploy.compile.expressions import shape_of
from edgedeploy.frontends.onnx_operators.translation import Builder


def _gather(converter: Any, op: Any) -> Any:
    """GATHER; with batch dimensions each part of the data is read by the indices of its own."""
    from tflite import GatherOptions

    options = converter._get_builtin_options(op, GatherOptions)
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


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {"GATHER": _gather}

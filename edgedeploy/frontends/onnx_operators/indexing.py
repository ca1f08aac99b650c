"""Operators that read or write where another tensor says; indices may count from the end of their axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, constant_value, shape_of
from edgedeploy.frontends.onnx_operators.translation import Builder, Translation, dtype_of, text


def _from_begin(importer: Any, indices: Any, sizes: int | np.ndarray) -> Any:
    """Indices that count from the begin of axes of these sizes, int64.

    Raises:
        ValueError: they are constants, and one lies beyond its axis.
    """
    values = constant_value(indices)
    if values is not None:
        if ((values < -np.asarray(sizes)) | (values >= sizes)).any():
            raise ValueError(f"an index is beyond an axis of {sizes}")
        return constant(np.where(values < 0, values + sizes, values), "int64")
    build = Builder(importer)
    wide = build.cast(indices, "int64")
    if dtype_of(indices).startswith("uint"):
        return wide
    return build.where(build.less(wide, 0), build.add(wide, sizes), wide)


def _gather(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    if not dtype_of(inputs[0]):
        return None
    axis = int(attr.get("axis", 0)) % len(shape_of(inputs[0]))
    return relax.op.take(inputs[0], _from_begin(importer, inputs[1], shape_of(inputs[0])[axis]), axis)


def _gather_elements(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    axis = int(attr.get("axis", 0)) % len(shape_of(inputs[0]))
    return relax.op.gather_elements(inputs[0], _from_begin(importer, inputs[1], shape_of(inputs[0])[axis]), axis)


def _gather_nd(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    begin = int(attr.get("batch_dims", 0))
    return relax.op.gather_nd(inputs[0], _from_begin(importer, inputs[1], _sizes(inputs, begin)), begin)


def _sizes(inputs: list[Any], begin: int = 0) -> np.ndarray:
    """Of the axes that the last axis of the indices says positions on."""
    return np.array(shape_of(inputs[0])[begin : begin + shape_of(inputs[1])[-1]], np.int64)


def _reduction(attr: dict[str, Any]) -> str:
    return {"none": "update"}.get(text(attr, "reduction", "none"), text(attr, "reduction", "none"))


def _scatter_elements(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    data, indices, updates = inputs
    axis = int(attr.get("axis", 0)) % len(shape_of(data))
    return relax.op.scatter_elements(
        data, _from_begin(importer, indices, shape_of(data)[axis]), updates, axis, _reduction(attr)
    )


def _scatter_nd(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    data, indices, updates = inputs
    return relax.op.scatter_nd(data, _from_begin(importer, indices, _sizes(inputs)), updates, _reduction(attr))


def _compress(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Compress with a constant condition."""
    condition, build, data = constant_value(inputs[1]), Builder(importer), inputs[0]
    if condition is None:
        return None
    if "axis" not in attr:
        data = build.reshape(data, [int(np.prod(shape_of(data)))])
    axis = int(attr.get("axis", 0)) % len(shape_of(data))
    return build.take(data, np.nonzero(condition[: shape_of(data)[axis]])[0], axis)


TRANSLATIONS: dict[str, Translation] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}

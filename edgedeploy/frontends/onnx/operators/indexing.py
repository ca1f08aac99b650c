"""Operators that select values: by indices, which may count from the end of their axis, or by what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, integers, optional, text


def _from_begin(build: Builder, indices: Any, sizes: int | np.ndarray) -> Any:
    """Indices on axes of these sizes, int64: constants count from the beginning, `compile.guards` checks others."""
    values = constant_value(indices)
    if values is not None:
        if ((values < -np.asarray(sizes)) | (values >= sizes)).any():
            raise ValueError(f"an index is beyond an axis of {sizes}")
        return constant(np.where(values < 0, values + sizes, values), "int64")
    return build.cast(indices, "int64")


def _gather(operator: Callable[[Any, Any, int], Any], build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    if not dtype_of(inputs[0]):
        return None
    axis = int(attr.get("axis", 0)) % len(shape_of(inputs[0]))
    return operator(inputs[0], _from_begin(build, inputs[1], shape_of(inputs[0])[axis]), axis)


def _gather_nd(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    begin = int(attr.get("batch_dims", 0))
    return relax.op.gather_nd(inputs[0], _from_begin(build, inputs[1], _sizes(inputs, begin)), begin)


def _sizes(inputs: list[Any], begin: int = 0) -> np.ndarray:
    """The sizes of the axes that the last axis of the indices has positions on."""
    return np.array(shape_of(inputs[0])[begin : begin + shape_of(inputs[1])[-1]], np.int64)


def _reduction(attr: dict[str, Any]) -> str:
    return text(attr, "reduction", "none").replace("none", "update")


def _scatter_elements(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    data, indices, updates = inputs
    axis = int(attr.get("axis", 0)) % len(shape_of(data))
    begun = _from_begin(build, indices, shape_of(data)[axis])
    return relax.op.scatter_elements(data, begun, updates, axis, _reduction(attr))


def _scatter_nd(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    data, indices, updates = inputs
    return relax.op.scatter_nd(data, _from_begin(build, indices, _sizes(inputs)), updates, _reduction(attr))


def _image(build: Builder, images: int, indices: Any) -> Any:
    """Indices of images in a batch; unknown ones are read from a table, which is guarded as such."""
    begun = _from_begin(build, indices, images)
    if constant_value(begun) is not None:
        return begun
    return build.take(constant(np.arange(images), "int64"), begun, 0)


def _roi_align(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    data, regions, indices = inputs
    return build.importer.theirs("RoiAlign", [data, regions, _image(build, shape_of(data)[0], indices)], attr)


def _max_roi_pool(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Each region begins with the index of its image, as a float."""
    data, regions = inputs
    indices = _image(build, shape_of(data)[0], build.cast(build.take(regions, np.array([0]), 1), "int64"))
    corners = build.take(regions, np.arange(1, shape_of(regions)[1]), 1)
    whole = build.concat([build.cast(indices, dtype_of(regions)), corners], axis=1)
    return build.importer.theirs("MaxRoiPool", [data, whole], attr)


def _compress(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Compress with a constant condition."""
    data, condition = inputs[0], constant_value(inputs[1])
    if condition is None:
        return None
    if "axis" not in attr:
        data = build.reshape(data, [int(np.prod(shape_of(data)))])
    axis = int(attr.get("axis", 0)) % len(shape_of(data))
    return build.take(data, np.nonzero(condition[: shape_of(data)[axis]])[0], axis)


def _extreme(operator: str, build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """ReduceMax and ReduceMin of truth values, in int8."""
    if dtype_of(inputs[0]) != "bool":
        return None
    given = list(attr["axes"]) if "axes" in attr else integers(inputs, 1)
    if given is None and optional(inputs, 1) is not None:
        return None
    if not given and attr.get("noop_with_empty_axes", 0):
        return inputs[0]
    rank = len(shape_of(inputs[0]))
    axes = [axis % rank for axis in given or range(rank)]
    small = build.cast(inputs[0], "int8")
    return build.cast(build.reduce(operator, small, axes, keepdims=bool(attr.get("keepdims", 1))), "bool")


def _refused(what: str, hints: Sequence[str], build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """An operator whose result's size depends on the values of its inputs."""
    if all(value is None or constant_value(value) is not None for value in inputs):
        return None
    raise ModelError(
        f"{what} depends on the input's values, and packages have tensors of fixed shapes",
        hints=[*hints, "cut the network before this node"],
    )


TRANSLATIONS: dict[str, Translation] = {
    "Compress": _compress,
    "Gather": partial(_gather, relax.op.take),
    "GatherElements": partial(_gather, relax.op.gather_elements),
    "GatherND": _gather_nd,
    "MaxRoiPool": _max_roi_pool,
    "ReduceMax": partial(_extreme, "max"),
    "ReduceMin": partial(_extreme, "min"),
    "RoiAlign": _roi_align,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    # That of opset 10 has its k as an input already.
    "TopK": lambda build, inputs, attr: (
        build.importer.theirs("TopK", inputs, attr, 11) if build.importer.opset == 10 else None
    ),
    "NonMaxSuppression": partial(
        _refused,
        "how many boxes it keeps",
        ["export the network without non-maximum suppression, and do that after `edgedeploy run`, as the demos do"],
    ),
    "NonZero": partial(_refused, "how many positions it finds", ()),
    "Unique": partial(_refused, "how many values it finds", ()),
}

"""ONNX's Resize and Upsample with all their attributes.

The formulas are those of the operator's specification (Operators.md of ONNX, Resize-19, and Resize-10 and
Upsample-9 before it). Where TVM's `resize2d` computes the same it is taken, since the compiler has templates for it.
What else there is works along one axis at a time: nearest neighbours are gathered, and any interpolation is the product
with a matrix that has a few values in each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Translation, dtype_of

# What `resize2d` computes as ONNX does, where the scale is exactly that of the sizes.
_TRANSFORMS = {
    "linear": {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"},
    "cubic": {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"},
    "nearest": {"half_pixel", "pytorch_half_pixel", "asymmetric"},
}

# What `resize2d` computes in another way, or divides by zero in, where an axis of the result has one value.
_NOT_TO_ONE = {("linear", "pytorch_half_pixel"), *((mode, "align_corners") for mode in _TRANSFORMS)}

# onnxruntime computes coordinates in float32, and takes those this near to the middle of two values for the middle: so
# measured with 1.32 on all sizes up to 32.
_HALF_WAY = 1e-6

_LARGEST = 2**16  # of an axis, for tables of neighbours


@dataclass(frozen=True)
class Rules:
    """How a Resize finds values; the attributes of the operator, with its names.

    Attributes:
        mode: nearest, linear or cubic.
        transform: `coordinate_transformation_mode`.
        rounding: `nearest_mode`.
        cubic: `cubic_coeff_a`.
        exclude_outside: whether weights beyond the edge are zero, instead of those of the edge's value.
        antialias: whether a smaller image is filtered.
        extrapolation: the value beyond the edges of tf_crop_and_resize.
    """

    mode: str
    transform: str
    rounding: str
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


@dataclass(frozen=True)
class Axis:
    """One axis that changes.

    Attributes:
        index: which one.
        before, after: its sizes.
        scale: what coordinates are divided by; nearly after / before.
        region: of tf_crop_and_resize, begin and end as fractions of the axis.
    """

    index: int
    before: int
    after: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


def resize(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> relax.Expr | None:
    """A Resize with constant scales or sizes; None where TVM's importer is to try."""
    data, shape = inputs[0], shape_of(inputs[0])
    if any(value is not None and constant_value(value) is None for value in inputs[1:]):
        return None
    given = [_values(value) for value in (*inputs[1:], None, None, None)[:3]]
    region, scales, sizes = given if importer.opset > 10 else [None, given[0], None]
    if scales is None and sizes is None:
        raise ModelError("neither scales nor sizes are given")
    transform = attr.get("coordinate_transformation_mode", b"half_pixel").decode()
    rules = Rules(
        mode=attr.get("mode", b"nearest").decode(),
        transform=transform,
        rounding=attr.get("nearest_mode", b"round_prefer_floor").decode(),
        cubic=float(attr.get("cubic_coeff_a", -0.75)),
        exclude_outside=bool(attr.get("exclude_outside", 0)),
        antialias=bool(attr.get("antialias", 0)),
        extrapolation=float(attr.get("extrapolation_value", 0.0)),
    )
    if importer.opset < 11:
        rules = Rules(rules.mode, "asymmetric", "simple")
    indices = [int(axis) % len(shape) for axis in attr.get("axes", range(len(shape)))]
    axes = _axes(shape, indices, scales, sizes, region, attr.get("keep_aspect_ratio_policy", b"stretch").decode())
    whole = all(float(axis.before * axis.scale).is_integer() or sizes is not None for axis in axes)
    if transform == "align_corners" and not whole:
        raise ModelError(
            "align_corners with scales that give no whole size means one thing to ONNX and another to onnxruntime",
            hints=["export it with sizes in the place of scales"],
        )
    return resized(importer, data, axes, rules)


def upsample(importer: Any, inputs: list[Any], attr: dict[str, Any]) -> relax.Expr | None:
    """An Upsample; scales are an attribute up to opset 8, an input at opset 9."""
    shape = shape_of(inputs[0])
    scales = np.asarray(attr["scales"]) if "scales" in attr else _values(inputs[1])
    if scales is None:
        return None
    mode = attr.get("mode", b"nearest").decode()
    axes = _axes(shape, range(len(shape)), scales, None, None, "stretch")
    return resized(importer, inputs[0], axes, Rules(mode, "asymmetric", "simple"))


def _axes(
    shape: Sequence[int],
    indices: Sequence[int],
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    region: np.ndarray | None,
    policy: str,
) -> list[Axis]:
    """The axes that change; scales or sizes, and the region's begins and ends, are those of `indices`."""
    if sizes is not None:
        wanted = [float(size) for size in sizes]
        ratios = [size / shape[index] for size, index in zip(wanted, indices, strict=True)]
        if policy != "stretch":
            ratios = [(min if policy == "not_larger" else max)(ratios)] * len(ratios)
            wanted = [math.floor(ratio * shape[index] + 0.5) for ratio, index in zip(ratios, indices, strict=True)]
    else:
        assert scales is not None
        # The product in float32, as onnxruntime has it: 1.1 times 10 is 11.
        ratios = [float(scale) for scale in scales]
        products = [np.float32(scale) * np.float32(shape[index]) for scale, index in zip(scales, indices, strict=True)]
        wanted = [math.floor(product) for product in products]
    if region is None or len(region) != 2 * len(indices):
        region = np.array([0.0] * len(indices) + [1.0] * len(indices))
    found = [
        Axis(index, shape[index], int(size), ratio, (float(begin), float(end)))
        for index, size, ratio, begin, end in zip(indices, wanted, ratios, *np.split(region, 2), strict=True)
    ]
    for axis in found:
        if not (0 < axis.after <= _LARGEST and axis.before <= _LARGEST and axis.scale > 0):
            raise ModelError(f"axis {axis.index} cannot become {axis.after} long", why=f"it is {axis.before} long")
    changing = [axis for axis in found if axis.before != axis.after or axis.scale != 1 or axis.region != (0.0, 1.0)]
    return sorted(changing, key=lambda axis: axis.index)


def resized(importer: Any, data: Any, axes: Sequence[Axis], rules: Rules) -> relax.Expr:
    """A tensor with some axes resized; `importer.bb` builds the network."""
    shape = shape_of(data)
    if rules.mode not in _TRANSFORMS:
        raise ModelError(f"mode {rules.mode!r} is none of {', '.join(_TRANSFORMS)}")
    if _is_resize2d(shape, axes, rules):
        sizes = {axis.index: axis.after for axis in axes}
        return relax.op.image.resize2d(
            data,
            size=relax.ShapeExpr([sizes.get(index, shape[index]) for index in (2, 3)]),
            roi=[0.0] * 4,
            layout="NCHW",
            method={"nearest": "nearest_neighbor"}.get(rules.mode, rules.mode),
            coordinate_transformation_mode=rules.transform,
            rounding_method={"simple": "floor"}.get(rules.rounding, rules.rounding),
            cubic_alpha=rules.cubic,
            cubic_exclude=int(rules.exclude_outside),
        )
    result = data
    for axis in axes:
        if rules.mode == "nearest":
            picked = constant(_nearest(axis, rules))
            result = importer.bb.normalize(relax.op.take(result, picked, axis.index))
        else:
            result = importer.bb.normalize(_product(importer, result, _weights(axis, rules), axis.index))
        if rules.transform == "tf_crop_and_resize":
            result = importer.bb.normalize(_extrapolated(result, axis, rules))
    return result


def _is_resize2d(shape: Sequence[int], axes: Sequence[Axis], rules: Rules) -> bool:
    """Whether TVM's `resize2d` computes the same, up to rounding."""
    exact = all(rules.transform == "align_corners" or axis.after == axis.before * axis.scale for axis in axes)
    return (
        len(shape) == 4
        and bool(axes)
        and all(axis.index >= 2 for axis in axes)
        and rules.transform in _TRANSFORMS[rules.mode]
        and (exact or (rules.mode != "nearest" and all(_follows_sizes(axis) for axis in axes)))
        and (rules.rounding != "simple" or all(axis.scale >= 1 for axis in axes))
        and (rules.mode != "nearest" or all(_is_plain(axis, rules) for axis in axes))
        and not rules.antialias
        and not (any(axis.after == 1 for axis in axes) and (rules.mode, rules.transform) in _NOT_TO_ONE)
    )


def _follows_sizes(axis: Axis) -> bool:
    return abs(axis.scale * axis.before - axis.after) < 1e-6 * axis.after


def _is_plain(axis: Axis, rules: Rules) -> bool:
    """Whether nearest neighbours are the same whoever computes their coordinates, in whatever precision."""
    times, rest = divmod(axis.after, axis.before)
    grows = rest == 0
    if rules.transform != "asymmetric":
        # (2i + 1 - n) / 2n, for n times the size, is never half way between two, nor whole for an even n.
        return grows and (rules.rounding.startswith("round") or times % 2 == 0)
    exact = rules.rounding in ("floor", "simple") or times & (times - 1) == 0
    return axis.before % axis.after == 0 or (grows and exact)


def _coordinates(axis: Axis, transform: str, dtype: type[np.floating[Any]] = np.float64) -> np.ndarray:
    """Where each position of the resized axis lies on the original one, computed in a type."""
    x = np.arange(axis.after, dtype=dtype)
    before, after, scale = axis.before, axis.after, dtype(np.float32(axis.scale))
    if transform == "half_pixel" or (transform == "pytorch_half_pixel" and after > 1):
        return (x + 0.5) / scale - 0.5
    if transform == "pytorch_half_pixel":
        return np.zeros(1)
    if transform == "half_pixel_symmetric":
        centre = before / 2
        return centre * (1 - after / (scale * before)) + (x + 0.5) / scale - 0.5
    if transform == "align_corners":
        return x * (before - 1) / (after - 1) if after > 1 else np.zeros(1)
    if transform == "asymmetric":
        return x / scale
    if transform == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if transform == "tf_crop_and_resize":
        begin, end = axis.region
        if after == 1:
            return np.array([0.5 * (begin + end) * (before - 1)])
        return begin * (before - 1) + x * (end - begin) * (before - 1) / (after - 1)
    raise ModelError(f"coordinate_transformation_mode {transform!r} is not supported")


def _nearest(axis: Axis, rules: Rules) -> np.ndarray:
    """The neighbour of each position, (after,) int64."""
    x = _coordinates(axis, rules.transform, np.float32).astype(np.float64)
    if rules.rounding == "round_prefer_floor":
        rounded = np.ceil(x - 0.5 - _HALF_WAY)
    elif rules.rounding == "round_prefer_ceil":
        rounded = np.floor(x + 0.5 + _HALF_WAY)
    elif rules.rounding == "ceil" or (rules.rounding == "simple" and axis.scale < 1):
        rounded = np.ceil(x)  # as onnxruntime does where it makes images smaller
    elif rules.rounding in ("floor", "simple"):
        rounded = np.floor(x)
    else:
        raise ModelError(f"nearest_mode {rules.rounding!r} is not supported")
    return np.clip(rounded, 0, axis.before - 1).astype(np.int64)


def _weights(axis: Axis, rules: Rules) -> np.ndarray:
    """The weight of each original position for each resized one, (after, before) float32."""
    x = _coordinates(axis, rules.transform)
    narrow = min(float(axis.scale), 1.0) if rules.antialias else 1.0
    reach = (1 if rules.mode == "linear" else 2) / narrow
    if rules.mode == "linear" and not rules.antialias:
        x = np.clip(x, 0, axis.before - 1)
    elements = np.floor(x)[:, None] + np.arange(-math.ceil(reach) + 1, math.ceil(reach) + 1)
    distance = np.abs(elements - x[:, None]) * narrow
    if rules.mode == "linear":
        values = np.maximum(0.0, 1.0 - distance)
    else:
        a = rules.cubic
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        values = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    if rules.exclude_outside:
        values = np.where((elements >= 0) & (elements < axis.before), values, 0.0)
    values /= values.sum(axis=1, keepdims=True)
    weights = np.zeros((axis.after, axis.before))
    positions = np.clip(elements, 0, axis.before - 1).astype(np.int64)
    np.add.at(weights, (np.arange(axis.after)[:, None], positions), values)
    return weights.astype(np.float32)


def _product(importer: Any, data: Any, weights: np.ndarray, index: int) -> relax.Expr:
    """The sums along one axis with the weights of each new position."""
    rank, dtype = len(shape_of(data)), dtype_of(data)
    if index == rank - 1:
        return relax.op.matmul(data, relax.const(np.ascontiguousarray(weights.T), dtype))
    if index == rank - 2:
        return relax.op.matmul(relax.const(weights, dtype), data)
    order = [axis for axis in range(rank) if axis != index] + [index]
    last = importer.bb.normalize(relax.op.permute_dims(data, order))
    summed = importer.bb.normalize(relax.op.matmul(last, relax.const(np.ascontiguousarray(weights.T), dtype)))
    return relax.op.permute_dims(summed, [order.index(axis) for axis in range(rank)])


def _extrapolated(data: Any, axis: Axis, rules: Rules) -> relax.Expr:
    """The extrapolation value wherever a position lies beyond the original axis."""
    x = _coordinates(axis, rules.transform)
    inside = ((x >= 0) & (x <= axis.before - 1)).reshape((-1,) + (1,) * (len(shape_of(data)) - axis.index - 1))
    return relax.op.where(constant(inside), data, relax.const(rules.extrapolation, dtype_of(data)))


def _values(expression: Any) -> np.ndarray | None:
    """The values of a constant input, or None where there are none."""
    value = constant_value(expression)
    return None if value is None or value.size == 0 else value.astype(np.float64)


TRANSLATIONS: dict[str, Translation] = {"Resize": resize, "Upsample": upsample}

"""ONNX's Resize and Upsample with all their attributes.

Formulas: Operators.md of ONNX, Resize-19, and Resize-10 and Upsample-9 before it. TVM's `resize2d` is used if it
computes the same, since the compiler has templates for it. Otherwise one axis is resized at a time: nearest neighbours
are gathered, and interpolation is a product with a matrix that has a few values in each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, text

# Modes and transforms that `resize2d` computes as ONNX does, if the scale is exactly that of the sizes.
_TRANSFORMS = {
    "linear": ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "cubic": ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "nearest": ("half_pixel", "pytorch_half_pixel", "asymmetric"),
}

# Those that it computes otherwise, or divides by zero in, if an axis of the result has one value.
_NOT_TO_ONE = {("linear", "pytorch_half_pixel"), *((mode, "align_corners") for mode in _TRANSFORMS)}

# onnxruntime computes coordinates in float32, and takes those this close to the middle of two values for the middle:
# measured with 1.32 on all sizes up to 32.
_HALF_WAY = 1e-6

_LARGEST = 2**16  # of an axis, for tables of neighbours


@dataclass(frozen=True)
class Rules:
    """The attributes of a Resize."""

    mode: str  # nearest, linear or cubic
    transform: str  # coordinate_transformation_mode
    rounding: str  # nearest_mode
    cubic: float = -0.75  # cubic_coeff_a
    exclude_outside: bool = False  # weights beyond the edge are zero, instead of those of the edge's value
    antialias: bool = False  # filter smaller images
    extrapolation: float = 0.0  # the value beyond the edges of tf_crop_and_resize


@dataclass(frozen=True)
class Axis:
    """One axis that changes, with its sizes before and after."""

    index: int
    before: int
    after: int
    scale: float  # the divisor of coordinates, nearly after / before
    region: tuple[float, float] = (0.0, 1.0)  # of tf_crop_and_resize, begin and end as fractions of the axis


def resize(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> relax.Expr | None:
    """A Resize with constant scales or sizes; TVM's importer tries others."""
    data, shape = inputs[0], shape_of(inputs[0])
    if any(value is not None and constant_value(value) is None for value in inputs[1:]):
        return None
    given = [_values(value) for value in (*inputs[1:], None, None, None)[:3]]
    region, scales, sizes = given if build.importer.opset > 10 else [None, given[0], None]
    if scales is None and sizes is None:
        raise ModelError("neither scales nor sizes are given")
    transform, mode = text(attr, "coordinate_transformation_mode", "half_pixel"), text(attr, "mode", "nearest")
    rules = Rules(
        mode,
        transform,
        text(attr, "nearest_mode", "round_prefer_floor"),
        cubic=float(attr.get("cubic_coeff_a", -0.75)),
        exclude_outside=bool(attr.get("exclude_outside", 0)),
        antialias=bool(attr.get("antialias", 0)),
        extrapolation=float(attr.get("extrapolation_value", 0.0)),
    )
    if build.importer.opset < 11:
        rules = Rules(mode, "asymmetric", "simple")
    indices = [int(axis) % len(shape) for axis in attr.get("axes", range(len(shape)))]
    axes = _axes(shape, indices, scales, sizes, region, text(attr, "keep_aspect_ratio_policy", "stretch"))
    whole = all(float(axis.before * axis.scale).is_integer() or sizes is not None for axis in axes)
    if transform == "align_corners" and not whole:
        raise ModelError(
            "align_corners with scales that give no whole size means one thing to ONNX and another to onnxruntime",
            hints=["export it with sizes instead of scales"],
        )
    return resized(build, data, axes, rules)


def upsample(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> relax.Expr | None:
    """An Upsample; scales are an attribute up to opset 8, an input at opset 9."""
    return resize(build, [inputs[0], constant(attr["scales"])] if "scales" in attr else inputs, attr)


def _axes(
    shape: Sequence[int],
    indices: Sequence[int],
    scales: np.ndarray | None,
    sizes: np.ndarray | None,
    region: np.ndarray | None,
    policy: str,
) -> list[Axis]:
    """The axes that change; scales or sizes, and the region's begins and ends, are for the axes `indices`."""
    before = np.array([shape[index] for index in indices], np.float64)
    if sizes is not None:
        ratios, wanted = sizes / before, sizes
        if policy != "stretch":
            ratios = np.full(len(before), ratios.min() if policy == "not_larger" else ratios.max())
            wanted = np.floor(ratios * before + 0.5)
    else:
        assert scales is not None
        # The product in float32, as onnxruntime has it: 1.1 times 10 is 11.
        ratios, wanted = scales, np.floor(scales.astype(np.float32) * before.astype(np.float32))
    if region is None or len(region) != 2 * len(indices):
        region = np.array([0.0] * len(indices) + [1.0] * len(indices))
    found = [
        Axis(index, shape[index], int(size), float(ratio), (float(begin), float(end)))
        for index, size, ratio, begin, end in zip(indices, wanted, ratios, *np.split(region, 2), strict=True)
    ]
    for axis in found:
        if not (0 < axis.after <= _LARGEST and axis.before <= _LARGEST and axis.scale > 0):
            raise ModelError(f"axis {axis.index} cannot become {axis.after} long", why=f"it is {axis.before} long")
    changing = [axis for axis in found if axis.before != axis.after or axis.scale != 1 or axis.region != (0.0, 1.0)]
    return sorted(changing, key=lambda axis: axis.index)


def resized(build: Builder, data: Any, axes: Sequence[Axis], rules: Rules) -> relax.Expr:
    """A tensor with some axes resized."""
    shape = shape_of(data)
    if rules.mode not in _TRANSFORMS:
        raise ModelError(f"mode {rules.mode!r} is not supported; supported are {', '.join(_TRANSFORMS)}")
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
            result = build.take(result, _nearest(axis, rules), axis.index)
        else:
            result = _product(build, result, _weights(axis, rules), axis.index)
        if rules.transform == "tf_crop_and_resize":
            x = _coordinates(axis, rules.transform)
            inside = ((x >= 0) & (x <= axis.before - 1)).reshape((-1,) + (1,) * (len(shape) - axis.index - 1))
            result = build.where(constant(inside), result, relax.const(rules.extrapolation, dtype_of(result)))
    return result


def _is_resize2d(shape: Sequence[int], axes: Sequence[Axis], rules: Rules) -> bool:
    """Whether TVM's `resize2d` computes the same, up to rounding."""
    exact = all(rules.transform == "align_corners" or axis.after == axis.before * axis.scale for axis in axes)
    close = all(abs(axis.scale * axis.before - axis.after) < 1e-6 * axis.after for axis in axes)
    return (
        len(shape) == 4
        and bool(axes)
        and all(axis.index >= 2 for axis in axes)
        and rules.transform in _TRANSFORMS[rules.mode]
        and (exact or (rules.mode != "nearest" and close))
        and (rules.rounding != "simple" or all(axis.scale >= 1 for axis in axes))
        and (rules.mode != "nearest" or all(_is_plain(axis, rules) for axis in axes))
        and not rules.antialias
        and not (any(axis.after == 1 for axis in axes) and (rules.mode, rules.transform) in _NOT_TO_ONE)
    )


def _is_plain(axis: Axis, rules: Rules) -> bool:
    """Whether nearest neighbours are the same in any precision of their coordinates."""
    times, rest = divmod(axis.after, axis.before)
    grows = rest == 0
    if rules.transform != "asymmetric":
        # (2i + 1 - n) / 2n, for n times the size, is never half way between two, nor whole for an even n.
        return grows and (rules.rounding.startswith("round") or times % 2 == 0)
    exact = rules.rounding in ("floor", "simple") or times & (times - 1) == 0
    return axis.before % axis.after == 0 or (grows and exact)


def _coordinates(axis: Axis, transform: str, dtype: type[np.floating[Any]] = np.float64) -> np.ndarray:
    """The place of each resized position on the original axis, computed in a type."""
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
        rounded = np.ceil(x)  # as onnxruntime does for smaller images
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


def _product(build: Builder, data: Any, weights: np.ndarray, index: int) -> relax.Expr:
    """The sums along one axis with the weights of each new position."""
    rank, dtype = len(shape_of(data)), dtype_of(data)
    if index == rank - 2:
        return build.matmul(relax.const(weights, dtype), data)
    order = [axis for axis in range(rank) if axis != index] + [index]
    summed = build.matmul(build.permute(data, order), relax.const(np.ascontiguousarray(weights.T), dtype))
    return build.permute(summed, [order.index(axis) for axis in range(rank)])


def _values(expression: Any) -> np.ndarray | None:
    """The values of a constant input; None if it is not constant or empty."""
    value = constant_value(expression)
    return None if value is None or value.size == 0 else value.astype(np.float64)


TRANSLATIONS: dict[str, Translation] = {"Resize": resize, "Upsample": upsample}

"""Operators that change shapes, or select by position."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, integers, optional, text


def _pad(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Pad with a constant on all axes; widths are an attribute up to opset 10. Widths of zero do nothing."""
    if attr.get("mode", b"constant") != b"constant" or optional(inputs, 3) is not None:
        return None
    if "pads" in attr:
        inputs = [inputs[0], constant(attr["pads"]), constant(attr.get("value", 0.0))]
    widths = constant_value(inputs[1])
    value = np.asarray(0.0) if optional(inputs, 2) is None else constant_value(inputs[2])
    if widths is None or value is None or (widths < 0).any():
        return None
    if not widths.any():
        return inputs[0]
    interleaved = [int(width) for pair in zip(*np.split(widths, 2), strict=True) for width in pair]
    return relax.op.nn.pad(inputs[0], interleaved, pad_mode="constant", pad_value=float(value.item()))


def _axes(inputs: list[Any], attr: dict[str, Any]) -> list[int] | None:
    """The axes of Squeeze and Unsqueeze: an attribute up to opset 12, then an input; None if they are left out."""
    if "axes" in attr:
        return list(attr["axes"])
    if optional(inputs, 1) is None:
        return None
    axes = integers(inputs, 1)
    if axes is None:
        raise ModelError("its axes depend on the network's input", hints=["export the network with constant axes"])
    return axes


def _squeeze(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    shape, axes = shape_of(inputs[0]), _axes(inputs, attr)
    if axes is None:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    gone = {axis % len(shape) for axis in axes}
    if any(shape[axis] != 1 for axis in gone):
        raise ValueError(f"axes {axes} of shape {shape} are not all one long")
    return relax.op.reshape(inputs[0], [size for axis, size in enumerate(shape) if axis not in gone])


def _unsqueeze(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    axes = _axes(inputs, attr)
    if axes is None:
        return None
    sizes = iter(shape_of(inputs[0]))
    rank = len(shape_of(inputs[0])) + len(axes)
    new = {axis + rank if axis < 0 else axis for axis in axes}
    if len(new) < len(axes) or not new <= set(range(rank)):
        raise ValueError(f"axes {axes} do not fit a result of rank {rank}")
    return relax.op.reshape(inputs[0], [1 if axis in new else next(sizes) for axis in range(rank)])


def _slice(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Slice of opsets up to 9, whose bounds are attributes, and empty slices."""
    data = inputs[0]
    if "starts" in attr:
        axes = attr.get("axes", range(len(attr["starts"])))
        inputs = [data, *(constant(list(values), "int64") for values in (attr["starts"], attr["ends"], axes))]
    starts, ends, axes, steps = (integers(inputs, place) for place in range(1, 5))
    if dtype_of(data) and starts is not None and ends is not None:
        shape = shape_of(data)
        for axis, *bounds in zip(axes or range(len(starts)), starts, ends, steps or [1] * len(starts), strict=False):
            if bounds[-1]:
                shape[axis] = len(range(*slice(*bounds).indices(shape[axis])))
        if 0 in shape:
            return constant(np.zeros(shape, dtype_of(data)))
    return build.importer.theirs("Slice", inputs, {}) if "starts" in attr else None


def _split(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Split into parts of stated sizes, some of which may be empty, or of equal size except for the last."""
    sizes = list(attr["split"]) if "split" in attr else integers(inputs, 1)
    shape = shape_of(inputs[0])
    axis = int(attr.get("axis", 0)) % len(shape)
    if optional(inputs, 1) is not None and sizes is None:
        return None
    if not sizes:
        count = int(attr["tvm_custom"]["num_outputs"])
        size = -(-shape[axis] // count)
        sizes = [*[size] * (count - 1), shape[axis] - size * (count - 1)]
    if sum(sizes) != shape[axis] or min(sizes) < 0:
        raise ModelError(f"parts of {sizes} are not an axis of {shape[axis]}")
    if len(sizes) == 1:
        return inputs[0]
    if 0 not in sizes:
        return relax.op.split(inputs[0], [int(place) for place in np.cumsum(sizes[:-1])], axis)
    empty = constant(np.zeros([*shape[:axis], 0, *shape[axis + 1 :]], dtype_of(inputs[0])))
    ends = np.cumsum(sizes).tolist()
    parts = [
        build.strided_slice(inputs[0], axes=[axis], begin=[end - size], end=[end]) if size else empty
        for size, end in zip(sizes, ends, strict=True)
    ]
    return relax.Tuple(parts)


def _triangle(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Trilu with a constant diagonal, by a constant mask."""
    diagonal = [0] if optional(inputs, 1) is None else integers(inputs, 1)
    if diagonal is None:
        return None
    data = inputs[0]
    *_, rows, columns = shape_of(data)
    ones = np.ones((rows, columns), np.bool_)
    mask = np.triu(ones, diagonal[0]) if attr.get("upper", 1) else np.tril(ones, diagonal[0])
    return relax.op.where(constant(mask), data, constant(0, dtype_of(data)))


def _one_hot(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """OneHot with a constant depth, of the type of its values."""
    depth, values = constant_value(inputs[1]), constant_value(inputs[2])
    if depth is None or values is None or values.size != 2:
        return None
    count, rank = int(depth.item()), len(shape_of(inputs[0])) + 1
    axis = int(attr.get("axis", -1)) % rank
    choices = np.arange(count).reshape([-1 if each == axis else 1 for each in range(rank)])
    wide = build.expand_dims(build.cast(inputs[0], "int64"), axis=axis)
    wide = build.where(build.less(wide, 0), build.add(wide, count), wide)
    off, on = (constant(value) for value in values.ravel())
    return relax.op.where(build.equal(wide, choices), on, off)


def _space_to_depth(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """SpaceToDepth: blocks go before the channels (DCR), or behind them (CRD, from opset 28 on)."""
    data, block, mode = inputs[0], int(attr["blocksize"]), text(attr, "mode", "DCR")
    batch, channels, rows, columns = shape_of(data)
    parts = build.reshape(data, [batch, channels, rows // block, block, columns // block, block])
    parts = build.permute(parts, [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4])
    return build.reshape(parts, [batch, channels * block**2, rows // block, columns // block])


def _concatenate(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Concat without its empty tensors, by TVM's translation."""
    kept = [value for value in inputs if not dtype_of(value) or 0 not in shape_of(value)]
    if len(kept) in (0, len(inputs)):
        return None
    return kept[0] if len(kept) == 1 else build.importer.theirs("Concat", kept, attr)


TRANSLATIONS: dict[str, Translation] = {
    "Concat": _concatenate,
    # TVM's is for opset 11 and later; before, there is no mode.
    "DepthToSpace": lambda build, inputs, attr: build.importer.theirs(
        "DepthToSpace", inputs, attr, max(build.importer.opset, 11)
    ),
    "OneHot": _one_hot,
    "Pad": _pad,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
}

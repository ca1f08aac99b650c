"""Operators that give values another shape or place, and those that make shapes and ranges."""

from __future__ import annotations

import numpy as np

from edgedeploy.tail.operators.operator import Attributes, Inputs, Operator, integers, optional, sized


def _reshape(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, sizes = inputs[0], [int(size) for size in inputs[1]]
    if not attributes.get("allowzero", 0):
        sizes = [values.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if -1 in sizes and values.size == 0:  # numpy cannot tell what is left of nothing
        others = int(np.prod([size for size in sizes if size != -1]))
        sizes = [0 if size == -1 and others else max(size, 0) for size in sizes]
    return np.reshape(values, sizes)


def _flatten(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, axis = inputs[0], attributes.get("axis", 1)
    axis += values.ndim if axis < 0 else 0
    return np.reshape(values, (int(np.prod(values.shape[:axis])), int(np.prod(values.shape[axis:]))))


def _squeeze(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    axes = integers(inputs, 1, attributes, "axes")
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _unsqueeze(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    return np.expand_dims(inputs[0], tuple(integers(inputs, 1, attributes, "axes") or ()))


def _shape(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    return np.array(inputs[0].shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


def _slice(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values = inputs[0]
    starts, ends, axes, steps = (
        integers(inputs, place, attributes, name)
        for place, name in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))
    )
    assert starts is not None
    assert ends is not None
    parts = [slice(None)] * values.ndim
    for place, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = axes[place] if axes else place
        step = steps[place] if steps else 1
        size = values.shape[axis]
        # Backwards, a start before the first element means that one, and an end there has no number that Python takes.
        if step < 0 and size:
            parts[axis] = slice(max(start, -size), None if end < -size else end, step)
        else:
            parts[axis] = slice(start, end, step)
    return np.asarray(values[tuple(parts)])


def _split(inputs: Inputs, attributes: Attributes) -> list[np.ndarray]:
    values, axis = inputs[0], attributes.get("axis", 0)
    sizes = integers(inputs, 1, attributes, "split")
    if sizes is None:
        count = int(attributes["num_outputs"])
        part = -(-values.shape[axis] // count)
        sizes = [part] * (count - 1)
    else:
        sizes = sizes[:-1]
    return np.split(values, np.cumsum(sizes, dtype=np.int64), axis)


def _concatenated(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    sized([sum(each.size for each in inputs)])
    return np.concatenate(inputs, attributes["axis"])


def _pad(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, mode = inputs[0], str(attributes.get("mode", "constant"))
    pads = integers(inputs, 1, attributes, "pads") or []
    axes = integers(inputs, 3, {}, "") or list(range(values.ndim))
    before, after = pads[: len(axes)], pads[len(axes) :]
    around = [(0, 0)] * values.ndim
    parts = [slice(None)] * values.ndim
    for axis, first, last in zip(axes, before, after, strict=True):
        around[axis] = (max(first, 0), max(last, 0))
        parts[axis] = slice(max(-first, 0), values.shape[axis] - max(-last, 0))
    values = values[tuple(parts)]
    sized([size + sum(pair) for size, pair in zip(values.shape, around, strict=True)])
    if mode != "constant":
        return np.pad(values, around, {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])  # type: ignore[call-overload]
    given = optional(inputs, 2)
    filling = attributes.get("value", 0) if given is None else np.asarray(given).reshape(-1)[0]
    return np.pad(values, around, "constant", constant_values=filling)


def _expand(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    shape = np.broadcast_shapes(inputs[0].shape, sized(inputs[1]))
    return np.broadcast_to(inputs[0], sized(shape))


def _tile(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    sized([size * int(count) for size, count in zip(inputs[0].shape, inputs[1], strict=True)])
    return np.tile(inputs[0], [int(count) for count in inputs[1]])


def _range(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    start, limit, step = (np.asarray(each).reshape(-1)[0] for each in inputs)
    [count] = sized([max(int(np.ceil((limit - start) / step)), 0)])
    return np.asarray(start + np.arange(count) * step).astype(inputs[0].dtype, copy=False)


def _filled(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    """ConstantOfShape; its value is a second input here."""
    value = optional(inputs, 1)
    filling = np.zeros(1, np.float32) if value is None else value
    return np.full(sized(inputs[0]), filling.reshape(-1)[0], filling.dtype)


OPERATORS: dict[str, Operator] = {
    "Concat": _concatenated,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda inputs, attributes: np.array(inputs[0].size, np.int64),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": lambda inputs, attributes: np.transpose(inputs[0], attributes.get("perm")),
    "Unsqueeze": _unsqueeze,
}

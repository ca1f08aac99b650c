"""Operators that look values up, order them, move them, or give them another shape."""

from __future__ import annotations

import numpy as np

from edgedeploy.model.tail.operators.operator import Attributes, Inputs, Operator, integers, optional, sized


def _gather(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, places, axis = inputs[0], inputs[1], attributes.get("axis", 0)
    sized([values.size // max(values.shape[axis], 1), places.size])
    return np.take(values, places, axis)


def _gather_nd(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, places = inputs[0], inputs[1]
    batch = attributes.get("batch_dims", 0)
    sized([*places.shape[:-1], *values.shape[batch + places.shape[-1] :]])
    if not batch and places.shape[-1] == 1:
        return np.take(values, places[..., 0], 0)
    if not batch:
        return np.asarray(values[tuple(np.moveaxis(places, -1, 0))])
    outer = values.shape[:batch]
    flat_values = values.reshape(-1, *values.shape[batch:])
    flat_places = places.reshape(-1, *places.shape[batch:])
    found = [each[tuple(np.moveaxis(where, -1, 0))] for each, where in zip(flat_values, flat_places, strict=True)]
    return np.stack(found).reshape(*outer, *found[0].shape)


def _gather_elements(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, places = inputs[0], inputs[1]
    axis = attributes.get("axis", 0) % values.ndim
    # Along other axes there may be fewer indices than values, which numpy would broadcast.
    reached = tuple(slice(None if axis == each else size) for each, size in enumerate(places.shape))
    return np.take_along_axis(values[reached], places, axis)


def _scatter_nd(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, places, updates = inputs[0].copy(), inputs[1], inputs[2]
    where = tuple(np.moveaxis(places, -1, 0))
    _write(values, where, updates, attributes)
    return np.asarray(values)


def _scatter_elements(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, places, axis = inputs[0].copy(), inputs[1], attributes.get("axis", 0)
    where = list(np.indices(places.shape, sparse=True))
    where[axis] = places
    _write(values, tuple(where), inputs[2], attributes)
    return np.asarray(values)


def _write(values: np.ndarray, where: tuple[np.ndarray, ...], updates: np.ndarray, attributes: Attributes) -> None:
    reduction = str(attributes.get("reduction", "none"))
    if reduction == "none":
        values[where] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(values, where, updates)


def _compress(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, chosen = inputs[0], inputs[1]
    axis = attributes.get("axis")
    values = values.reshape(-1) if axis is None else values
    return np.compress(chosen, values, 0 if axis is None else axis)


def _top_k(inputs: Inputs, attributes: Attributes) -> list[np.ndarray]:
    """Of equal values, those of lower index come first; NaN counts as the largest."""
    values, axis = inputs[0], attributes.get("axis", -1)
    [count] = integers(inputs, 1, attributes, "k") or [0]
    if not 0 <= count <= values.shape[axis]:
        raise ValueError(f"{count} of {values.shape[axis]} values were asked for")
    if values.ndim == 1 and attributes.get("largest", 1) and 0 < 4 * count < values.size:
        places = _largest(values, count)
        return [values[places], places]
    if attributes.get("largest", 1):
        # A stable order from the end: reversed twice, equal values keep theirs.
        order = values.shape[axis] - 1 - np.flip(np.argsort(np.flip(values, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(values, axis, kind="stable")
    places = np.take(order, range(count), axis)
    return [np.take_along_axis(values, places, axis), places.astype(np.int64)]


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` largest of a list, found without ordering the rest of it."""
    least = np.partition(values, values.size - count)[values.size - count]
    places = np.flatnonzero(~(values < least))  # those that are NaN too
    order = np.argsort(values[places][::-1], kind="stable")[::-1]
    return places[places.size - 1 - order][:count].astype(np.int64)


def _unique(inputs: Inputs, attributes: Attributes) -> list[np.ndarray]:
    axis = attributes.get("axis")
    values = inputs[0].reshape(-1) if axis is None else inputs[0]
    found, first, inverse, counts = np.unique(values, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = np.argsort(first, kind="stable")
        found = np.take(found, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return [found, *(each.astype(np.int64) for each in (first, inverse, counts))]


def _reshape(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, sizes = inputs[0], [int(size) for size in inputs[1]]
    if not attributes.get("allowzero", 0):
        sizes = [values.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if -1 in sizes and values.size == 0:  # numpy cannot infer it for empty arrays
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
    value = optional(inputs, 2)
    filling = attributes.get("value", 0) if value is None else np.asarray(value).reshape(-1)[0]
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
    "Compress": _compress,
    "Concat": _concatenated,
    "ConstantOfShape": _filled,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": lambda inputs, attributes: np.array(np.nonzero(np.atleast_1d(inputs[0])), np.int64),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": lambda inputs, attributes: np.array(
        inputs[0].shape[attributes.get("start", 0) : attributes.get("end")], np.int64
    ),
    "Size": lambda inputs, attributes: np.array(inputs[0].size, np.int64),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": lambda inputs, attributes: np.transpose(inputs[0], attributes.get("perm")),
    "Unique": _unique,
    "Unsqueeze": lambda inputs, attributes: np.expand_dims(
        inputs[0], tuple(integers(inputs, 1, attributes, "axes") or ())
    ),
}

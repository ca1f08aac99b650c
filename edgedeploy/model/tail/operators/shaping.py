"""Operators that look values up, order them, move them, or give them another shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgedeploy.model.tail.operators import Operator, integers, number, sized


def _gather(values: Any, places: Any, *, axis: int = 0) -> Any:
    sized([values.size // max(values.shape[axis], 1), places.size])
    return np.take(values, places, axis)


def _gather_nd(values: Any, places: Any, *, batch_dims: int = 0) -> Any:
    sized([*places.shape[:-1], *values.shape[batch_dims + places.shape[-1] :]])
    if not batch_dims and places.shape[-1] == 1:
        return np.take(values, places[..., 0], 0)
    if not batch_dims:
        return values[tuple(np.moveaxis(places, -1, 0))]
    outer = values.shape[:batch_dims]
    flat_values = values.reshape(-1, *values.shape[batch_dims:])
    flat_places = places.reshape(-1, *places.shape[batch_dims:])
    found = [each[tuple(np.moveaxis(where, -1, 0))] for each, where in zip(flat_values, flat_places, strict=True)]
    return np.stack(found).reshape(*outer, *found[0].shape)


def _gather_elements(values: Any, places: Any, *, axis: int = 0) -> Any:
    axis %= values.ndim
    # Along other axes there may be fewer indices than values, which numpy would broadcast.
    reached = tuple(slice(None if axis == each else size) for each, size in enumerate(places.shape))
    return np.take_along_axis(values[reached], places, axis)


def _scatter_nd(values: Any, places: Any, updates: Any, *, reduction: str = "none") -> Any:
    return _written(values, tuple(np.moveaxis(places, -1, 0)), updates, reduction)


def _scatter_elements(values: Any, places: Any, updates: Any, *, axis: int = 0, reduction: str = "none") -> Any:
    where = list(np.indices(places.shape, sparse=True))
    where[axis] = places
    return _written(values, tuple(where), updates, reduction)


def _written(values: Any, where: tuple[np.ndarray, ...], updates: Any, reduction: str) -> Any:
    """A copy with updates at some places."""
    copy = values.copy()
    if reduction == "none":
        copy[where] = updates
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction].at(copy, where, updates)
    return copy


def _top_k(values: Any, k: Any, *, axis: int = -1, largest: int = 1) -> Any:
    """Of equal values, those of lower index come first; NaN counts as the largest."""
    [count] = integers(k) or [0]
    if not 0 <= count <= values.shape[axis]:
        raise ValueError(f"{count} of {values.shape[axis]} values were asked for")
    if values.ndim == 1 and largest and 0 < 4 * count < values.size:
        places = _largest(values, count)
        return [values[places], places]
    if largest:
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


def _unique(values: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    values = values.reshape(-1) if axis is None else values
    found, first, inverse, counts = np.unique(values, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        found = np.take(found, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return [found, *(each.astype(np.int64) for each in (first, inverse, counts))]


def _reshape(values: Any, shape: Any, *, allowzero: int = 0) -> Any:
    sizes = [int(size) for size in shape]
    if not allowzero:
        sizes = [values.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if -1 in sizes and values.size == 0:  # numpy cannot infer it for empty arrays
        others = int(np.prod([size for size in sizes if size != -1]))
        sizes = [0 if size == -1 and others else max(size, 0) for size in sizes]
    return np.reshape(values, sizes)


def _flatten(values: Any, *, axis: int = 1) -> Any:
    axis += values.ndim if axis < 0 else 0
    return np.reshape(values, (int(np.prod(values.shape[:axis])), int(np.prod(values.shape[axis:]))))


def _slice(values: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    starts, ends, axes, steps = map(integers, (starts, ends, axes, steps))
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
    return values[tuple(parts)]


def _split(values: Any, split: Any = None, *, axis: int = 0, num_outputs: int = 1) -> Any:
    part = -(-values.shape[axis] // num_outputs)
    sizes = [part] * num_outputs if split is None else integers(split) or []
    return np.split(values, np.cumsum(sizes[:-1], dtype=np.int64), axis)


def _concatenated(*inputs: Any, axis: int) -> Any:
    sized([sum(each.size for each in inputs)])
    return np.concatenate(inputs, axis)


def _pad(values: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: Any = "constant") -> Any:
    widths = integers(pads) or []
    axes = integers(axes) or list(range(values.ndim))
    before, after = widths[: len(axes)], widths[len(axes) :]
    around = [(0, 0)] * values.ndim
    parts = [slice(None)] * values.ndim
    for axis, first, last in zip(axes, before, after, strict=True):
        around[axis] = (max(first, 0), max(last, 0))
        parts[axis] = slice(max(-first, 0), values.shape[axis] - max(-last, 0))
    values = values[tuple(parts)]
    sized([size + sum(pair) for size, pair in zip(values.shape, around, strict=True)])
    if mode != "constant":
        return np.pad(values, around, {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode])  # type: ignore[call-overload]
    return np.pad(values, around, constant_values=0 if value is None else number(value))


def _tile(values: Any, repeats: Any) -> Any:
    sized([size * int(count) for size, count in zip(values.shape, repeats, strict=True)])
    return np.tile(values, [int(count) for count in repeats])


def _range(*bounds: Any) -> Any:
    start, limit, step = map(number, bounds)
    [count] = sized([max(int(np.ceil((limit - start) / step)), 0)])
    return np.asarray(start + np.arange(count) * step).astype(bounds[0].dtype, copy=False)


def _filled(shape: Any, value: Any = None) -> Any:
    """ConstantOfShape; its value is a second input here."""
    filling = number(np.zeros(1, np.float32) if value is None else value)
    return np.full(sized(shape), filling, filling.dtype)


OPERATORS: dict[str, Operator] = {
    "Compress": lambda values, chosen, *, axis=None: np.compress(chosen, values, axis),
    "Concat": _concatenated,
    "ConstantOfShape": _filled,
    "Expand": lambda values, shape: np.broadcast_to(values, sized(np.broadcast_shapes(values.shape, sized(shape)))),
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": lambda values: np.array(np.nonzero(np.atleast_1d(values)), np.int64),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": lambda values, *, start=0, end=None: np.array(values.shape[start:end], np.int64),
    "Size": lambda values: np.array(values.size, np.int64),
    "Slice": _slice,
    "Split": _split,
    "Squeeze": lambda values, axes=None: np.squeeze(values, None if axes is None else tuple(integers(axes) or ())),
    "Tile": _tile,
    "TopK": _top_k,
    "Transpose": lambda values, *, perm=None: np.transpose(values, perm),
    "Unique": _unique,
    "Unsqueeze": lambda values, axes: np.expand_dims(values, tuple(integers(axes) or ())),
}

"""Operators that look values up by their places, put them there, find them, and order them."""

from __future__ import annotations

import numpy as np

from edgedeploy.tail.operators.operator import Attributes, Inputs, Operator, integers, sized


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


OPERATORS: dict[str, Operator] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": lambda inputs, attributes: np.array(np.nonzero(np.atleast_1d(inputs[0])), np.int64),
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
    "Unique": _unique,
}

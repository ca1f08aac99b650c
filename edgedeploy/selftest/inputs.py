"""The inputs that a network is tested with: random ones, and those for which its operators have rules of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from edgedeploy.runtime.arrays import fill
from edgedeploy.selftest.operators import Uses, uses_of

if TYPE_CHECKING:
    from edgedeploy.network import Network
    from edgedeploy.tensors import TensorSpec

Inputs = dict[str, np.ndarray]

# Enough for exp to leave the range of float16, and that of float32 and float64's sigmoid to end at 0 and 1.
_LARGE = {2: 16.0, 4: 100.0, 8: 100.0}
# The same where products are summed up: those of larger values leave softmax nothing but differences of rounding.
_LARGE_FOR_PRODUCTS = 4.0
# So many neighbours have one value where convolutions look at them.
_RUN = 8


def random_inputs(network: Network) -> Iterator[Inputs]:
    """The same random values each time; then, for a reference that refuses them, integers of 0 and 1, and of 0."""
    uses = uses_of(network)
    yield {spec.name: _random(spec, uses, seed) for seed, spec in enumerate(network.inputs)}
    for most in (1, 0):
        yield {
            spec.name: np.minimum(array, most) if (array := _random(spec, uses, seed)).dtype.kind in "iu" else array
            for seed, spec in enumerate(network.inputs)
        }


def edge_inputs(network: Network) -> Iterator[Inputs]:
    """Zeros, ones, large and negative values; both ends of what is an index. The second set has no extreme values."""
    uses = uses_of(network)
    for extreme in (True, False):
        yield {spec.name: _edge(spec, uses, place, extreme=extreme) for place, spec in enumerate(network.inputs)}


def infinite_inputs(network: Network) -> Iterator[Inputs]:
    """Random values with infinities among them, where these stay what they are; nothing for other networks."""
    uses = uses_of(network)
    if uses.products or uses.casts or not uses.steady:
        return
    if any(_has_infinities(spec, uses) for spec in network.inputs):
        yield {spec.name: _with_infinities(spec, uses, seed) for seed, spec in enumerate(network.inputs)}


def bounded_inputs(network: Network) -> list[TensorSpec]:
    """A network's inputs, with what indices are less than."""
    uses = uses_of(network)
    return [spec.model_copy(update={"below": uses.inputs[spec.name].size}) for spec in network.inputs]


def _random(spec: TensorSpec, uses: Uses, seed: int) -> np.ndarray:
    use = uses.inputs[spec.name]
    if use.size is not None and use.written and spec.dtype != "bool":
        return _different(spec, use.size)
    array = fill(spec.model_copy(update={"below": use.size}), "normal", seed)
    return np.maximum(array, 1) if uses.divides and use.size is None and array.dtype.kind in "iu" else array


def _edge(spec: TensorSpec, uses: Uses, place: int, *, extreme: bool) -> np.ndarray:
    use = uses.inputs[spec.name]
    if use.written and use.size is not None and spec.dtype != "bool":
        return (use.size - 1 - _different(spec, use.size)).astype(spec.dtype)
    values = _edges(spec, uses, extreme=extreme)
    if uses.convolutions and np.dtype(spec.dtype).kind == "f":
        return _uneven(spec.shape, values, place).astype(spec.dtype)
    return _pattern(spec.shape, values, place).astype(spec.dtype)


def _different(spec: TensorSpec, size: int) -> np.ndarray:
    """Indices below `size`, all different if there are enough: of two that are equal, either may be written last."""
    return (np.arange(math.prod(spec.shape)) % size).reshape(spec.shape).astype(spec.dtype)


def _edges(spec: TensorSpec, uses: Uses, *, extreme: bool) -> list[float | int]:
    """The values of which edge inputs consist."""
    dtype, use = np.dtype(spec.dtype), uses.inputs[spec.name]
    if dtype.kind == "b":
        return [0, 1]
    if use.size is not None:
        last = use.size - 1
        return [0, last, -1, -use.size] if extreme and use.from_end and dtype.kind != "u" else [last, 0]
    if dtype.kind == "f":
        if uses.casts or not extreme:
            return [0, 1, -1]
        large = _LARGE_FOR_PRODUCTS if uses.products else _LARGE[dtype.itemsize]
        return [0, 1, -large, large]
    if not extreme or uses.divides:
        return [1, 2] if uses.divides else [0, 1]
    # What half as many bits do not hold; products of two of them are still exact.
    limits = np.iinfo(dtype)
    high = limits.max if dtype.itemsize == 1 else (1 << 4 * dtype.itemsize) + 1
    return [0, 1, high] if dtype.kind == "u" else [0, 1, -1, high, limits.min if dtype.itemsize == 1 else -high]


def _pattern(shape: list[int], values: list[float | int], place: int) -> np.ndarray:
    """Rows of one value each, the next in the next row, and one row, the last, of all of them.

    A single row is that last one. The order of the values in later rows differs from input to input (`place`).
    """
    length = shape[-1] if shape else 1
    rows = np.arange(math.prod(shape) // max(length, 1))
    turns = np.repeat((rows + place * (rows // len(values))) % len(values), length).reshape(len(rows), length)
    if len(rows):
        turns[-1] = np.arange(length) % len(values)
    return np.array(values)[turns].reshape(shape)


def _uneven(shape: list[int], values: list[float | int], place: int) -> np.ndarray:
    """Short runs of each value in random order, for convolutions.

    They make even feature maps of even rows, and the reference's own sums of those, over thousands of equal pixels,
    have rounding errors of one sign: more than what tells a wrong network from a right one.
    """
    size = math.prod(shape)
    runs = np.random.default_rng(place).permutation(np.arange(-(-size // _RUN)) % len(values))
    return np.array(values)[np.repeat(runs, _RUN)[:size]].reshape(shape)


def _has_infinities(spec: TensorSpec, uses: Uses) -> bool:
    return np.dtype(spec.dtype).kind == "f" and uses.inputs[spec.name].size is None


def _with_infinities(spec: TensorSpec, uses: Uses, seed: int) -> np.ndarray:
    """Random values, with -inf in one whole slice and in a line across all slices, and +inf in another slice.

    So a reduction over the first axis, as over any of the others, meets nothing but -inf somewhere.
    """
    array = _random(spec, uses, seed)
    if not _has_infinities(spec, uses) or not array.size:
        return array
    slices = array.reshape([size for size in spec.shape if size > 1] or [1])
    if slices.ndim > 1:
        slices.reshape(len(slices), -1)[:, 0] = -np.inf
    if len(slices) > 2:
        slices[-2] = np.inf
    slices[-1] = -np.inf
    if uses.keeps_nan and array.size > 3:
        slices.reshape(-1)[1] = np.nan
    return array

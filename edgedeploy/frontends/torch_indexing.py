"""Reading and writing by tensors of indices, as ATen's `index` and `index_put`: what numpy calls advanced indexing."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from edgedeploy.compile.expressions import shape_of
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Builder, dtype_of


class _Places:
    """Where the indices of some axes lead; their axes are taken before the others meanwhile.

    Attributes:
        axes: those that have an index.
        indices: one for each, counted from the begin of its axis.
        shape: what the indices have in common.
        order: of the data's axes, those with an index first.
    """

    def __init__(self, importer: Any, data: Any, indices: Sequence[Any]) -> None:
        self.axes = [axis for axis, index in enumerate(indices) if index is not None]
        given = [indices[axis] for axis in self.axes]
        if any(dtype_of(index) == "bool" for index in given):
            raise ModelError(
                "a mask says what is read or written",
                why="the number of values depends on the network's input",
                hints=["export the network with torch.where in its place"],
            )
        self._data, self._build = data, Builder(importer)
        sizes = shape_of(data)
        self.indices = [self._from_begin(index, sizes[axis]) for axis, index in zip(self.axes, given, strict=True)]
        self.shape = list(np.broadcast_shapes(*(shape_of(index) for index in self.indices)))
        others = [axis for axis in range(len(sizes)) if axis not in self.axes]
        self.order = [*self.axes, *others]
        self.rest = [sizes[axis] for axis in others]
        # Where their values stand in what is read: in their own place if they are neighbours, else before all others.
        together = self.axes == list(range(self.axes[0], self.axes[-1] + 1))
        before = self.axes[0] if together else 0
        rank, every = len(self.shape), len(self.shape) + len(others)
        self.spread = [*range(rank, rank + before), *range(rank), *range(rank + before, every)]

    def _from_begin(self, index: Any, size: int) -> Any:
        """An index counted from the begin of its axis: constants are bound to their variables later only."""
        wide = self._build.cast(index, "int64")
        return self._build.where(self._build.less(wide, 0), self._build.add(wide, size), wide)

    @property
    def read_shape(self) -> list[int]:
        """The shape of what is read."""
        return [(*self.shape, *self.rest)[axis] for axis in self.spread]

    def read(self) -> Any:
        """The values at the places."""
        build = self._build
        if len(self.axes) == 1:
            return build.take(self._data, self.indices[0], self.axes[0])
        return build.permute(build.gather_nd(build.permute(self._data, self.order), self._rows()), self.spread)

    def written(self, values: Any, reduction: str) -> Any:
        """The data with other values at the places."""
        build = self._build
        values = build.permute(build.broadcast_to(values, self.read_shape), _inverse(self.spread))
        made = build.scatter_nd(build.permute(self._data, self.order), self._rows(), values, reduction)
        return build.permute(made, _inverse(self.order))

    def _rows(self) -> Any:
        """The indices of each place side by side."""
        build, rank = self._build, len(self.shape)
        columns = [build.reshape(build.broadcast_to(index, self.shape), [*self.shape, 1]) for index in self.indices]
        return build.concat(columns, axis=rank) if len(columns) > 1 else columns[0]


def _inverse(order: Sequence[int]) -> list[int]:
    return [int(place) for place in np.argsort(order)]


def _index(node: Any, importer: Any) -> Any:
    """data[indices], where an index of None is the whole axis."""
    data, indices = importer.retrieve_args(node)
    return importer.block_builder.emit(_Places(SimpleNamespace(bb=importer.block_builder), data, indices).read())


def _index_put(node: Any, importer: Any) -> Any:
    """A copy of data with data[indices] = values, or += values."""
    data, indices, values, accumulate = (*importer.retrieve_args(node), False)[:4]
    build = Builder(block := SimpleNamespace(bb=importer.block_builder))
    *whole, last = indices
    if dtype_of(last) == "bool" and all(index is None for index in whole):
        rest = len(shape_of(data)) - len(whole) - len(shape_of(last))
        if np.prod(shape_of(values)) == 1:
            values = build.reshape(values, [])
        if len(shape_of(values)) <= rest:
            mask = build.reshape(last, [*shape_of(last), *[1] * rest])
            made = build.where(mask, build.add(data, values) if accumulate else values, data)
            return importer.block_builder.emit(made)
    made = _Places(block, data, indices).written(values, "add" if accumulate else "update")
    return importer.block_builder.emit(made)


CONVERSIONS = {"index.Tensor": _index, "index_put.default": _index_put}

"""Operators that first sum up each row of a tensor and then compute its values from that: softmax, layer_norm.

Each row is read from the first cache two or three times, by whole vectors with several sums in parallel, and shorter
vectors for the rest, without intermediate tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import add
from typing import Any, Literal

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from edgedeploy.base.documents import Record
from edgedeploy.compile.ir.elementary import decay
from edgedeploy.compile.operators.builder import Parameter, function, lanes_of, vectors

Kind = Literal["softmax", "log_softmax", "layer_norm", "rms_norm"]

ROWS_ATTRIBUTE = "edgedeploy.rows"  # the attribute of a function that describes its operator, as JSON
_SUMS = 4  # vectors of partial sums: as many as hide the latency of an addition
_Body = Callable[[Any, Any], None]  # writes code for the place of a vector among the partial sums, and its columns


def number(value: float) -> Any:
    """A constant of float32."""
    return tirx.const(value, "float32")


class Rows(Record):
    """An operator on rows.

    A layer_norm is `(x - mean) / sqrt(variance + epsilon)`, an rms_norm `x / sqrt(mean square + epsilon)`.
    """

    kind: Kind
    shape: tuple[int, ...]
    axis: int  # of the rows; dimensions after it are 1
    epsilon: float = 0.0
    factors: int = 0  # how many tensors of one value per column follow the data: a norm's factors, and its addends

    @property
    def rows(self) -> int:
        """The number of rows."""
        return math.prod(self.shape[: self.axis])

    @property
    def columns(self) -> int:
        """Values of a row."""
        return self.shape[self.axis]

    def place(self, row: Any, column: Any) -> list[Any]:
        """The indices of a value."""
        indices = [column, *[0] * (len(self.shape) - self.axis - 1)]
        for size in reversed(self.shape[: self.axis]):
            indices.insert(0, tirx.floormod(row, size))
            row = tirx.floordiv(row, size)
        return indices

    @property
    def operations(self) -> int:
        """Arithmetic operations, an exponential being twenty."""
        return self.rows * self.columns * (24 if "softmax" in self.kind else 8)


def write(operator: Rows, lanes: int, *, parallel: bool) -> tirx.PrimFunc:
    """The function of an operator on float32 values, in vectors of `lanes` values, a power of two."""
    factors = [Parameter(f"factors{index}", (operator.columns,), "float32") for index in range(operator.factors)]
    read = [Parameter("data", operator.shape, "float32"), *factors]
    written = [Parameter("result", operator.shape, "float32")]

    def write_task(tensors: dict[str, Any], row: Any) -> None:
        data, *others, result = tensors.values()
        at = _Row(operator, lanes, data, others, result, row)
        (at.write_softmax if "softmax" in operator.kind else at.write_norm)()

    described = (ROWS_ATTRIBUTE, operator)
    return function(operator.kind, described, read, written, operator.rows, write_task, parallel=parallel)


@dataclass(frozen=True)
class _Row:
    operator: Rows
    lanes: int
    data: Any
    factors: list[Any]
    result: Any
    row: Any

    def write_softmax(self) -> None:
        largest = self._reduced(tirx.max, tirx.min_value("float32"), lambda column: self._value(self.data, column))
        logarithmic = self.operator.kind == "log_softmax"

        def exponential(column: Any) -> Any:
            return decay(self._value(self.data, column) - largest[0])

        def stored(column: Any) -> Any:
            self._store(exponential(column), column)
            return self._value(self.result, column)

        total = self._reduced(add, number(0), exponential if logarithmic else stored)
        last = self._scalar(tirx.log(total[0]) + largest[0] if logarithmic else number(1) / total[0])
        source = self.data if logarithmic else self.result

        def finish(_: Any, column: Any) -> None:
            value = self._value(source, column)
            self._store(value - last[0] if logarithmic else value * last[0], column)

        self._each(finish)

    def write_norm(self) -> None:
        count, epsilon = number(self.operator.columns), number(self.operator.epsilon)
        mean = None
        if self.operator.kind == "layer_norm":
            total = self._reduced(add, number(0), lambda column: self._value(self.data, column))
            mean = self._scalar(total[0] / count)

        def centred(column: Any) -> Any:
            value = self._value(self.data, column)
            return value if mean is None else value - mean[0]

        squares = self._reduced(add, number(0), lambda column: centred(column) * centred(column))
        scale = self._scalar(number(1) / tirx.sqrt(squares[0] / count + epsilon))

        def finish(_: Any, column: Any) -> None:
            value = centred(column) * scale[0]
            if self.factors:
                value = value * self.factors[0][column]
            if len(self.factors) > 1:
                value = value + self.factors[1][column]
            self._store(value, column)

        self._each(finish)

    def _value(self, tensor: Any, column: Any) -> Any:
        return tensor[tuple(self.operator.place(self.row, column))]

    def _store(self, value: Any, column: Any) -> None:
        T.buffer_store(self.result, value, self.operator.place(self.row, column))

    def _scalar(self, value: Any) -> Any:
        stored = T.alloc_buffer((1,), "float32", scope="local")
        T.buffer_store(stored, value, [0])
        return stored

    def _reduced(self, combine: Callable[[Any, Any], Any], identity: Any, value: Callable[[Any], Any]) -> Any:
        """The sum, or the largest, of a value of each column: the first value of a buffer."""
        width = _SUMS * self.lanes
        sums = T.alloc_buffer((width,), "float32", scope="local")
        for first in range(0, width, self.lanes):
            with lanes_of(self.lanes) as lane:
                T.buffer_store(sums, identity, [first + lane])
        self._each(lambda place, column: T.buffer_store(sums, combine(sums[place], value(column)), [place]))
        while width > 1:
            width //= 2
            for first, length in vectors(width, self.lanes):
                with lanes_of(length) as lane:
                    place = first + lane
                    T.buffer_store(sums, combine(sums[place], sums[width + place]), [place])
        return sums

    def _each(self, body: _Body) -> None:
        """Write `body` for all columns, by several vectors in parallel."""
        together, columns = _SUMS * self.lanes, self.operator.columns
        whole, rest = divmod(columns, together)
        if whole:
            with T.serial(whole) as step:
                self._side_by_side(body, step * together, together)
        self._side_by_side(body, whole * together, rest)

    def _side_by_side(self, body: _Body, begin: Any, width: int) -> None:
        for first, length in vectors(width, self.lanes):
            with lanes_of(length) as lane:
                body(first + lane, begin + first + lane)

"""Functions for operators whose functions of TVM are wrong or slow.

TVM's maxima and minima begin with the least finite number: of nothing but -inf they make -3.4e38, the index -1, and so
a finite number of a masked row. These begin with -inf, and with an index behind all others. Softmax and norms along
rows state what they compute, for templates. Pixels and weights of grids are computed once for all channels.
Concatenations of many parts become trees.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, get_args

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

from edgedeploy.compile.ir.expressions import MOST_PARTS, OPAQUE, shape_of
from edgedeploy.compile.operators.rows import ROWS_ATTRIBUTE, Kind, Rows, number
from edgedeploy.compile.passes.arithmetic import LEGALISATIONS as ARITHMETIC
from edgedeploy.compile.passes.arithmetic import Legalisation, as_in_tvm

_FEWEST_COLUMNS = 8  # shorter rows are computed side by side instead
_CORNERS = 4  # the pixels around a place that bilinear interpolation reads


def _worst(dtype: str, *, largest: bool) -> Any:
    """The number of a type that any other is larger than, or smaller than."""
    if dtype.startswith("float"):
        return tirx.const(-math.inf if largest else math.inf, dtype)
    return tirx.min_value(dtype) if largest else tirx.max_value(dtype)


@cache
def register_reducers() -> None:
    """Register reductions that begin with infinities with TVM: its `rfactor` refuses unknown ones."""

    def combined(better: Callable[[Any, Any], Any], left: Any, right: Any) -> list[Any]:
        return [better(left[0], right[0])]

    def identity(largest: bool, values: Any) -> list[Any]:
        return [_worst(str(values[0].ty.dtype), largest=largest)]

    register = tvm.get_global_func("s_tir.schedule.RegisterReducer")
    for better, largest in ((tirx.max, True), (tirx.min, False)):
        functions = [tvm_ffi.convert(partial(combined, better)), tvm_ffi.convert(partial(identity, largest))]
        for function in functions:
            # TVM destroys its registry after Python has ended, which crashes if that frees a function of Python's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(function))
        register(1, *functions)


def _extreme(*, largest: bool) -> Any:
    """The largest or smallest of some values; TVM counts the arguments of its function."""
    better = (lambda a, b: tirx.max(a, b)) if largest else (lambda a, b: tirx.min(a, b))
    return te.comm_reducer(better, lambda dtype: _worst(dtype, largest=largest), name="extreme")


def _reduction(builder: relax.BlockBuilder, call: relax.Call, *, largest: bool) -> relax.Expr:
    axes, keepdims = _axes(call, call.attrs.axis), bool(call.attrs.keepdims)

    def compute(data: te.Tensor) -> te.Tensor:
        names = {"name": "extreme", "tag": "comm_reduce"}
        return _reduced(data, axes, keepdims, _extreme(largest=largest), lambda whole: data[whole], **names)

    return builder.call_te(compute, call.args[0], primfunc_name_hint="max" if largest else "min")


def _position(builder: relax.BlockBuilder, call: relax.Call, *, largest: bool) -> relax.Expr:
    """`relax.argmax` or `relax.argmin`: the first place of several that are equal."""
    axis, keepdims = call.attrs.axis, bool(call.attrs.keepdims)
    axes = _axes(call, None if axis is None else [axis])
    dtype = str(call.ty.dtype)

    def better(a: Any, b: Any) -> Any:
        ahead = a[1] > b[1] if largest else a[1] < b[1]
        first = tirx.any(ahead, tirx.all(a[1] == b[1], a[0] < b[0]))
        return tirx.Select(first, a[0], b[0]), tirx.Select(ahead, a[1], b[1])

    reducer = te.comm_reducer(
        better,
        lambda index, value: (tirx.const(np.iinfo(index).max, index), _worst(value, largest=largest)),
        name="position",
    )

    def compute(data: te.Tensor) -> te.Tensor:
        def index_and_value(whole: tuple[Any, ...]) -> tuple[Any, Any]:
            index: Any = tirx.const(0, "int64")
            for each in axes:
                index = index * data.shape[each] + whole[each]
            return index.astype(dtype), data[whole]

        place, _ = _reduced(data, axes, keepdims, reducer, index_and_value, name="position_and_value")
        return te.compute(place.shape, lambda *indices: place(*indices), name="position")

    return builder.call_te(compute, call.args[0], primfunc_name_hint="argmax" if largest else "argmin")


def _pool(builder: relax.BlockBuilder, call: relax.Call, *, dimensions: str) -> relax.Expr:
    """Max pooling over dimensions such as "HW"; the padding is less than every value of the feature map."""
    attrs, dtype, outer = call.attrs, str(call.ty.dtype), shape_of(call)
    axes = [str(attrs.layout).index(each) for each in dimensions]
    kernel, strides, apart, before = (
        dict(zip(axes, [int(each) for each in values], strict=False))
        for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )

    def compute(data: te.Tensor) -> te.Tensor:
        sizes = [int(size) for size in data.shape]
        needed = {axis: (outer[axis] - 1) * strides[axis] + apart[axis] * (kernel[axis] - 1) + 1 for axis in axes}
        whole = [needed.get(axis, size) for axis, size in enumerate(sizes)]
        padded = data
        if any(before[axis] or needed[axis] > sizes[axis] for axis in axes):
            padded = te.compute(whole, lambda *place: _padded(data, place, before, dtype), name="pad_temp")
        spans = {axis: te.reduce_axis((0, kernel[axis]), f"rv{axis}") for axis in axes}
        reducer = _extreme(largest=True)

        def value(*place: Any) -> Any:
            window = {axis: place[axis] * strides[axis] + span * apart[axis] for axis, span in spans.items()}
            source = tuple(window.get(axis, index) for axis, index in enumerate(place))
            return reducer(padded[source], axis=list(spans.values()))

        return te.compute(outer, value, name="pool_max", tag="pool_max")

    return builder.call_te(compute, call.args[0], primfunc_name_hint=call.op.name.rpartition(".")[2])


def _padded(data: te.Tensor, place: tuple[Any, ...], before: dict[int, int], dtype: str) -> Any:
    """A value of a feature map; beyond its edges, less than all values."""
    inner = [place[axis] - before.get(axis, 0) for axis in range(len(place))]
    inside = [
        condition
        for axis in before
        for condition in (place[axis] >= before[axis], place[axis] < data.shape[axis] + before[axis])
    ]
    return tirx.if_then_else(tirx.all(*inside), data[tuple(inner)], _worst(dtype, largest=True))


def _axes(call: relax.Call, axes: Any) -> list[int]:
    rank = len(call.args[0].ty.shape)
    return list(range(rank)) if axes is None else sorted({int(axis) % rank for axis in axes})


def _reduced(
    data: te.Tensor,
    axes: list[int],
    keepdims: bool,
    reducer: Any,
    value: Callable[[tuple[Any, ...]], Any],
    **names: str,
) -> Any:
    """What `value` returns for the place of each element of a tensor, reduced over some axes."""
    spans = {axis: te.reduce_axis((0, data.shape[axis]), f"k{axis}") for axis in axes}
    shape = [1 if axis in axes else size for axis, size in enumerate(data.shape) if keepdims or axis not in axes]

    def at(*place: Any) -> Any:
        left = iter(place)
        whole = place if keepdims else [None if axis in axes else next(left) for axis in range(len(data.shape))]
        return reducer(value(tuple(spans.get(axis, index) for axis, index in enumerate(whole))), axis=[*spans.values()])

    return te.compute(shape, at, **names)


def _along_rows(builder: relax.BlockBuilder, call: relax.Call, *, kind: Kind) -> relax.Expr:
    """An operator along rows as a function that states it."""
    operator = _rows(kind, call)
    if operator is None:
        return as_in_tvm(builder, call)
    aside = relax.BlockBuilder()  # in a builder of its own, so that the function that stays has the operator's name
    legalised = as_in_tvm(aside, call)
    attributes = {ROWS_ATTRIBUTE: operator.model_dump_json(), "op_pattern": OPAQUE}
    function = aside.get()[legalised.args[0]].with_attr(attributes)
    added = builder.add_func(function, str(legalised.args[0].name_hint))
    return relax.call_tir(added, legalised.args[1], legalised.ty_args[0])


def _rows(kind: Kind, call: relax.Call) -> Rows | None:
    """The operator of a call along rows; None if it is not along rows."""
    shape = shape_of(call)
    axes = [call.attrs.axis] if kind in ("softmax", "log_softmax") else call.attrs.axes
    axis, *others = (int(each) % len(shape) for each in axes)
    factors = [int(shape_of(each)[0]) for each in call.args[1:]]
    types = {str(each.ty.dtype) for each in (*call.args, call)}
    rowwise = not others and all(size == 1 for size in shape[axis + 1 :]) and types == {"float32"}
    if not rowwise or shape[axis] < _FEWEST_COLUMNS or any(count != shape[axis] for count in factors):
        return None
    if not all(bool(getattr(call.attrs, each, True)) for each in ("center", "scale")):
        return None
    epsilon = float(getattr(call.attrs, "epsilon", 0.0))
    return Rows(kind=kind, shape=tuple(shape), axis=axis, epsilon=epsilon, factors=len(factors))


def _grid_sample(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Bilinear interpolation of feature maps in NCHW at n x 2 x rows x columns places; anything else as TVM has it."""
    attrs, types = call.attrs, {str(each.ty.dtype) for each in (*call.args, call)}
    usual = attrs.method == "bilinear" and attrs.padding_mode in ("zeros", "border") and attrs.layout == "NCHW"
    if not usual or types != {"float32"} or len(shape_of(call)) != 4:
        return as_in_tvm(builder, call)
    data, grid = call.args
    _, _, height, width = shape_of(data)
    apart = {"op_pattern": OPAQUE}

    def corner(size: int, place: Any, behind: Any) -> tuple[Any, Any]:
        """Along one axis, a pixel next to a place and its weight; `behind` chooses one of the two."""
        ends = number(size - 1)
        span = (place + number(1)) * number(0.5)
        exact = span * ends if attrs.align_corners else span * number(size) - number(0.5)
        exact = tirx.max(tirx.min(exact, number(size)), number(-1))  # beyond, nothing changes any more
        first = tirx.floor(exact)
        pixel = first + tirx.Select(behind, number(1), number(0))
        weight = tirx.Select(behind, exact - first, number(1) - (exact - first))
        if attrs.padding_mode == "zeros":
            weight = tirx.Select(tirx.all(pixel >= number(0), pixel <= ends), weight, number(0))
        return tirx.max(tirx.min(pixel, ends), number(0)).astype("int32"), weight

    def at(grid: te.Tensor, n: Any, k: Any, y: Any, x: Any) -> tuple[Any, Any, Any]:
        row, down = corner(height, grid[n, 1, y, x], k >= 2)
        column, across = corner(width, grid[n, 0, y, x], tirx.floormod(k, 2) == 1)
        return row, column, down * across

    def part_of(grid: te.Tensor, part: int, name: str) -> te.Tensor:
        return te.compute(corners, lambda *index: at(grid, *index)[part], name=name)

    batch, _, rows, columns = shape_of(grid)
    corners = (batch, _CORNERS, rows, columns)
    tables = []
    for part, name in enumerate(("from_rows", "from_columns", "weights")):
        compute = partial(part_of, part=part, name=name)
        tables.append(builder.emit(builder.call_te(compute, grid, primfunc_name_hint=name, primfunc_attrs=apart)))

    def sample(data: te.Tensor, from_rows: te.Tensor, from_columns: te.Tensor, weights: te.Tensor) -> te.Tensor:
        def value(n: Any, c: Any, y: Any, x: Any) -> Any:
            def term(k: int) -> Any:
                return data[n, c, from_rows[n, k, y, x], from_columns[n, k, y, x]] * weights[n, k, y, x]

            return term(0) + term(1) + term(2) + term(3)

        return te.compute(shape_of(call), value, name="sample")

    return builder.call_te(sample, data, *tables, primfunc_name_hint="grid_sample", primfunc_attrs=apart)


def _concat(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A concatenation as a function, or as a tree of functions that are not fused if it has many parts."""
    parts = call.args[0]
    while isinstance(parts, relax.Var) and builder.lookup_binding(parts) is not None:
        parts = builder.lookup_binding(parts)
    if not isinstance(parts, relax.Tuple) or len(parts.fields) <= MOST_PARTS or call.attrs.axis is None:
        return as_in_tvm(builder, call)
    axis, level = int(call.attrs.axis), list(parts.fields)

    def joined(group: list[relax.Expr]) -> relax.Expr:
        return builder.call_te(topi.concatenate, group, axis, primfunc_attrs={"op_pattern": OPAQUE})

    while len(level) > MOST_PARTS:
        groups = (level[begin : begin + MOST_PARTS] for begin in range(0, len(level), MOST_PARTS))
        level = [builder.emit(joined(group)) for group in groups]
    return joined(level)


_LEGALISATIONS: dict[str, Legalisation] = {
    **ARITHMETIC,
    "relax.argmax": partial(_position, largest=True),
    "relax.argmin": partial(_position, largest=False),
    "relax.max": partial(_reduction, largest=True),
    "relax.min": partial(_reduction, largest=False),
    "relax.nn.max_pool1d": partial(_pool, dimensions="W"),
    "relax.nn.max_pool2d": partial(_pool, dimensions="HW"),
    "relax.nn.max_pool3d": partial(_pool, dimensions="DHW"),
    **{f"relax.nn.{kind}": partial(_along_rows, kind=kind) for kind in get_args(Kind)},
    "relax.image.grid_sample": _grid_sample,
    "relax.concat": _concat,
}

legalise_operators = relax.transform.LegalizeOps(_LEGALISATIONS)

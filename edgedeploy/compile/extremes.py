"""Largest and smallest values, and where they are, with infinities among them.

TVM's own form of these operators begins with the least finite number: of nothing but -inf it makes -3.4e38, the
index -1, and so a finite number of a masked row. These begin with -inf, and with an index behind all others.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

Legalisation = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def _worst(dtype: str, *, largest: bool) -> Any:
    """What any other number of a type is larger than, or smaller than."""
    if dtype.startswith("float"):
        return tirx.const(-math.inf if largest else math.inf, dtype)
    return tirx.min_value(dtype) if largest else tirx.max_value(dtype)


@cache
def register_reducers() -> None:
    """Tell TVM of reductions that begin with infinities: its `rfactor` refuses those that it does not know."""

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
    """The largest or smallest of some values; TVM counts the arguments of the function that it is given."""
    better = (lambda a, b: tirx.max(a, b)) if largest else (lambda a, b: tirx.min(a, b))
    return te.comm_reducer(better, lambda dtype: _worst(dtype, largest=largest), name="extreme")


def _reduction(*, largest: bool) -> Legalisation:
    """`relax.max` or `relax.min`."""

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        axes, keepdims = _axes(call, call.attrs.axis), bool(call.attrs.keepdims)

        def compute(data: te.Tensor) -> te.Tensor:
            reducer = _extreme(largest=largest)
            spans = {axis: te.reduce_axis((0, data.shape[axis]), f"k{axis}") for axis in axes}
            return te.compute(
                _reduced(data.shape, axes, keepdims),
                lambda *place: reducer(data[_whole(place, spans, keepdims)], axis=list(spans.values())),
                name="extreme",
                tag="comm_reduce",
            )

        return builder.call_te(compute, call.args[0], primfunc_name_hint="max" if largest else "min")

    return legalise


def _position(*, largest: bool) -> Legalisation:
    """`relax.argmax` or `relax.argmin`: the first place of several that are equal."""

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
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
            spans = {place: te.reduce_axis((0, data.shape[place]), f"k{place}") for place in axes}
            shape = _reduced(data.shape, axes, keepdims)

            def flat(place: tuple[Any, ...]) -> Any:
                whole = _whole(place, spans, keepdims)
                index: Any = tirx.const(0, "int64")
                for each in axes:
                    index = index * data.shape[each] + whole[each]
                return index.astype(dtype)

            both = te.compute(
                shape,
                lambda *place: reducer((flat(place), data[_whole(place, spans, keepdims)]), axis=list(spans.values())),
                name="position_and_value",
            )
            return te.compute(shape, lambda *place: both[0](*place), name="position")

        return builder.call_te(compute, call.args[0], primfunc_name_hint="argmax" if largest else "argmin")

    return legalise


def _pool(axes_of: Callable[[str], list[int]]) -> Legalisation:
    """Max pooling; the padding is less than every value of the feature map."""

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        attrs, dtype = call.attrs, str(call.ty.dtype)
        axes = axes_of(str(attrs.layout))
        rank, outer = len(call.ty.shape), [int(size) for size in call.ty.shape]
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
            return te.compute(
                outer,
                lambda *place: reducer(
                    padded[
                        tuple(
                            place[axis] * strides[axis] + spans[axis] * apart[axis] if axis in spans else place[axis]
                            for axis in range(rank)
                        )
                    ],
                    axis=list(spans.values()),
                ),
                name="pool_max",
                tag="pool_max",
            )

        return builder.call_te(compute, call.args[0], primfunc_name_hint=call.op.name.rpartition(".")[2])

    return legalise


def _padded(data: te.Tensor, place: tuple[Any, ...], before: dict[int, int], dtype: str) -> Any:
    """A value of a feature map; beyond its edges, what is less than all values."""
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


def _reduced(shape: Any, axes: list[int], keepdims: bool) -> list[Any]:
    """The shape of what is left of some axes."""
    if keepdims:
        return [1 if axis in axes else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in axes]


def _whole(place: tuple[Any, ...], spans: dict[int, Any], keepdims: bool) -> tuple[Any, ...]:
    """The place in a tensor of a place in what is left of it."""
    if keepdims:
        return tuple(spans.get(axis, index) for axis, index in enumerate(place))
    left = iter(place)
    return tuple(spans[axis] if axis in spans else next(left) for axis in range(len(place) + len(spans)))


LEGALISATIONS: dict[str, Legalisation] = {
    "relax.argmax": _position(largest=True),
    "relax.argmin": _position(largest=False),
    "relax.max": _reduction(largest=True),
    "relax.min": _reduction(largest=False),
    **{
        f"relax.nn.max_pool{axes}d": _pool(lambda layout, axes=axes: [layout.index(axis) for axis in "DHW"[3 - axes :]])  # type: ignore[misc]
        for axes in (1, 2, 3)
    },
}

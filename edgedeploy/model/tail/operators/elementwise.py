"""Operators on elements, and sums, extremes and products of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from edgedeploy.model.tail.operators import Operator, integers, number, sized
from edgedeploy.model.tensors import quotient_of_integers, refuse_zeros


def _float(function: Callable[[Any], Any]) -> Operator:
    """numpy would compute float64 of integers and, of a scalar, a float64 too: results have the input's type."""
    return lambda values: function(values).astype(values.dtype, copy=False)


def _broadcast(function: Callable[..., Any]) -> Operator:
    """Inputs whose shapes together make that of the output."""

    def broadcast(*inputs: Any) -> Any:
        sized(np.broadcast_shapes(*(each.shape for each in inputs)))
        return function(*inputs)

    return broadcast


def _of_all(function: Callable[[Any, Any], Any]) -> Operator:
    return _broadcast(lambda *inputs: reduce(function, inputs))


def _modulo(a: Any, b: Any, *, fmod: int = 0) -> Any:
    if b.dtype.kind in "iu":
        refuse_zeros(b)
    return _broadcast(np.fmod if fmod else np.mod)(a, b)


def _matmul(a: Any, b: Any) -> Any:
    if a.ndim > 1 and b.ndim > 1:
        sized([*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]])
    return np.matmul(a, b)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    exponential = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, exponential) / (1 + exponential)


def _clip(values: Any, min: Any = None, max: Any = None) -> Any:
    if min is not None:
        values = np.maximum(values, np.asarray(min, values.dtype))
    return values if max is None else np.minimum(values, np.asarray(max, values.dtype))


def _cast(values: Any, *, to: str) -> Any:
    dtype = np.dtype(to)
    if dtype.kind not in "biuf":
        raise ValueError(f"no network has values of {dtype}")
    return values != 0 if dtype.kind == "b" else values.astype(dtype)


def _softmax(values: Any, *, axis: int = -1) -> Any:
    exponentials = np.exp(values - values.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def _reduction(function: Callable[..., Any]) -> Operator:
    def reduced(values: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        axes = integers(axes)
        if not axes and noop_with_empty_axes:
            return values
        found = function(values, axis=tuple(axes) if axes else None, keepdims=bool(keepdims))
        return np.asarray(found).astype(values.dtype, copy=False)

    return reduced


def _extreme(function: Callable[..., Any], sign: int) -> Operator:
    """ReduceMax and ReduceMin: of no values, the least and the greatest there is."""

    def of_none(values: np.ndarray, **where: Any) -> Any:
        ends: Any = (False, True) if values.dtype.kind == "b" else (-np.inf, np.inf)
        if values.dtype.kind in "iu":
            limits = np.iinfo(values.dtype)
            ends = limits.min, limits.max
        return function(values, initial=ends[0 if sign > 0 else 1], **where)

    return _reduction(of_none)


def _is_infinite(values: Any, *, detect_positive: int = 1, detect_negative: int = 1) -> Any:
    return np.isposinf(values) & bool(detect_positive) | np.isneginf(values) & bool(detect_negative)


def _place_of(function: Callable[..., Any]) -> Operator:
    def found(values: Any, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Any:
        if select_last_index:
            place = values.shape[axis] - 1 - function(np.flip(values, axis), axis=axis)
        else:
            place = function(values, axis=axis)
        return np.asarray(np.expand_dims(place, axis) if keepdims else place, np.int64)

    return found


def _sum_so_far(values: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    axis = int(number(axis))
    values = np.flip(values, axis) if reverse else values
    sums = np.cumsum(values, axis, values.dtype)
    sums = sums - values if exclusive else sums
    return np.flip(sums, axis) if reverse else sums


OPERATORS: dict[str, Operator] = {
    "Abs": _float(np.abs),
    "Add": _broadcast(np.add),
    "And": _broadcast(np.logical_and),
    "ArgMax": _place_of(np.argmax),
    "ArgMin": _place_of(np.argmin),
    "Cast": _cast,
    "Ceil": _float(np.ceil),
    "Clip": _clip,
    "CumSum": _sum_so_far,
    "Div": _broadcast(lambda a, b: quotient_of_integers(a, b) if a.dtype.kind in "iu" else a / b),
    "Equal": _broadcast(np.equal),
    "Exp": _float(np.exp),
    "Floor": _float(np.floor),
    "Greater": _broadcast(np.greater),
    "GreaterOrEqual": _broadcast(np.greater_equal),
    "Identity": lambda values: values,
    "IsInf": _is_infinite,
    "IsNaN": lambda values: np.isnan(values),
    "Less": _broadcast(np.less),
    "LessOrEqual": _broadcast(np.less_equal),
    "Log": _float(np.log),
    "MatMul": _matmul,
    "Max": _of_all(np.maximum),
    "Min": _of_all(np.minimum),
    "Mod": _modulo,
    "Mul": _broadcast(np.multiply),
    "Neg": _float(np.negative),
    "Not": lambda values: np.logical_not(values),
    "Or": _broadcast(np.logical_or),
    "Pow": _broadcast(lambda a, b: np.power(a, b).astype(a.dtype, copy=False)),
    "ReduceMax": _extreme(np.max, 1),
    "ReduceMean": _reduction(np.mean),
    "ReduceMin": _extreme(np.min, -1),
    "ReduceProd": _reduction(np.prod),
    "ReduceSum": _reduction(np.sum),
    "Relu": lambda values: np.maximum(values, values.dtype.type(0)),
    "Round": _float(np.round),
    "Sigmoid": _float(_sigmoid),
    "Softmax": _softmax,
    "Sqrt": _float(np.sqrt),
    "Sub": _broadcast(np.subtract),
    "Sum": _of_all(np.add),
    "Tanh": _float(np.tanh),
    "Where": _broadcast(np.where),
    "Xor": _broadcast(np.logical_xor),
}

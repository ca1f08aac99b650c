"""Operators on elements, and sums, extremes and products of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from edgedeploy.model.tail.operators.operator import Attributes, Inputs, Operator, integers, optional, sized
from edgedeploy.model.tensors import quotient_of_integers, refuse_zeros


def _unary(function: Callable[[Any], Any]) -> Operator:
    return lambda inputs, attributes: np.asarray(function(inputs[0]))


def _float(function: Callable[[Any], Any]) -> Operator:
    """numpy would compute float64 of integers and, of a scalar, a float64 too: results have the input's type."""
    return lambda inputs, attributes: np.asarray(function(inputs[0])).astype(inputs[0].dtype, copy=False)


def _broadcast(function: Callable[..., Any]) -> Operator:
    """Two or three inputs, whose shapes together make that of the output."""

    def computed(inputs: Inputs, attributes: Attributes) -> np.ndarray:
        sized(np.broadcast_shapes(*(each.shape for each in inputs)))
        return np.asarray(function(*inputs))

    return computed


def _of_all(function: Callable[[Any, Any], Any]) -> Operator:
    return _broadcast(lambda *inputs: reduce(function, inputs))


def _modulo(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    if inputs[1].dtype.kind in "iu":
        refuse_zeros(inputs[1])
    return np.asarray(_broadcast(np.fmod if attributes.get("fmod") else np.mod)(inputs, attributes))


def _matmul(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    a, b = inputs
    if a.ndim > 1 and b.ndim > 1:
        sized([*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]])
    return np.asarray(np.matmul(a, b))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    exponential = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, exponential) / (1 + exponential)


def _clip(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values = inputs[0]
    least, most = (
        given if (given := optional(inputs, place)) is not None else attributes.get(name)
        for place, name in ((1, "min"), (2, "max"))
    )
    if least is not None:
        values = np.maximum(values, np.asarray(least, values.dtype))
    return values if most is None else np.minimum(values, np.asarray(most, values.dtype))


def _cast(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, dtype = inputs[0], np.dtype(attributes["to"])
    if dtype.kind not in "biuf":
        raise ValueError(f"no network has values of {dtype}")
    return np.asarray(values != 0 if dtype.kind == "b" else values.astype(dtype))


def _softmax(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    axis = attributes.get("axis", -1)
    exponentials = np.exp(inputs[0] - inputs[0].max(axis=axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


def _reduction(function: Callable[..., Any]) -> Operator:
    def reduced(inputs: Inputs, attributes: Attributes) -> np.ndarray:
        axes = integers(inputs, 1, attributes, "axes")
        if not axes and attributes.get("noop_with_empty_axes", 0):
            return np.asarray(inputs[0])
        kept = bool(attributes.get("keepdims", 1))
        values = function(inputs[0], axis=tuple(axes) if axes else None, keepdims=kept)
        return np.asarray(values).astype(inputs[0].dtype, copy=False)

    return reduced


def _extreme(function: Callable[..., Any], sign: int) -> Operator:
    """ReduceMax and ReduceMin: of no values, the least and the greatest there is."""

    def of_none(values: np.ndarray, **where: Any) -> Any:
        kind = values.dtype.kind
        if kind == "b":
            return function(values, initial=sign < 0, **where)
        if kind == "f":
            return function(values, initial=-sign * np.inf, **where)
        limits = np.iinfo(values.dtype)
        return function(values, initial=limits.min if sign > 0 else limits.max, **where)

    return _reduction(of_none)


def _is_infinite(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values = inputs[0]
    positive = np.isposinf(values) & bool(attributes.get("detect_positive", 1))
    return np.asarray(positive | np.isneginf(values) & bool(attributes.get("detect_negative", 1)))


def _place_of(function: Callable[..., Any]) -> Operator:
    """ArgMax and ArgMin."""

    def found(inputs: Inputs, attributes: Attributes) -> np.ndarray:
        values, axis = inputs[0], attributes.get("axis", 0)
        if attributes.get("select_last_index", 0):
            place = values.shape[axis] - 1 - function(np.flip(values, axis), axis=axis)
        else:
            place = function(values, axis=axis)
        return np.asarray(np.expand_dims(place, axis) if attributes.get("keepdims", 1) else place, np.int64)

    return found


def _sum_so_far(inputs: Inputs, attributes: Attributes) -> np.ndarray:
    values, axis = inputs[0], int(np.asarray(inputs[1]).reshape(-1)[0])
    values = np.flip(values, axis) if attributes.get("reverse", 0) else values
    sums = np.cumsum(values, axis, values.dtype)
    sums = sums - values if attributes.get("exclusive", 0) else sums
    return np.asarray(np.flip(sums, axis) if attributes.get("reverse", 0) else sums)


OPERATORS: dict[str, Operator] = {
    "Abs": _unary(np.abs),
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
    "Identity": _unary(np.asarray),
    "IsInf": _is_infinite,
    "IsNaN": _unary(np.isnan),
    "Less": _broadcast(np.less),
    "LessOrEqual": _broadcast(np.less_equal),
    "Log": _float(np.log),
    "MatMul": _matmul,
    "Max": _of_all(np.maximum),
    "Min": _of_all(np.minimum),
    "Mod": _modulo,
    "Mul": _broadcast(np.multiply),
    "Neg": _unary(np.negative),
    "Not": _unary(np.logical_not),
    "Or": _broadcast(np.logical_or),
    "Pow": _broadcast(lambda a, b: np.power(a, b).astype(a.dtype, copy=False)),
    "ReduceMax": _extreme(np.max, 1),
    "ReduceMean": _reduction(np.mean),
    "ReduceMin": _extreme(np.min, -1),
    "ReduceProd": _reduction(np.prod),
    "ReduceSum": _reduction(np.sum),
    "Relu": _unary(lambda x: np.maximum(x, x.dtype.type(0))),
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

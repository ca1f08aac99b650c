"""Operators of one value, or of one value of each tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper
from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, is_float


def _clip(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Clip with constant bounds: attributes up to opset 6, inputs from opset 11 on.

    A bound that is left out is the last finite number of the type, so only infinities are beyond it.
    """
    result, dtype = inputs[0], dtype_of(inputs[0])
    bounds: list[Any] = [attr.get("min"), attr.get("max")]
    for index, value in enumerate(inputs[1:3]):
        if value is not None:
            bounds[index] = constant_value(value)
            if bounds[index] is None or np.isnan(bounds[index]).any():
                return None
    if is_float(result):
        limits = ml_dtypes.finfo(dtype)
        last = (limits.min, limits.max)
        bounds = [limit if bound is None else bound for bound, limit in zip(bounds, last, strict=True)]
    lowest, highest = (None if bound is None else np.asarray(bound, dtype).reshape(()) for bound in bounds)
    if lowest is not None:
        plain = lowest == 0 and is_float(result)
        result = relax.op.nn.relu(result) if plain else relax.op.maximum(result, constant(lowest))
    if highest is not None:
        result = relax.op.minimum(build(result), constant(highest))
    return result


def _pairwise(operator: Callable[[Any, Any], Any]) -> Translation:
    """Max, Min and Sum of any number of tensors."""
    return lambda build, inputs, attr: reduce(lambda one, other: build(operator(one, other)), inputs)


def _hard_sigmoid(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """min(max(a x + b, 0), 1)."""
    line = build.add(build.multiply(inputs[0], float(attr.get("alpha", 0.2))), float(attr.get("beta", 0.5)))
    return build.minimum(build(relax.op.nn.relu(line)), 1)


def _thresholded_relu(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """x if it is larger than a, else 0."""
    data = inputs[0]
    return build.where(build.greater(data, float(attr.get("alpha", 1.0))), data, constant(0, dtype_of(data)))


def _shrink(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """x - b if x is larger than l, x + b if it is less than -l, else 0."""
    value = inputs[0]
    bias, limit = float(attr.get("bias", 0.0)), float(attr.get("lambd", 0.5))
    below = build.where(build.less(value, -limit), build.add(value, bias), constant(0, dtype_of(value)))
    return build.where(build.greater(value, limit), build.subtract(value, bias), below)


def _cast(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Cast of floats to the usual integers, undefined out of range; a cast to the same type is dropped."""
    if dtype_of(inputs[0]) and dtype_of(inputs[0]) == helper.tensor_dtype_to_np_dtype(attr["to"]).name:
        return inputs[0]
    wide = attr["to"] in (TensorProto.INT32, TensorProto.INT64)
    if not wide or not dtype_of(inputs[0]).startswith("float") or constant_value(inputs[0]) is not None:
        return None
    return relax.op.astype(inputs[0], "int32" if attr["to"] == TensorProto.INT32 else "int64")


def _power(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """Pow; small whole exponents are products, others take the base's type, and integers go through float64."""
    base, dtype, exponent = inputs[0], dtype_of(inputs[0]), constant_value(inputs[1])
    if exponent is not None and exponent.size == 1 and len(shape_of(base)) >= exponent.ndim:
        if exponent.item() == 0.5 and is_float(base):
            return relax.op.sqrt(base)
        if exponent.item() in (1, 2, 3):
            return _pairwise(relax.op.multiply)(build, inputs[:1] * int(exponent.item()), attr)
    if not is_float(base):
        # float64 holds all int32; TVM computes such powers one value at a time.
        return build.cast(build.power(build.cast(base, "float64"), build.cast(inputs[1], "float64")), dtype)
    return None if dtype_of(inputs[1]) == dtype else build.power(base, build.cast(inputs[1], dtype))


def _powers(build: Builder, value: Any) -> tuple[Any, Any]:
    """e^x and e^-x."""
    return build.exp(value), build.exp(build.negative(value))


def _is_infinite(build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    """IsInf of one sign or of both."""
    negative, positive = (bool(attr.get(f"detect_{sign}", 1)) for sign in ("negative", "positive"))
    if negative != positive:
        return build.equal(inputs[0], np.inf if positive else -np.inf)
    return None if positive else constant(np.zeros(shape_of(inputs[0]), np.bool_))


TRANSLATIONS: dict[str, Translation] = {
    "Cast": _cast,
    "Clip": _clip,
    "Cosh": lambda build, inputs, attr: build.multiply(build.add(*_powers(build, inputs[0])), 0.5),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda build, inputs, attr: build.multiply(inputs[0], _hard_sigmoid(build, inputs, {"alpha": 1 / 6})),
    "IsInf": _is_infinite,
    "Max": _pairwise(relax.op.maximum),
    "Mean": lambda build, inputs, attr: build.multiply(_pairwise(relax.op.add)(build, inputs, attr), 1 / len(inputs)),
    "Min": _pairwise(relax.op.minimum),
    "Pow": _power,
    "Shrink": _shrink,
    "Sinh": lambda build, inputs, attr: build.multiply(build.subtract(*_powers(build, inputs[0])), 0.5),
    "Sum": _pairwise(relax.op.add),
    "ThresholdedRelu": _thresholded_relu,
}

"""The table of Relax's operators, for passes and frontends.

`edgedeploy build --explain` reports operators that are not in it: no template is known to do them well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.elementary import POLYNOMIALS
from edgedeploy.compile.ir.expressions import bindings_of, shape_of
from edgedeploy.compile.operators.preparation import PREPARATION_ATTRIBUTE
from edgedeploy.compile.operators.recurrence import RECURRENCE_ATTRIBUTE
from edgedeploy.model.tensors import quotient_of_integers

_WRITTEN = {PREPARATION_ATTRIBUTE, RECURRENCE_ATTRIBUTE}  # the attributes of functions that templates rewrite
Evaluator = Callable[..., np.ndarray]  # evaluates a call on arrays in the place of its tensors


class Kind(Enum):
    """How the values of a result depend on those of the operands."""

    ELEMENTWISE = auto()  # on those at the same place, operands broadcast
    WINDOW = auto()  # on windows of the same channel
    REDUCTION = auto()  # on those along some axes
    RESHAPE = auto()  # the same, in the same order, in another shape
    OTHER = auto()


@dataclass(frozen=True)
class Operator:
    """An operator of Relax.

    `evaluate` computes it on arrays by numpy, also on channels of zeros, which padding adds; None if it cannot.
    `function` is the elementary function of TIR that it calls; empty if it calls none.
    """

    kind: Kind
    evaluate: Evaluator | None = None
    function: str = ""


def operator_name(call: Any) -> str:
    """The name of the operator that an expression calls, without TVM's prefix; empty for anything else."""
    known = isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op)
    return str(call.op.name).removeprefix("relax.") if known else ""


def is_kind(call: Any, *kinds: Kind) -> bool:
    """Whether an expression calls an operator of one of these kinds."""
    operator = OPERATORS.get(operator_name(call))
    return operator is not None and operator.kind in kinds


def moves_values(expression: Any) -> bool:
    """Whether an expression is all of its tensor's values, once, in another order or shape."""
    return operator_name(expression) == "permute_dims" or is_kind(expression, Kind.RESHAPE)


def evaluate(call: relax.Call, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """The result of a call for arrays in the place of its tensors; None if numpy does not compute it.

    NaN stays NaN in results of floats, so that it can stand for unknown values.
    """
    operator = OPERATORS.get(operator_name(call))
    if operator is None or operator.evaluate is None:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(operator.evaluate(call, *values), str(call.ty.dtype))


def tensors_of(call: relax.Call) -> list[relax.Expr]:
    """The tensors among a call's arguments, without shapes and the bounds of a clip."""
    return [argument for argument in call.args if isinstance(argument.ty, relax.TensorType)]


def channel_axis(call: relax.Call, value: np.ndarray) -> int:
    """The axis of a constant operand of an elementwise operator along axis 1 of the result; -1 if it has none."""
    axis = value.ndim - len(call.ty.shape) + 1
    if operator_name(call) == "nn.prelu":
        axis = 0 if int(call.attrs.axis) % len(call.ty.shape) == 1 else -1
    return axis if axis >= 0 and value.shape[axis] > 1 else -1


def keeps_channels(call: relax.Call) -> bool:
    """Whether each channel of a call's result comes from the channel of that index of an NCHW feature map."""
    if not is_kind(call, Kind.WINDOW, Kind.REDUCTION) or len(call.args[0].ty.shape) != 4:
        return False
    if is_kind(call, Kind.REDUCTION):
        return call.attrs.axis is not None and all(int(axis) % 4 in (2, 3) for axis in call.attrs.axis)
    return str(getattr(call.attrs, "layout", "NCHW")) == "NCHW"


def keeps_constants(call: relax.Call) -> bool:
    """Whether a call that keeps channels makes a channel of the same constant of a constant channel."""
    name = operator_name(call)
    if name == "nn.avg_pool2d":
        return not call.attrs.count_include_pad or not any(int(width) for width in call.attrs.padding)
    if name == "image.resize2d":
        crops = call.attrs.coordinate_transformation_mode == "tf_crop_and_resize"
        return call.attrs.method in ("nearest_neighbor", "linear") and not crops
    return name not in ("sum", "prod")


def along_axis(value: np.ndarray, axis: int, dimensions: int) -> np.ndarray:
    """One value, or one for each index along an axis, in a shape that broadcasts."""
    if value.size == 1:
        return value.reshape(())
    return value.reshape([-1 if each == axis % dimensions else 1 for each in range(dimensions)])


def per_channel(value: np.ndarray, channels: int, axis: int, dimensions: int) -> np.ndarray | None:
    """A constant as one value for each channel along an axis; None if it varies over anything else."""
    shape = [1] * dimensions
    shape[axis] = channels
    try:
        return np.broadcast_to(value, shape).reshape(-1)
    except ValueError:
        return None


@cache
def teach_layout_conversion() -> None:
    """Have TVM's `ConvertLayout` pass through operators without a rule, by the rule of a similar one."""
    elementwise = dict.fromkeys(("clip", "nn.leakyrelu", "nn.softplus", "ones_like", "zeros_like"), "abs")
    for name, alike in {**elementwise, "where": "ewise_fma", "nn.log_softmax": "nn.softmax"}.items():
        rule = tvm.ir.Op.get(f"relax.{alike}").get_attr("FRelaxInferLayout")
        tvm.ir.register_op_attr(f"relax.{name}", "FRelaxInferLayout", rule)


def slow_operators(module: tvm.IRModule) -> dict[str, str]:
    """By name, the operators of a network that are slow or may be, and why. Expects it before legalisation."""
    names = set()
    for binding in bindings_of(module["main"]):
        call, name = binding.value, operator_name(binding.value)
        if name != "call_tir":
            names.add(name)
        elif not _WRITTEN.intersection((module[call.args[0]].attrs or {}).keys()):
            names.add(call.args[0].name_hint)
    unknown = dict.fromkeys(sorted(names - OPERATORS.keys() - {""}), "no template is known to do it well")
    # Those whose function has no polynomial form.
    calls = [name for name in sorted(names & OPERATORS.keys()) if OPERATORS[name].function not in ("", *POLYNOMIALS)]
    return unknown | dict.fromkeys(calls, "on a CPU, a call of the C library for each value")


def _elementwise(compute: Callable[..., Any], function: str = "") -> Operator:
    return Operator(Kind.ELEMENTWISE, lambda call, *values: compute(*values), function)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _dequantise(call: Any, quantised: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    scale, zero_point = (along_axis(value, call.attrs.axis, quantised.ndim) for value in (scale, zero_point))
    return (quantised.astype(np.int32) - zero_point.astype(np.int32)) * scale.astype(np.float32)


def _quantise(call: Any, value: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    scale, zero_point = (along_axis(each, call.attrs.axis, value.ndim) for each in (scale, zero_point))
    limits = np.iinfo(str(call.ty.dtype))
    low, high = (np.asarray(limit - zero_point.astype(np.int64), np.float32) for limit in (limits.min, limits.max))
    steps = np.rint(np.clip(value.astype(np.float32) / scale.astype(np.float32), low, high))
    return steps.astype(np.int64) + zero_point


_erf = np.vectorize(math.erf, otypes=[np.float64])

# Operators that numpy has by the same name, and those of them, or nearly, that are elementary functions.
_OF_NUMPY = """
abs add bitwise_and bitwise_not bitwise_or bitwise_xor ceil equal floor floor_divide greater greater_equal isfinite
isinf isnan left_shift less less_equal logical_and logical_not logical_or logical_xor maximum minimum multiply negative
not_equal ones_like right_shift sign sqrt square subtract trunc where zeros_like
"""
_FUNCTIONS = "acos acosh asin asinh atan atan2 atanh cos cosh exp log sin sinh tan tanh"
# Others that templates do well.
_WELL_DONE = """
argmax argmin broadcast_to concat flip full full_like gather_elements gather_nd image.grid_sample image.resize3d matmul
median nn.conv2d nn.group_norm nn.instance_norm nn.layer_norm nn.log_softmax nn.max_pool1d nn.max_pool3d nn.pad
nn.rms_norm nn.softmax one_hot ones repeat split stack std strided_slice take tile tril triu variance zeros
"""

OPERATORS: dict[str, Operator] = {
    **dict.fromkeys(_WELL_DONE.split(), Operator(Kind.OTHER)),
    **{name: _elementwise(getattr(np, name)) for name in _OF_NUMPY.split()},
    **{name: _elementwise(getattr(np, re.sub("^a", "arc", name)), name) for name in _FUNCTIONS.split()},
    "divide": _elementwise(lambda a, b: a / b if a.dtype.kind == "f" else quotient_of_integers(a, b)),
    "erf": _elementwise(_erf, "erf"),
    "floor_mod": _elementwise(np.mod),
    "log_add_exp": _elementwise(np.logaddexp, "exp"),
    "mod": _elementwise(np.fmod),
    "nn.gelu": _elementwise(lambda a: 0.5 * a * (1 + _erf(a / math.sqrt(2))), "erf"),
    "nn.gelu_tanh": _elementwise(
        lambda a: 0.5 * a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))), "tanh"
    ),
    "nn.relu": _elementwise(lambda a: np.maximum(a, 0)),
    "nn.selu": _elementwise(lambda a: 1.0507009873554805 * np.where(a > 0, a, 1.6732632423543772 * np.expm1(a)), "exp"),
    "nn.silu": _elementwise(lambda a: a * _sigmoid(a), "sigmoid"),
    "nn.softplus": _elementwise(lambda a: np.logaddexp(a, 0), "exp"),
    "power": _elementwise(np.power, "pow"),
    "round": _elementwise(np.rint),
    "rsqrt": _elementwise(lambda a: 1 / np.sqrt(a)),
    "sigmoid": _elementwise(_sigmoid, "sigmoid"),
    # By attributes.
    "astype": Operator(Kind.ELEMENTWISE, lambda call, a: a.astype(str(call.ty.dtype))),
    "clip": Operator(Kind.ELEMENTWISE),
    "nn.leakyrelu": Operator(Kind.ELEMENTWISE),
    "nn.prelu": Operator(
        Kind.ELEMENTWISE, lambda call, a, slope: np.where(a > 0, a, a * along_axis(slope, call.attrs.axis, a.ndim))
    ),
    # Each channel by itself.
    **dict.fromkeys(
        ("image.resize2d", "nn.adaptive_avg_pool2d", "nn.avg_pool2d", "nn.max_pool2d"), Operator(Kind.WINDOW)
    ),
    **dict.fromkeys(("max", "mean", "min", "prod", "sum"), Operator(Kind.REDUCTION)),
    # The same values.
    **dict.fromkeys(
        ("expand_dims", "flatten", "reshape", "squeeze"),
        Operator(Kind.RESHAPE, lambda call, a: a.reshape(shape_of(call))),
    ),
    "permute_dims": Operator(
        Kind.OTHER, lambda call, a: a.transpose([int(axis) for axis in call.attrs.axes] if call.attrs.axes else None)
    ),
    "dequantize": Operator(Kind.OTHER, _dequantise),
    "quantize": Operator(Kind.OTHER, _quantise),
}

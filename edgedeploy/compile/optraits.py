"""What operators of Relax are: the one table that passes and frontends ask.

An operator that is not here, and that no template is known to do well, is reported by `edgedeploy build --explain`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.elementary import POLYNOMIALS

# Computes a call on arrays in the place of its tensors.
Evaluator = Callable[..., np.ndarray]


class Kind(Enum):
    """How the values of a result depend on those of the operands."""

    ELEMENTWISE = auto()  # on those at the same place, operands broadcast
    WINDOW = auto()  # on windows of the same channel
    REDUCTION = auto()  # on those along some axes
    RESHAPE = auto()  # the same, in the same order, in another shape
    OTHER = auto()


class Cost(Enum):
    """What a value costs on a CPU."""

    ARITHMETIC = auto()  # a few instructions on whole vectors
    POLYNOMIAL = auto()  # some twenty, `elementary.py`
    LIBRARY_CALL = auto()  # a call of the C library for each value


@dataclass(frozen=True)
class Operator:
    """An operator of Relax.

    Attributes:
        kind: how its results depend on its operands.
        evaluate: what it makes of constants, if numpy computes that: of channels of zeros as well, which padding adds.
        function: the elementary function of TIR in it, empty if there is none.
    """

    kind: Kind
    evaluate: Evaluator | None = None
    function: str = ""

    @property
    def cost(self) -> Cost:
        """What one of its values costs; an elementary function with a polynomial form costs no call."""
        if not self.function:
            return Cost.ARITHMETIC
        return Cost.POLYNOMIAL if self.function in POLYNOMIALS else Cost.LIBRARY_CALL


def operator_name(call: Any) -> str:
    """The name of the operator that an expression calls, without TVM's prefix; empty for anything else."""
    known = isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op)
    return str(call.op.name).removeprefix("relax.") if known else ""


def operator_of(call: Any) -> Operator | None:
    """The entry of the operator that an expression calls."""
    return OPERATORS.get(operator_name(call))


def is_kind(call: Any, *kinds: Kind) -> bool:
    """Whether an expression calls an operator of one of these kinds."""
    operator = operator_of(call)
    return operator is not None and operator.kind in kinds


def evaluate(call: relax.Call, values: Sequence[np.ndarray]) -> np.ndarray | None:
    """What a call makes of arrays in the place of its tensors; None if numpy does not compute it.

    NaN stays NaN in results of floats, so that it can stand for values that are not known.
    """
    operator = operator_of(call)
    if operator is None or operator.evaluate is None:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(operator.evaluate(call, *values), str(call.ty.dtype))


def tensors_of(call: relax.Call) -> list[relax.Expr]:
    """The tensors among a call's arguments; shapes and the bounds of a clip are none."""
    return [argument for argument in call.args if isinstance(argument.ty, relax.TensorType)]


def channel_axis(call: relax.Call, value: np.ndarray) -> int:
    """Which axis of a constant operand of an elementwise operator lies along axis 1 of the result; -1 if none does."""
    axis = 0 if operator_name(call) == "nn.prelu" else value.ndim - len(call.ty.shape) + 1
    return axis if axis >= 0 and value.shape[axis] > 1 else -1


def keeps_channels(call: relax.Call) -> bool:
    """Whether each channel of a call's result comes from the channel of that index of an NCHW feature map."""
    if not is_kind(call, Kind.WINDOW, Kind.REDUCTION) or len(call.args[0].ty.shape) != 4:
        return False
    if is_kind(call, Kind.REDUCTION):
        return call.attrs.axis is not None and all(int(axis) % 4 in (2, 3) for axis in call.attrs.axis)
    return str(getattr(call.attrs, "layout", "NCHW")) == "NCHW"


def keeps_constants(call: relax.Call) -> bool:
    """Whether such a call makes of a constant channel a channel of that constant."""
    name = operator_name(call)
    if name == "nn.avg_pool2d":
        return not call.attrs.count_include_pad or not any(int(width) for width in call.attrs.padding)
    if name == "image.resize2d":
        return (
            call.attrs.method in ("nearest_neighbor", "linear")
            and call.attrs.coordinate_transformation_mode != "tf_crop_and_resize"
        )
    return name not in ("sum", "prod")


def bounds_of(clip: relax.Call) -> tuple[float, float]:
    """The least and the largest value that a clip lets pass."""
    lowest, highest = (float(bound.value) for bound in clip.args[1:3])
    return lowest, highest


def along_axis(value: np.ndarray, axis: int, dimensions: int) -> np.ndarray:
    """One value, or one for each index along an axis, in a shape that broadcasts."""
    if value.size == 1:
        return value.reshape(())
    return value.reshape([-1 if each == axis % dimensions else 1 for each in range(dimensions)])


@cache
def teach_layout_conversion() -> None:
    """Have TVM's `ConvertLayout` pass through those that it does not know: each as another of as many operands."""
    alike = {1: "abs", 2: "add", 3: "ewise_fma"}
    unknown = [(name, alike[count]) for name, count in _TENSORS_OF_UNKNOWN_LAYOUT.items()]
    for name, known in [*unknown, ("nn.log_softmax", "nn.softmax")]:
        rule = tvm.ir.Op.get(f"relax.{known}").get_attr("FRelaxInferLayout")
        tvm.ir.register_op_attr(f"relax.{name}", "FRelaxInferLayout", rule)


# Elementwise operators that TVM 0.27 has no layout rule for, and how many tensors they take.
_TENSORS_OF_UNKNOWN_LAYOUT = {
    "clip": 1, "nn.leakyrelu": 1, "nn.softplus": 1, "ones_like": 1, "where": 3, "zeros_like": 1
}  # fmt: skip


def slow_operators(module: tvm.IRModule, well_done: frozenset[str]) -> Iterator[tuple[str, str]]:
    """The operators of a network that are slow or may be, each once, and why.

    Args:
        module: before its operators are legalised.
        well_done: operators beside those of this table that templates do well.
    """
    names = set()
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            name = operator_name(binding.value)
            names.add(binding.value.args[0].name_hint if name == "call_tir" else name)
    for name in sorted(filter(None, names - well_done)):
        if name not in OPERATORS:
            yield name, "no template is known to do it well"
        elif OPERATORS[name].cost is Cost.LIBRARY_CALL:
            yield name, "a call of the C library for each value"


def _elementwise(compute: Callable[..., Any], function: str = "") -> Operator:
    return Operator(Kind.ELEMENTWISE, lambda call, *values: compute(*values), function)


def _by_call(compute: Evaluator) -> Operator:
    """An elementwise operator with attributes."""
    return Operator(Kind.ELEMENTWISE, compute)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _selu(x: np.ndarray) -> np.ndarray:
    return 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))


def _dequantise(call: Any, quantised: np.ndarray, scale: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    scale, zero_point = (along_axis(value, call.attrs.axis, quantised.ndim) for value in (scale, zero_point))
    return (quantised.astype(np.int32) - zero_point.astype(np.int32)) * scale.astype(np.float32)


def _reshaped(call: Any, a: np.ndarray) -> np.ndarray:
    return a.reshape([int(size) for size in call.ty.shape])


_erf = np.vectorize(math.erf, otypes=[np.float64])

OPERATORS: dict[str, Operator] = {
    # Of one tensor.
    "abs": _elementwise(np.abs),
    "bitwise_not": _elementwise(np.invert),
    "ceil": _elementwise(np.ceil),
    "floor": _elementwise(np.floor),
    "isfinite": _elementwise(np.isfinite),
    "isinf": _elementwise(np.isinf),
    "isnan": _elementwise(np.isnan),
    "logical_not": _elementwise(np.logical_not),
    "negative": _elementwise(np.negative),
    "nn.relu": _elementwise(lambda a: np.maximum(a, 0)),
    "ones_like": _elementwise(np.ones_like),
    "round": _elementwise(np.rint),
    "rsqrt": _elementwise(lambda a: 1 / np.sqrt(a)),
    "sign": _elementwise(np.sign),
    "sqrt": _elementwise(np.sqrt),
    "square": _elementwise(np.square),
    "trunc": _elementwise(np.trunc),
    "zeros_like": _elementwise(np.zeros_like),
    **{
        name: _elementwise(getattr(np, numpy), name)
        for name, numpy in {
            **{each: each for each in ("cos", "cosh", "exp", "log", "sin", "sinh", "tan", "tanh")},
            **{each: each.replace("a", "arc", 1) for each in ("acos", "acosh", "asin", "asinh", "atan", "atanh")},
        }.items()
    },
    "erf": _elementwise(_erf, "erf"),
    "nn.gelu": _elementwise(lambda a: 0.5 * a * (1 + _erf(a / math.sqrt(2))), "erf"),
    "nn.gelu_tanh": _elementwise(_gelu_tanh, "tanh"),
    "nn.selu": _elementwise(_selu, "exp"),
    "nn.silu": _elementwise(lambda a: a * _sigmoid(a), "sigmoid"),
    "nn.softplus": _elementwise(lambda a: np.logaddexp(a, 0), "exp"),
    "sigmoid": _elementwise(_sigmoid, "sigmoid"),
    # Of one tensor, by attributes.
    "astype": _by_call(lambda call, a: a.astype(str(call.ty.dtype))),
    "clip": _by_call(lambda call, a: np.clip(a, *bounds_of(call))),
    "nn.leakyrelu": _by_call(lambda call, a: np.where(a > 0, a, a * float(call.attrs.alpha))),
    # Of two.
    "add": _elementwise(np.add),
    "atan2": _elementwise(np.arctan2, "atan2"),
    "bitwise_and": _elementwise(np.bitwise_and),
    "bitwise_or": _elementwise(np.bitwise_or),
    "bitwise_xor": _elementwise(np.bitwise_xor),
    "divide": _elementwise(lambda a, b: a / b if a.dtype.kind == "f" else a // b),
    "equal": _elementwise(np.equal),
    "floor_divide": _elementwise(np.floor_divide),
    "floor_mod": _elementwise(np.mod),
    "greater": _elementwise(np.greater),
    "greater_equal": _elementwise(np.greater_equal),
    "left_shift": _elementwise(np.left_shift),
    "less": _elementwise(np.less),
    "less_equal": _elementwise(np.less_equal),
    "log_add_exp": _elementwise(np.logaddexp, "exp"),
    "logical_and": _elementwise(np.logical_and),
    "logical_or": _elementwise(np.logical_or),
    "logical_xor": _elementwise(np.logical_xor),
    "maximum": _elementwise(np.maximum),
    "minimum": _elementwise(np.minimum),
    "mod": _elementwise(np.fmod),
    "multiply": _elementwise(np.multiply),
    "nn.prelu": _by_call(lambda call, a, slope: np.where(a > 0, a, a * along_axis(slope, call.attrs.axis, a.ndim))),
    "not_equal": _elementwise(np.not_equal),
    "power": _elementwise(np.power, "pow"),
    "right_shift": _elementwise(np.right_shift),
    "subtract": _elementwise(np.subtract),
    # Of three.
    "where": _elementwise(np.where),
    # Each channel by itself.
    **dict.fromkeys(
        ("image.resize2d", "nn.adaptive_avg_pool2d", "nn.avg_pool2d", "nn.max_pool2d"), Operator(Kind.WINDOW)
    ),
    **dict.fromkeys(("max", "mean", "min", "prod", "sum"), Operator(Kind.REDUCTION)),
    # The same values.
    **dict.fromkeys(("expand_dims", "flatten", "reshape", "squeeze"), Operator(Kind.RESHAPE, _reshaped)),
    "permute_dims": Operator(
        Kind.OTHER, lambda call, a: a.transpose([int(axis) for axis in call.attrs.axes] if call.attrs.axes else None)
    ),
    "dequantize": Operator(Kind.OTHER, _dequantise),
}

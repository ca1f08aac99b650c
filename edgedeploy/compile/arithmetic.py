"""Elementwise arithmetic at its edges: NaN, infinities, and quotients of integers.

TVM simplifies floats as if they were real numbers: `x == x` becomes true, `x - x` and `x * 0` become zero,
`(x + y) - x` becomes `y`, and `not (x < y)` becomes `y <= x`. NaN, infinities and rounding make each of these wrong.
The forms here say the same in terms that TVM leaves alone and that LLVM turns into the same instructions.

Integers are divided by what does not trap: `compile.guards` refuses zeros at run time, and -1, by which the least
integer cannot be divided, is replaced here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import ir, relax, te, tirx

from edgedeploy.compile.expressions import constant_value, shape_of
from edgedeploy.compile.extremes import Legalisation
from edgedeploy.compile.types import is_floating

# Computes one element of the result from one element of each operand.
_Compute = Callable[..., Any]


def _legalised(name: str, compute: _Compute, applies: Callable[[relax.Call], bool]) -> Legalisation:
    """An operator as an elementwise function where `applies` says so; all else as TVM has it."""
    default = ir.Op.get(f"relax.{name}").get_attr("FLegalize")

    def legalise(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        shape, scalars = shape_of(call), [_scalar(argument) for argument in call.args]
        if not applies(call) or None not in scalars:
            return default(builder, call)

        def written(*tensors: te.Tensor) -> te.Tensor:
            def value(*place: Any) -> Any:
                given = iter(tensors)
                elements = (_element(next(given), shape, place) if scalar is None else scalar for scalar in scalars)
                return compute(*elements)

            return te.compute(shape, value, name=name)

        varying = [each for each, scalar in zip(call.args, scalars, strict=True) if scalar is None]
        return builder.call_te(written, *varying, primfunc_name_hint=name)

    return legalise


def _scalar(argument: relax.Expr) -> Any:
    """A constant without dimensions as a number; None for anything else."""
    value = constant_value(argument)
    return None if value is None or value.ndim else tirx.const(value.item(), str(value.dtype))


def _element(tensor: te.Tensor, shape: list[int], place: tuple[Any, ...]) -> Any:
    """The element of an operand that is broadcast to a place of a result."""
    outer = len(shape) - len(tensor.shape)
    sizes = zip(tensor.shape, shape[outer:], place[outer:], strict=True)
    return tensor(*(index if int(size) == whole else 0 for size, whole, index in sizes))


def _opaque(condition: Any) -> Any:
    """A condition that TVM does not simplify further."""
    return tirx.Select(condition, tirx.const(1, "int8"), tirx.const(0, "int8")).astype("bool")


def _equal(a: Any, b: Any) -> Any:
    return _opaque(tirx.all(a <= b, a >= b))


def _difference(a: Any, b: Any) -> Any:
    return tirx.Add(a, tirx.Mul(b, tirx.const(-1, b.ty.dtype)))


def _product_with_zero(a: Any, b: Any) -> Any:
    """Zero, or NaN where the other factor is infinite or NaN."""
    factor = b if isinstance(a, tirx.FloatImm) else a
    return _difference(factor, factor)


def _quotient_with_zero(a: Any, b: Any) -> Any:
    """TVM takes every quotient of zero for zero, and fails on those by zero."""
    if isinstance(b, tirx.FloatImm):
        return tirx.Mul(a, tirx.const(math.copysign(math.inf, float(b.value)), b.ty.dtype))
    return _product_with_zero(a, tirx.Div(tirx.const(1, b.ty.dtype), b))


def _sign(x: Any) -> Any:
    """The sign of NaN is NaN."""
    one, zero = tirx.const(1, x.ty.dtype), tirx.const(0, x.ty.dtype)
    return tirx.Select(x > zero, one, tirx.Select(x < zero, -one, x))


def _of_integers(divide: _Compute, *, remainder: bool) -> _Compute:
    """A quotient or a remainder that never traps.

    The quotient of the least integer by -1 wraps to the least integer. What becomes of a zero does not matter:
    `compile.guards` refuses it.
    """

    def compute(a: Any, b: Any) -> Any:
        one, zero = tirx.const(1, b.ty.dtype), tirx.const(0, b.ty.dtype)
        if isinstance(b, tirx.IntImm) and int(b.value) not in (0, -1):
            return divide(a, b)
        if str(b.ty.dtype).startswith("u"):
            return divide(a, tirx.Select(b == 0, one, b))
        result = divide(a, tirx.Select(tirx.any(b == 0, b == -1), one, b))
        return result if remainder else tirx.Select(b == -1, zero - a, result)

    return compute


def _of_floats(call: relax.Call) -> bool:
    return is_floating(str(call.args[0].ty.dtype))


def _of_float_zero(call: relax.Call) -> bool:
    zeros = [value is not None and not value.ndim and value == 0 for value in map(constant_value, call.args)]
    return _of_floats(call) and any(zeros)


def _divides_integers(call: relax.Call) -> bool:
    return not _of_floats(call)


_COMPARISONS = {"greater": tirx.GT, "greater_equal": tirx.GE, "less": tirx.LT, "less_equal": tirx.LE}
_OF_FLOATS: dict[str, _Compute] = {
    **{name: lambda a, b, compare=compare: _opaque(compare(a, b)) for name, compare in _COMPARISONS.items()},
    "equal": _equal,
    "not_equal": lambda a, b: tirx.Not(_equal(a, b)),
    "sign": _sign,
    "subtract": _difference,
}
# Whether they are remainders.
DIVISIONS = {"divide": False, "floor_divide": False, "floor_mod": True, "mod": True}
_DIVIDE = {"divide": tirx.truncdiv, "floor_divide": tirx.floordiv, "floor_mod": tirx.floormod, "mod": tirx.truncmod}


def _division(name: str) -> Legalisation:
    """Of integers as they are here; of floats only by or of zero."""
    integers = _legalised(name, _of_integers(_DIVIDE[name], remainder=DIVISIONS[name]), _divides_integers)
    floats = _legalised(name, _quotient_with_zero, lambda call: name == "divide" and _of_float_zero(call))
    return lambda builder, call: (floats if _of_floats(call) else integers)(builder, call)


LEGALISATIONS: dict[str, Legalisation] = {
    **{f"relax.{name}": _legalised(name, compute, _of_floats) for name, compute in _OF_FLOATS.items()},
    **{f"relax.{name}": _division(name) for name in DIVISIONS},
    "relax.multiply": _legalised("multiply", _product_with_zero, _of_float_zero),
}

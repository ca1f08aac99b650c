"""Elementary functions as arithmetic on whole vectors: exp, sigmoid, tanh, log, erf, constant powers.

LLVM turns `exp` of a vector into one call of the C library for each value. Here they become polynomials in
float32, accurate to a few units in the last place, with no branch and no table; every CPU vectorises them.
Infinities and NaN give the C library's results; results of `exp` below the smallest normal number become zero.
The sigmoid and erf have forms in float16, too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, register_op_attr
from tvm.target.codegen import llvm_cpu_has_features
from tvm.tirx import FloatImm, Let, Select, Shuffle, Var, call_llvm_pure_intrin, const, reinterpret

from edgedeploy.compile.ir.types import bits_of
from edgedeploy.target.triples import architecture_of

Expression = Any  # a scalar or vector expression of TIR
_REGISTER_BITS = 128  # of a vector of 64-bit ARM
_LEVEL = 100  # TVM asks the rule of the highest level; its own are at 10 and, from Python, at 99

_LOG2_E = 1.44269504088896341
# ln 2 in two parts: small multiples of the first are exact in float32. Cephes, expf.c.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
# Added to a float32 below 2^22, this leaves the nearest integer in the lowest bits.
_ROUNDER, _ROUNDER_BITS = 12582912.0, 0x4B400000
# Limits beyond which exp is infinite, or not a normal number.
_LARGEST_EXPONENT, _SMALLEST_EXPONENT = 88.7228317, -88.02
# One whose power of two is infinite, as is its power of e.
_INFINITE_EXPONENT = 89.0
_SMALLEST_NORMAL = 2.0**-126
_HALF_ROOT_BITS = 0x3F3504F3  # sqrt(1/2)

# Cephes, expf.c and logf.c.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
# 2^x for -1/2 <= x <= 1/2: the largest error, 1.0e-4, is the least of all such polynomials that are 1 at 0. Half
# precision rounds by up to 4.9e-4.
_HALF_POWER = (5.50089e-2, 2.42211e-1, 6.93283e-1, 1.0)
# erf x = 1 - 1 / p(x)^4 for x >= 0, within 5e-4. Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.27.
_HALF_ERF = (0.078108, 0.000972, 0.230389, 0.278393, 1.0)
# Like `_ROUNDER`, for a float16 below 2^9. Exponents whose power of two becomes zero, or infinite.
_HALF_ROUNDER, _HALF_ROUNDER_BITS, _HALF_EXPONENTS = 1536.0, 0x6600, (-15.0, 16.0)

# Rational approximations in x squared, as in Eigen: tanh for |x| <= 9, erf for |x| <= 4.
_TANH = (
    (
        *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
        *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    ),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)
_ERF = (
    (
        *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
        *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    ),
    (
        *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
        *(-7.37332916720468e-03, -1.42647390514189e-02),
    ),
)


@functools.cache
def use_vector_arithmetic() -> None:
    """Have TVM's LLVM targets compute the elementary functions of float32 values by these forms, in this process.

    TVM refuses a second rule of the same level: only the first call does anything.
    """
    for name in _ONE_BY_ONE:
        register_op_attr(f"tirx.{name}", "TVectorizable", True)
    for name, function in POLYNOMIALS.items():
        tirx.register_intrin_lowering(f"tirx.{name}", "llvm", f=_lowering(name, function), level=_LEVEL)


def _lowering(name: str, function: Callable[..., Expression | None]) -> Callable[[Call], Expression]:
    forms = {"float32": function, "float16": _IN_HALF.get(name)}

    def lower(call: Call) -> Expression:
        element = str(call.ty.dtype).split("x")[0]
        if element in ("float64", "float16") and name in _OF_LLVM:
            return call_llvm_pure_intrin(call.ty.dtype, f"llvm.{name}", *call.args)
        form = forms.get(element)
        replacement = None if form is None else form(*call.args)
        if replacement is None and name in _ONE_BY_ONE and call.ty.dtype.lanes > 1:
            return _of_elements(call)
        return call if replacement is None else replacement

    return lower


def _of_elements(call: Call) -> Expression:
    """A vector of the results for each element of a call's arguments."""
    lanes = range(call.ty.dtype.lanes)
    element = str(call.ty.dtype).rsplit("x", 1)[0]
    results = [Call(call.op, [Shuffle([each], [lane]) for each in call.args], ret_ty=element) for lane in lanes]
    return Shuffle(results, list(lanes))


class _Names:
    """Names of values that an expression uses more than once, so that each is computed once."""

    def __init__(self) -> None:
        self._values: list[tuple[Var, Expression]] = []

    def __call__(self, value: Expression) -> Var:
        self._values.append((Var("value", value.ty), value))
        return self._values[-1][0]

    def within(self, expression: Expression) -> Expression:
        """An expression that may use the names."""
        for name, value in reversed(self._values):
            expression = Let(name, value, expression)
        return expression


def exponential(value: Expression) -> Expression:
    """e to the power of `value`: the nearest power of two, times a polynomial for the rest."""
    named = _Names()
    x = named(value)
    clamped = tirx.max(tirx.min(x, _like(x, _LARGEST_EXPONENT)), _like(x, _SMALLEST_EXPONENT))
    rest, bits = _reduced(named, clamped)
    bits = named(bits)
    # Float32 does not hold two to the 128th: take half of it, and a factor of two.
    power = reinterpret(x.ty.dtype, tirx.min(bits, _like(bits, 254)) << 23)
    twice = Select(bits > _like(bits, 254), _like(x, 2.0), _like(x, 1.0))
    finite = (_polynomial(_EXP, rest) * rest * rest + rest + _like(x, 1.0)) * power * twice
    return named.within(Select(x <= _like(x, _LARGEST_EXPONENT), finite, x * _like(x, math.inf)))


def decay(value: Expression) -> Expression:
    """e to the power of a value that is not positive, as in a softmax: no code for large ones."""
    named = _Names()
    return named.within(_power(*_reduced(named, _at_least(named(value), _SMALLEST_EXPONENT))))


def _power(rest: Var, bits: Expression) -> Expression:
    """e to the power of a value that `_reduced` split; infinite beyond what float32 holds of powers of two."""
    return (_polynomial(_EXP, rest) * (rest * rest) + rest + _like(rest, 1.0)) * reinterpret(rest.ty.dtype, bits << 23)


def _reduced(named: _Names, value: Expression) -> tuple[Var, Expression]:
    """A value less the nearest multiple of ln 2, and the multiple's biased exponent."""
    x = named(value)
    rounded = named(x * _like(x, _LOG2_E) + _like(x, _ROUNDER))
    whole = rounded - _like(x, _ROUNDER)
    rest = named(x - whole * _like(x, _LN2_HIGH) - whole * _like(x, _LN2_LOW))
    return rest, _bits(rounded) - (_ROUNDER_BITS - 127)


def sigmoid(value: Expression) -> Expression:
    """1 / (1 + exp(-value))."""
    named = _Names()
    exponent = _between(named, _like(value, 0.0) - value, _SMALLEST_EXPONENT, _INFINITE_EXPONENT)
    divisor = named(_like(value, 1.0) + _power(*_reduced(named, exponent)))
    return named.within(_reciprocal(named, divisor, steps=2))


def half_sigmoid(value: Expression) -> Expression:
    """1 / (1 + exp(-value)) of float16 values, within 2^-10; 0 below -10.7."""
    named = _Names()
    exponent = named(_between(named, value * _like(value, -_LOG2_E), *_HALF_EXPONENTS))
    rounded = named(exponent + _like(value, _HALF_ROUNDER))
    rest = named(exponent - (rounded - _like(value, _HALF_ROUNDER)))
    bits = _bits(rounded)
    power = reinterpret(value.ty.dtype, (bits - _like(bits, _HALF_ROUNDER_BITS - 15)) << _like(bits, 10))
    divisor = named(_polynomial(_HALF_POWER, rest) * power + _like(value, 1.0))
    return named.within(_reciprocal(named, divisor, steps=1))


def half_erf(value: Expression) -> Expression:
    """Erf of float16 values, within 2^-8; a GELU by it is within 0.0012."""
    named = _Names()
    size = named(call_llvm_pure_intrin(value.ty.dtype, "llvm.fabs", value))
    root = named(_polynomial(_HALF_ERF, size))
    square = named(root * root)
    rest = _reciprocal(named, named(square * square), steps=1)
    return named.within(call_llvm_pure_intrin(value.ty.dtype, "llvm.copysign", _like(value, 1.0) - rest, value))


def _reciprocal(named: _Names, divisor: Var, steps: int) -> Expression:
    """1 / divisor; on 64-bit ARM from an estimate of 8 bits, of which each of Newton's `steps` makes twice as many.

    A division takes older cores twenty cycles or more. Those with half arithmetic divide singles beside other work; of
    halves they have the estimate. The reciprocal of infinity is 0.
    """
    is_half = bits_of(str(divisor.ty.dtype).split("x")[0]) == 16
    if not _for_aarch64() or llvm_cpu_has_features("fullfp16") != is_half:
        return _like(divisor, 1.0) / divisor
    estimate = named(_neon("frecpe", divisor))
    for _ in range(steps):
        estimate = named(estimate * _neon("frecps", divisor, estimate))
    return estimate


def natural_logarithm(value: Expression) -> Expression:
    """The logarithm of the mantissa, between sqrt(1/2) and sqrt(2), plus the exponent's."""
    named = _Names()
    x = named(value)
    bits = named(_bits(x) - _HALF_ROOT_BITS)
    mantissa = reinterpret(x.ty.dtype, (bits & _like(bits, 0x7FFFFF)) + _HALF_ROOT_BITS)
    rest = named(mantissa - _like(x, 1.0))
    exponent = named(tirx.Cast(x.ty.dtype, bits >> 23))
    square = rest * rest
    tail = _polynomial(_LOG, rest) * rest * square + exponent * _like(x, _LN2_LOW) - square * _like(x, 0.5)
    finite = Select(x < _like(x, math.inf), tail + rest + exponent * _like(x, _LN2_HIGH), x)
    # Zero, and subnormal numbers, which processors take for zero; negative numbers; NaN.
    other = Select(x < _like(x, 0.0), _like(x, math.nan), Select(x < _like(x, 1.0), _like(x, -math.inf), x))
    return named.within(Select(x >= _like(x, _SMALLEST_NORMAL), finite, other))


def power(base: Expression, exponent: Expression) -> Expression:
    """exp(exponent * log(base)) for a constant exponent that is not whole: negative bases have no such power.

    Other powers are LLVM's, which computes squares by a product and calls the C library for the rest.
    """
    constant = exponent.value if isinstance(exponent, tirx.Broadcast) else exponent
    if not isinstance(constant, FloatImm) or float(constant.value).is_integer():
        return call_llvm_pure_intrin(base.ty.dtype, "llvm.pow", base, exponent)
    return exponential(natural_logarithm(base) * exponent)


# By TIR's function.
POLYNOMIALS: dict[str, Callable[..., Expression | None]] = {
    "exp": exponential,
    "sigmoid": sigmoid,
    "tanh": lambda value: _odd_rational(value, 9.0, *_TANH),
    "log": natural_logarithm,
    "erf": lambda value: _odd_rational(value, 4.0, *_ERF),
    "pow": power,
}
_IN_HALF: dict[str, Callable[..., Expression]] = {"sigmoid": half_sigmoid, "erf": half_erf}


_OF_LLVM = {"exp", "log", "pow"}  # functions that TVM has no rule for in other floats, once there is one of ours
_ONE_BY_ONE = ("nearbyint", "erf")  # operators that TVM's vectoriser splits into scalar calls unless they are marked


def _odd_rational(
    value: Expression, bound: float, numerator: Sequence[float], denominator: Sequence[float]
) -> Expression:
    """x times a quotient of polynomials in x squared, of values cut to +-bound; NaN stays NaN."""
    named = _Names()
    x = named(value)
    cut = Select(x > _like(x, bound), _like(x, bound), x)
    x = named(Select(x < _like(x, -bound), _like(x, -bound), cut))
    square = named(x * x)
    return named.within(x * _polynomial(numerator, square) / _polynomial(denominator, square))


def _polynomial(coefficients: Sequence[float], x: Var) -> Expression:
    """Horner's rule, highest power first."""
    result = _like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _like(x, coefficient)
    return result


def _between(named: _Names, value: Expression, low: float, high: float) -> Expression:
    """A value cut to a range; NaN stays NaN."""
    if _for_aarch64():
        below = call_llvm_pure_intrin(value.ty.dtype, "llvm.minimum", value, _like(value, high))
        return call_llvm_pure_intrin(value.ty.dtype, "llvm.maximum", below, _like(value, low))
    x = named(value)
    return _at_least(named(Select(x > _like(x, high), _like(x, high), x)), low)


def _neon(name: str, *values: Expression) -> Expression:
    """An instruction of 64-bit ARM on vectors of any length."""

    def of_register(*parts: Expression) -> Expression:
        return call_llvm_pure_intrin(parts[0].ty.dtype, f"llvm.aarch64.neon.{name}", *parts)

    whole = _REGISTER_BITS // bits_of(str(values[0].ty.dtype).split("x")[0])
    return in_registers(values, (whole, whole // 2), of_register)


def in_registers(values: Sequence[Expression], widths: Sequence[int], compute: Callable[..., Expression]) -> Expression:
    """A function of vectors of any length, or scalars, by one of vectors of some widths, the largest first.

    LLVM does not split instructions itself.
    """
    lanes, parts, first = values[0].ty.dtype.lanes, [], 0
    while first < lanes:
        width = min((each for each in widths if each >= lanes - first), default=widths[0])
        places = [min(first + place, lanes - 1) for place in range(width)]
        parts.append(compute(*(_part(each, places) for each in values)))
        first += width
    whole = len(parts) == 1 and parts[0].ty.dtype.lanes == lanes
    return parts[0] if whole else Shuffle(parts, list(range(lanes)))


def _part(vector: Expression, places: list[int]) -> Expression:
    lanes = vector.ty.dtype.lanes
    if lanes == 1:
        return tirx.Broadcast(vector, len(places))
    # TVM selects no more values than there are.
    return vector if places == list(range(lanes)) else Shuffle([vector] * -(-len(places) // lanes), places)


def _for_aarch64() -> bool:
    target = tvm.target.Target.current(allow_none=True)
    return target is not None and architecture_of(str(target.attrs["mtriple"])).name == "aarch64"


def _at_least(x: Var, bound: float) -> Expression:
    """The larger of a value and a bound; NaN stays NaN."""
    return Select(x < _like(x, bound), _like(x, bound), x)


def _bits(x: Var) -> Expression:
    return reinterpret(str(x.ty.dtype).replace("float", "int"), x)


def _like(expression: Expression, value: float) -> Expression:
    return const(value, expression.ty.dtype)

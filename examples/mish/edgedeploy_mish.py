"""Mish with one exponential, in the place of exp, log and tanh.

Mish is x tanh(log(1 + e^x)). With n = e^x (e^x + 2) that is x n / (n + 2). From x = 20 on, n / (n + 2) is 1 in float32,
so the exponent ends there and nothing overflows.
"""

from collections.abc import Mapping
from typing import Any

from tvm.relax import Call, Expr, const
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.op import add, divide, exp, minimum, multiply

from edgedeploy.compile.passes import Form, Pass, rewriting

x, one, zero = wildcard(), is_const(), is_const()

# log(1 + e^x), and the same as frontends write it where e^x could overflow: max(x, 0) + log(1 + e^-|x|).
small = is_op("relax.exp")(is_op("relax.negative")(is_op("relax.abs")(x)))
softplus = is_op("relax.log")(is_op("relax.add")(one, is_op("relax.exp")(x))) | is_op("relax.add")(
    is_op("relax.maximum")(x, zero), is_op("relax.log")(is_op("relax.add")(one, small))
)
mish = is_op("relax.multiply")(x, is_op("relax.tanh")(softplus))


def with_one_exponential(call: Call, matched: Mapping[Any, Expr]) -> Expr:
    """Mish of what `x` matched."""
    constants = [(matched[pattern], value) for pattern, value in ((one, 1.0), (zero, 0.0)) if pattern in matched]
    if str(call.ty.dtype) != "float32" or any((found.value.numpy() != value).any() for found, value in constants):
        return call
    power = exp(minimum(matched[x], const(20.0)))
    n = multiply(power, add(power, const(2.0)))
    return divide(multiply(matched[x], n), add(n, const(2.0)))


FAST_MISH = Pass(
    name="fast-mish",
    what="Compute Mish with one exponential.",
    run=rewriting(mish, with_one_exponential),
    expects=Form("NCHW", ("float32",)),
    after="fold-constants",
)

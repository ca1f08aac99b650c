"""Maxima and minima that keep NaN, where a CPU does that with the same instruction.

TVM takes the maximum of NaN and a number for the number, so that a NaN of a sensor would leave a ReLU as 0. 64-bit ARM
has instructions that keep NaN of either operand. Elsewhere a maximum is a comparison and a choice, and so are x86's
`maxps` and `minps`: they give their second operand where one is NaN, so that NaN is kept beside a constant.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from edgedeploy.compile.backends.cpu.statements import replaced, replaced_within
from edgedeploy.triples import Architecture

_TYPE = "float32"


def keep_nan(function: tirx.PrimFunc, architecture: Architecture) -> tirx.PrimFunc:
    """A function whose maxima and minima of floats keep NaN, as far as that costs nothing on a CPU.

    Integers that floats are turned into stay as they are: NaN is no index, and no quantised value.
    """
    of_both = architecture.name == "aarch64"

    def kept(expression: Any) -> Any:
        if str(getattr(expression.ty, "dtype", "")) != _TYPE:  # names of functions have none
            return None
        if not isinstance(expression, tirx.Max | tirx.Min):
            return expression
        first, second = (replaced_within(each, kept) for each in (expression.a, expression.b))
        if of_both:
            name = "llvm.maximum" if isinstance(expression, tirx.Max) else "llvm.minimum"
            return tirx.call_llvm_pure_intrin(expression.ty.dtype, name, first, second)
        if isinstance(second, tirx.FloatImm):
            first, second = second, first
        return type(expression)(first, second)

    def rewritten(statement: Any) -> Any:
        if not isinstance(statement, tirx.BufferStore):
            return statement
        return tirx.BufferStore(statement.buffer, replaced_within(statement.value, kept), statement.indices)

    return function.with_body(replaced(function.body, rewritten))

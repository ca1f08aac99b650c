"""Sums, products, means and concatenations of quantised tensors, bit for bit as onnxruntime computes them.

Other elementwise functions of quantised tensors are computed in float between bytes, as ONNX says, in one function.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, is_call, shape_of
from edgedeploy.compile.integer_layers import Activation, Values
from edgedeploy.compile.quantisation import Steps, bounded, centred, rounded, to_floats, to_integers

# Gives the integers that an expression was dequantised from, rewritten, and their steps; None for other expressions.
Source = Callable[[relax.Expr], tuple[relax.Expr, Steps] | None]


def sum_of(
    build: relax.BlockBuilder, values: Values, found: Activation, steps: Steps, source: Source
) -> relax.Expr | None:
    """QLinearAdd of onnxruntime: two fused multiply-adds in float32 on integers as uint8 has them.

    `a * p + (b * q + c)` with `p = a_scale / y_scale`, `q = b_scale / y_scale`, and c of the three zero points: it is
    rounded after the zero point was added. LLVM fuses products and sums where the CPU can, as onnxruntime does there.
    """
    call = values.of(found.source)
    operands = [each for each in map(source, call.args) if each] if is_call(call, "relax.add") else []
    if len(operands) != 2:
        return None
    (one, one_steps), (other, other_steps) = operands
    result, one_steps, other_steps = (each.stored_as("uint8") for each in (steps, one_steps, other_steps))
    first, second = one_steps.scale / result.scale, other_steps.scale / result.scale
    # The product is not rounded before it joins the sum: float64 holds it exactly.
    offsets = np.float32(
        np.float64(first) * one_steps.zero_point + np.float64(second * np.float32(other_steps.zero_point))
    )
    offset = np.float32(result.zero_point) - offsets
    partial = build.emit(relax.op.multiply(_as_uint8(build, other), constant(second, "float32")))
    partial = build.emit(relax.op.add(partial, constant(offset, "float32")))
    total = build.emit(relax.op.multiply(_as_uint8(build, one), constant(first, "float32")))
    total = build.emit(relax.op.add(total, partial))
    low, high = (bound + result.zero_point - steps.zero_point for bound in found.bounds(steps))
    total = build.emit(relax.op.round(bounded(build, total, low, high)))
    if shift := steps.zero_point - result.zero_point:
        total = build.emit(relax.op.add(total, constant(shift, "float32")))
    return relax.op.astype(total, steps.dtype)


def _as_uint8(build: relax.BlockBuilder, integers: relax.Expr) -> relax.Expr:
    """Bytes as float32, as large as uint8 would have them."""
    value = build.emit(relax.op.astype(integers, "float32"))
    if str(integers.ty.dtype) == "uint8":
        return value
    return build.emit(relax.op.add(value, constant(128, "float32")))


def product_of(
    build: relax.BlockBuilder, values: Values, found: Activation, steps: Steps, source: Source
) -> relax.Expr | None:
    """QLinearMul of onnxruntime: the exact product without zero points, a fused multiply-add, and rounding."""
    call = values.of(found.source)
    operands = [each for each in map(source, call.args) if each] if is_call(call, "relax.multiply") else []
    if len(operands) != 2:
        return None
    (one, one_steps), (other, other_steps) = operands
    scale = one_steps.scale * other_steps.scale / steps.scale
    value = build.emit(relax.op.multiply(centred(build, one, one_steps), centred(build, other, other_steps)))
    value = build.emit(relax.op.multiply(value, constant(scale, "float32")))
    value = build.emit(relax.op.add(value, constant(steps.zero_point, "float32")))
    value = build.emit(relax.op.round(bounded(build, value, *found.bounds(steps))))
    return relax.op.astype(value, steps.dtype)


def mean_of(
    build: relax.BlockBuilder, values: Values, found: Activation, steps: Steps, source: Source
) -> relax.Expr | None:
    """QLinearGlobalAveragePool of onnxruntime: the sum of integers, which is exact, times one factor."""
    call = values.of(found.source)
    operand = source(call.args[0]) if is_call(call, "relax.mean") else None
    if operand is None or not call.attrs.axis:
        return None
    integers, before = operand
    count = math.prod(shape_of(call.args[0])) // math.prod(shape_of(call))
    if count >= 2**23:  # int32 and float32 hold what is summed up
        return None
    wide = build.emit(relax.op.astype(integers, "int32"))
    total = build.emit(relax.op.sum(wide, call.attrs.axis, bool(call.attrs.keepdims)))
    total = build.emit(relax.op.add(total, constant(-before.zero_point * count, "int32")))
    total = build.emit(relax.op.astype(total, "float32"))
    scale = before.scale / (steps.scale * np.float32(count))
    total = build.emit(relax.op.multiply(total, constant(scale, "float32")))
    return rounded(build, total, steps, found.bounds(steps))


def concatenation_of(
    build: relax.BlockBuilder, values: Values, found: Activation, steps: Steps, source: Source
) -> relax.Expr | None:
    """The concatenation of integers, those of other steps brought to these."""
    call = values.of(found.source)
    fields = values.of(call.args[0]) if is_call(call, "relax.concat") else None
    if not isinstance(fields, relax.Tuple) or found.bounds(steps) != steps.limits:
        return None
    operands = [each for each in map(source, fields.fields) if each]
    if len(operands) < len(fields.fields):
        return None
    parts = []
    for integers, before in operands:
        if before != steps:
            integers = build.emit(to_integers(build, build.emit(to_floats(build, integers, before)), steps))
        parts.append(integers)
    return relax.op.concat(parts, int(call.attrs.axis))


OPERATORS = (sum_of, product_of, mean_of, concatenation_of)

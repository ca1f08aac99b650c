"""Sums, products, means, concatenations and lines of quantised tensors, bit for bit as onnxruntime computes them.

Other elementwise functions of quantised tensors are computed in float between bytes, as ONNX says, in one function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, is_call, shape_of
from edgedeploy.compile.integer_layers import Activation, IntegerLayer, Values
from edgedeploy.compile.integer_lines import function_before, in_other_steps, lines_through
from edgedeploy.compile.quantisation import SPAN, Steps, centred, rounded, shift_between, to_floats, to_integers


@dataclass(frozen=True)
class Surroundings:
    """The network that an operator is in.

    Attributes:
        build: where its new form is emitted.
        values: the network as it was.
        integers: gives what an expression was dequantised from, in the new network, and its steps; None for others.
        layer: gives the layer whose sums an expression computes; None for others.
        floats: writes a layer's sums over a divisor, in float32.
        dtype: of the bytes in the network's file: some operators round by it, however bytes are stored.
    """

    build: relax.BlockBuilder
    values: Values
    integers: Callable[[relax.Expr], tuple[relax.Expr, Steps] | None]
    layer: Callable[[relax.Expr], IntegerLayer | None]
    floats: Callable[[IntegerLayer, np.float32], relax.Expr]
    dtype: str

    def operands(self, expressions: Iterable[relax.Expr]) -> list[tuple[relax.Expr, Steps]]:
        """The integers that expressions were dequantised from; none if one was not."""
        found = [self.integers(each) for each in expressions]
        return [] if None in found else found  # type: ignore[return-value]


def sum_of(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearAdd of onnxruntime: two fused multiply-adds in float32 on the integers of the file.

    `a * p + (b * q + c)` with `p = a_scale / y_scale`, `q = b_scale / y_scale`, and c of the three zero points: it is
    rounded after the zero point was added. LLVM fuses products and sums where the CPU can, as onnxruntime does there.
    """
    build, call = network.build, network.values.of(found.source)
    operands = network.operands(call.args) if is_call(call, "relax.add") else []
    if not operands or steps.away:
        return None
    (one, one_steps), (other, other_steps) = operands
    result, one_steps, other_steps = (each.stored_as(network.dtype) for each in (steps, one_steps, other_steps))
    first, second = one_steps.scale / result.scale, other_steps.scale / result.scale
    # The product is not rounded before it joins the sum: float64 holds it exactly.
    offsets = np.float32(
        np.float64(first) * one_steps.zero_point + np.float64(second * np.float32(other_steps.zero_point))
    )
    offset = np.float32(result.zero_point) - offsets
    partial = build.emit(relax.op.multiply(_as_stored(build, other, network.dtype), constant(second, "float32")))
    # Of two bare products LLVM would choose itself which one is rounded: a bound that no value passes keeps them apart.
    apart = relax.op.add if offset else relax.op.maximum
    partial = build.emit(apart(partial, constant(offset or np.finfo(np.float32).min, "float32")))
    total = build.emit(relax.op.multiply(_as_stored(build, one, network.dtype), constant(first, "float32")))
    total = build.emit(relax.op.add(total, partial))
    return _stored(network, total, found, steps, SPAN * float(first + second))


def _stored(
    network: Surroundings, value: relax.Expr, found: Activation, steps: Steps, largest: float = math.inf
) -> relax.Expr:
    """The integers of float32 values that the zero point of the file was added to, which are rounded by that.

    `largest` is what no value exceeded before.
    """
    moved = steps.zero_point - steps.stored_as(network.dtype).zero_point
    return rounded(network.build, value, replace(steps, zero_point=moved), found.bounds(steps), largest + SPAN)


def _as_stored(build: relax.BlockBuilder, integers: relax.Expr, dtype: str) -> relax.Expr:
    """Bytes as float32, as large as those of another type are."""
    value = build.emit(relax.op.astype(integers, "float32"))
    shift = shift_between(str(integers.ty.dtype), dtype)
    return build.emit(relax.op.add(value, constant(shift, "float32"))) if shift else value


def product_of(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearMul of onnxruntime: the exact product without zero points, a fused multiply-add, and rounding."""
    build, call = network.build, network.values.of(found.source)
    operands = network.operands(call.args) if is_call(call, "relax.multiply") else []
    if not operands or steps.away:
        return None
    (one, one_steps), (other, other_steps) = operands
    scale = one_steps.scale * other_steps.scale / steps.scale
    value = build.emit(relax.op.multiply(centred(build, one, one_steps), centred(build, other, other_steps)))
    value = build.emit(relax.op.multiply(value, constant(scale, "float32")))
    zero_point = steps.stored_as(network.dtype).zero_point
    value = build.emit(relax.op.add(value, constant(zero_point, "float32")))
    return _stored(network, value, found, steps, SPAN**2 * float(scale))


def mean_of(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearGlobalAveragePool of onnxruntime: the sum of integers, which is exact, times one factor."""
    build, call = network.build, network.values.of(found.source)
    operand = network.integers(call.args[0]) if is_call(call, "relax.mean") else None
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
    if steps.away:  # pooling_kernel_ref_int8.c of Tengine
        total = build.emit(relax.op.multiply(total, constant(before.scale, "float32")))
        total = build.emit(relax.op.divide(total, constant(count, "float32")))
        return to_integers(build, total, steps, found.bounds(steps))
    scale = before.scale / (steps.scale * np.float32(count))
    total = build.emit(relax.op.multiply(total, constant(scale, "float32")))
    return rounded(build, total, steps, found.bounds(steps), SPAN * float(before.scale / steps.scale))


def average_of(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearAveragePool of onnxruntime: averages of float32 values, rounded after the zero point was added.

    It has none of int8 on x86: there they are rounded as QuantizeLinear does, before.
    """
    build, call = network.build, network.values.of(found.source)
    operand = network.integers(call.args[0]) if is_call(call, "relax.nn.avg_pool2d") else None
    if operand is None:
        return None
    if steps.away:  # Tengine sums up integers, too
        integers, before = operand
        value = build.emit(relax.Call(call.op, [build.emit(centred(build, integers, before))], call.attrs))
        value = build.emit(relax.op.multiply(value, constant(before.scale, "float32")))
        return to_integers(build, value, steps, found.bounds(steps))
    value = build.emit(relax.Call(call.op, [build.emit(to_floats(build, *operand))], call.attrs))
    value = build.emit(relax.op.divide(value, constant(steps.scale, "float32")))
    if network.dtype == "int8":
        return rounded(build, value, steps, found.bounds(steps))
    zero_point = steps.stored_as(network.dtype).zero_point
    return _stored(network, build.emit(relax.op.add(value, constant(zero_point, "float32"))), found, steps)


def concatenation_of(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """The concatenation of integers, those of other steps brought to these."""
    build, call = network.build, network.values.of(found.source)
    fields = network.values.of(call.args[0]) if is_call(call, "relax.concat") else None
    if not isinstance(fields, relax.Tuple):
        return None
    parts, bounds = [], found.bounds(steps)
    for integers, before in network.operands(fields.fields):
        if before != steps.to_even() or bounds != steps.limits:
            moved = in_other_steps(build, integers, before, steps, bounds)
            if moved is None:
                moved = to_integers(build, build.emit(to_floats(build, integers, before)), steps, bounds)
            integers = build.emit(moved)
        parts.append(integers)
    return relax.op.concat(parts, int(call.attrs.axis)) if parts else None


def lines_of(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """A leaky ReLU, or another function of one tensor that is one or two straight lines."""
    function = function_before(network.values, found.source)
    operand = network.integers(function.operand) if function else None
    if function is None or operand is None:
        return None
    bounds = found.bounds(steps)
    lines = lines_through(function.reals, function.steps, steps, bounds)
    return None if lines is None else lines.written(network.build, *operand, steps, bounds)


OPERATORS = (sum_of, product_of, mean_of, average_of, concatenation_of, lines_of)

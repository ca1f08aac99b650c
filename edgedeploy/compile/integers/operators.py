"""Sums, products, means, concatenations and lines of quantised tensors, bit for bit as onnxruntime computes them.

*Lines* are functions of one quantised tensor that are one or two straight lines: products, if all 256 integers agree. A
leaky ReLU between bytes, or a change of steps, is `clip(rint(max(x * p, x * q)) + zero_point)` of the integers less
their zero point. Divisions and the steps of the network between them are rounded otherwise, so the form is used only if
it gives the same byte as the network's own operators for every possible byte.

*Scaled layers* are sums of integers that pass through operators that commute with a positive factor before they are
quantised. The quotient of a result and its step is then a factor of the layers' scales: `max(x, a x) / y_scale` is
`max(x', a x')` of `x' = x / y_scale`, for which no division is left. So leaky ReLUs and sums behind a layer cost as
much as in float. Such a layer has no rounding of its own: its values are those of floats, and no other program's bits.

Other elementwise functions of quantised tensors are computed in float between bytes, as ONNX defines them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.integers.layers import Activation, IntegerLayer, activation_before, layer_of
from edgedeploy.compile.integers.quantisation import (
    SPAN,
    Steps,
    centred,
    rounded,
    shift_between,
    steps_of,
    to_floats,
    to_integers,
)
from edgedeploy.compile.ir.expressions import Emitter, Rewriter, constant, constant_value, is_call, shape_of
from edgedeploy.compile.ir.optraits import Kind, evaluate, is_kind, operator_name, tensors_of

if TYPE_CHECKING:
    from edgedeploy.compile.backends.cpu import CpuBackend

# The steps of float32 around the quotient of scales that are tried as slopes: the network rounds its own twice.
_NEIGHBOURS = 2

_OF_ALL = {"add", "subtract", "maximum", "minimum", "nn.relu"}  # operators all of whose operands are divided


def _sum_of(network: IntegerWriter, call: relax.Call, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearAdd of onnxruntime: two fused multiply-adds in float32 on the integers of the file.

    `a * p + (b * q + c)` with `p = a_scale / y_scale`, `q = b_scale / y_scale`, and c of the three zero points: it is
    rounded after the zero point was added. LLVM fuses products and sums if the CPU can, as onnxruntime does on x86 with
    AVX2; on other CPUs sums are those of floats.
    """
    emit, operands = network.emit, network.operands(call.args)
    if not operands or steps.half_away:
        return None
    network.summary.exact &= network.cpu.fuses
    (one, one_steps), (other, other_steps) = operands
    result, one_steps, other_steps = (each.stored_as(network.dtype) for each in (steps, one_steps, other_steps))
    first, second = one_steps.scale / result.scale, other_steps.scale / result.scale
    # The product is not rounded before it joins the sum: float64 holds it exactly.
    offsets = np.float32(
        np.float64(first) * one_steps.zero_point + np.float64(second * np.float32(other_steps.zero_point))
    )
    offset = np.float32(result.zero_point) - offsets
    partial = emit.multiply(_as_stored(emit, other, network.dtype), second)
    # Of two bare products LLVM would choose itself which one is rounded: a bound that no value passes keeps them apart.
    partial = emit.add(partial, offset) if offset else emit.maximum(partial, np.finfo(np.float32).min)
    total = emit.add(emit.multiply(_as_stored(emit, one, network.dtype), first), partial)
    return _stored(network, total, found, steps, SPAN * float(first + second))


def _stored(
    network: IntegerWriter, value: relax.Expr, found: Activation, steps: Steps, largest: float = math.inf
) -> relax.Expr:
    """The integers of float32 values that include the zero point of the file; `largest` is their magnitude without."""
    moved = steps.zero_point - steps.stored_as(network.dtype).zero_point
    return rounded(network.emit, value, replace(steps, zero_point=moved), found.bounds(steps), largest + SPAN)


def _as_stored(emit: Emitter, integers: relax.Expr, dtype: str) -> relax.Expr:
    """Bytes as float32, moved to the range of another type."""
    value = emit.astype(integers, "float32")
    shift = shift_between(str(integers.ty.dtype), dtype)
    return emit.add(value, shift) if shift else value


def _product_of(network: IntegerWriter, call: relax.Call, found: Activation, steps: Steps) -> relax.Expr | None:
    """The exact product without zero points, times one factor, plus the zero point, rounded.

    QLinearMul of onnxruntime rounds in between on some CPUs, and LLVM does not if it can fuse the two: values are those
    of floats.
    """
    emit, operands = network.emit, network.operands(call.args)
    if not operands or steps.half_away:
        return None
    network.summary.exact = False
    (one, one_steps), (other, other_steps) = operands
    scale = one_steps.scale * other_steps.scale / steps.scale
    value = emit.multiply(emit.multiply(centred(emit, one, one_steps), centred(emit, other, other_steps)), scale)
    value = emit.add(value, steps.stored_as(network.dtype).zero_point)
    return _stored(network, value, found, steps, SPAN**2 * float(scale))


def _mean_of(network: IntegerWriter, call: relax.Call, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearGlobalAveragePool of onnxruntime: the sum of integers, which is exact, times one factor."""
    emit, operand = network.emit, network.integers(call.args[0])
    if operand is None or not call.attrs.axis:
        return None
    integers, before = operand
    count = math.prod(shape_of(call.args[0])) // math.prod(shape_of(call))
    if count >= 2**23:  # int32 and float32 hold smaller sums
        return None
    total = emit.sum(emit.astype(integers, "int32"), call.attrs.axis, keepdims=bool(call.attrs.keepdims))
    total = emit.astype(emit.add(total, -before.zero_point * count), "float32")
    if steps.half_away:  # pooling_kernel_ref_int8.c of Tengine
        total = emit.divide(emit.multiply(total, before.scale), count)
        return to_integers(emit, total, steps, found.bounds(steps))
    total = emit.multiply(total, before.scale / (steps.scale * np.float32(count)))
    return rounded(emit, total, steps, found.bounds(steps), SPAN * float(before.scale / steps.scale))


def _average_of(network: IntegerWriter, call: relax.Call, found: Activation, steps: Steps) -> relax.Expr | None:
    """QLinearAveragePool of onnxruntime: averages of float32 values, rounded after the zero point was added.

    It has none of int8 on x86: there they are rounded before, as QuantizeLinear does.
    """
    emit, operand = network.emit, network.integers(call.args[0])
    if operand is None:
        return None
    if steps.half_away:  # Tengine sums up integers, too
        integers, before = operand
        value = emit(relax.Call(call.op, [emit(centred(emit, integers, before))], call.attrs))
        return to_integers(emit, emit.multiply(value, before.scale), steps, found.bounds(steps))
    value = emit(relax.Call(call.op, [emit(to_floats(emit, *operand))], call.attrs))
    value = emit.divide(value, steps.scale)
    if network.dtype == "int8":
        return rounded(emit, value, steps, found.bounds(steps))
    return _stored(network, emit.add(value, steps.stored_as(network.dtype).zero_point), found, steps)


def _concatenation_of(network: IntegerWriter, call: relax.Call, found: Activation, steps: Steps) -> relax.Expr | None:
    """The concatenation of integers, after a change of steps if necessary."""
    emit, fields = network.emit, network.value_before(call.args[0])
    if not isinstance(fields, relax.Tuple):
        return None
    parts, bounds = [], found.bounds(steps)
    for field, (integers, before) in zip(fields.fields, network.operands(fields.fields), strict=False):
        if before != steps.to_even() or bounds != steps.limits:
            moved = _lines_of(network, replace(found, source=field), steps)
            if moved is None:
                moved = to_integers(emit, emit(to_floats(emit, integers, before)), steps, bounds)
            integers = emit(moved)
        parts.append(integers)
    return relax.op.concat(parts, int(call.attrs.axis)) if parts else None


def _lines_of(network: IntegerWriter, found: Activation, steps: Steps) -> relax.Expr | None:
    """A leaky ReLU, a change of steps, or another function of one tensor that is one or two straight lines."""
    emit, function, bounds = network.emit, function_before(network, found.source), found.bounds(steps)
    operand = network.integers(function.operand) if function else None
    lines = lines_through(function.reals, function.steps, steps, bounds) if function else None
    if operand is None or lines is None:
        return None
    values = emit(centred(emit, *operand))
    result = emit.multiply(values, lines.above)
    if lines.below != lines.above:
        either = emit.maximum if lines.below < lines.above else emit.minimum
        result = either(result, emit.multiply(values, lines.below))
    return rounded(emit, result, steps.to_even(), bounds, SPAN * float(max(map(abs, lines))))


class Lines(NamedTuple):
    """A function of integers less their zero point, in steps of the result: slopes below and above zero."""

    below: np.float32
    above: np.float32


def every_integer(steps: Steps) -> np.ndarray:
    """All integers of a tensor with these steps, in ascending order."""
    low, high = steps.limits
    return np.arange(low, high + 1)


def lines_through(reals: np.ndarray, before: Steps, after: Steps, bounds: tuple[int, int]) -> Lines | None:
    """Lines that equal a function for every integer, in steps `after` and within bounds; None if no lines do.

    `reals` are the function's float32 values for `every_integer(before)`.
    """
    if not np.isfinite(reals).all():
        return None
    values = (every_integer(before) - before.zero_point).astype(np.float32)
    low, high = (np.float32(bound - after.zero_point) for bound in bounds)
    wanted = np.clip(after.quantised(reals), *bounds) - after.zero_point
    slopes = []
    for side in (values <= 0, values >= 0):
        furthest = int(np.argmax(np.abs(values * side)))
        if not values[furthest]:
            continue
        slope = np.float32(np.float64(reals[furthest]) / (np.float64(values[furthest]) * after.scale))
        tried = (slope, *_neighbours(slope))
        right = [each for each in tried if (np.rint(np.clip(values[side] * each, low, high)) == wanted[side]).all()]
        if not right:
            return None
        slopes.append(right)
    both = [each for each in slopes[0] if each in slopes[-1]]
    return Lines(both[0], both[0]) if both else Lines(slopes[0][0], slopes[-1][0])


def _neighbours(value: np.float32) -> Iterator[np.float32]:
    for towards in (np.float32(-np.inf), np.float32(np.inf)):
        near = value
        for _ in range(_NEIGHBOURS):
            near = np.nextafter(near, towards)
            yield near


class Function(NamedTuple):
    """An elementwise function of a dequantised tensor: its float32 values for `every_integer(steps)` of the tensor."""

    operand: relax.Expr
    steps: Steps
    reals: np.ndarray


def function_before(network: Rewriter, expression: Any) -> Function | None:
    """The function that an expression is of one quantised tensor and constant numbers; None for other expressions."""
    call = network.value_before(expression)
    steps = steps_of(call) if is_call(call, "relax.dequantize") else None
    if steps:
        return Function(expression, steps, steps.dequantised(every_integer(steps)))
    if not is_kind(call, Kind.ELEMENTWISE):
        return None
    found: list[Function] = []
    operands = []
    for tensor in tensors_of(call):
        number = constant_value(network.value_before(tensor))
        if number is not None:
            if number.size != 1:
                return None
            operands.append(number.reshape(()))
            continue
        inner = function_before(network, tensor)
        if inner is None or (found and not inner.operand.same_as(found[0].operand)):
            return None
        found.append(inner)
        operands.append(inner.reals)
    reals = evaluate(call, operands) if found else None
    return found[0]._replace(reals=reals) if reals is not None and reals.shape == found[0].reals.shape else None


def scaled_layers(network: IntegerWriter, found: Activation, steps: Steps) -> relax.Expr | None:
    """The integers of layers, and of quantised tensors next to them, after operators that commute with a factor.

    None if another operator or no layer is among them, or if a value is used elsewhere too.
    """
    if steps.half_away:
        return None
    scaled = _Scaled(network, steps.scale)
    if not scaled.reaches(found.source):
        return None
    return rounded(network.emit, scaled.of(found.source), steps, found.bounds(steps))


class _Scaled:
    """Expressions over a divisor."""

    def __init__(self, network: IntegerWriter, divisor: np.float32) -> None:
        self._network, self._divisor = network, divisor
        self._reads: Counter[Any] = Counter()
        self._layers: dict[Any, IntegerLayer] = {}
        self._written: dict[Any, relax.Expr] = {}

    def reaches(self, expression: Any) -> bool:
        """Whether all of it is known, ends at a layer, and is used for nothing else."""
        known = self._follow(expression)
        alone = all(self._network.uses[each] == count for each, count in self._reads.items())
        return known and alone and bool(self._layers)

    def _follow(self, expression: Any) -> bool:
        if constant_value(expression) is not None or self._network.integers(expression) is not None:
            return True
        self._reads[expression] += 1
        if self._reads[expression] > 1:
            return True
        layer = self._network.layer(expression)
        if layer is not None:
            self._layers[expression] = layer
            return True
        operands = self._operands(self._network.value_before(expression))
        return bool(operands) and all(map(self._follow, operands))

    def _operands(self, call: Any) -> list[Any]:
        """The operands to divide so that a call is divided; empty if it does not commute with factors."""
        if operator_name(call) in _OF_ALL:
            return list(call.args)
        if operator_name(call) == "multiply":
            factors = [each for each in call.args if constant_value(each) is None]
            return factors if len(factors) == 1 else []
        return []

    def of(self, expression: Any) -> relax.Expr:
        if expression not in self._written:
            self._written[expression] = self._network.emit(self._write(expression))
        return self._written[expression]

    def _write(self, expression: Any) -> relax.Expr:
        network = self._network
        value = constant_value(expression)
        if value is not None:
            return constant(value / self._divisor, "float32")
        quantised = network.integers(expression)
        if quantised is not None:
            integers, before = quantised
            scale = constant(before.scale / self._divisor, "float32")
            return relax.op.multiply(centred(network.emit, integers, before), scale)
        if expression in self._layers:
            return network.floats(self._layers[expression], self._divisor)
        call = network.value_before(expression)
        constants = operator_name(call) == "multiply"
        operands = [each if constants and constant_value(each) is not None else self.of(each) for each in call.args]
        return relax.Call(call.op, operands, call.attrs)


_OPERATORS = {
    "add": _sum_of,
    "multiply": _product_of,
    "mean": _mean_of,
    "nn.avg_pool2d": _average_of,
    "concat": _concatenation_of,
}


@dataclass
class Summary:
    """How many layers were written in integers, and whether all values are rounded as by onnxruntime, not as floats."""

    layers: int = 0
    exact: bool = True


class IntegerWriter(Rewriter):
    """Writes the expressions before a `quantize` in integers.

    `dtype` is that of the bytes in the network's file: some operators round by it, however bytes are stored.
    """

    def __init__(self, module: tvm.IRModule, cpu: CpuBackend, dtype: str, summary: Summary) -> None:
        super().__init__(module)
        self.cpu, self.dtype, self.summary = cpu, dtype, summary

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        """A `quantize` by the integers of its operand; a layer by its sums in float32."""
        if is_call(original, "relax.quantize"):
            steps = steps_of(original)
            return None if steps is None else self._quantised(original.args[0], steps)
        layer = layer_of(self, original, self._source)
        return None if layer is None else self.floats(layer, np.float32(1))

    def _quantised(self, value: relax.Expr, steps: Steps) -> relax.Expr | None:
        """The integers of a value that is computed from integers."""
        if steps.dtype != self.cpu.activation_type:
            return None
        found = activation_before(self, value)
        steps = replace(steps, half_away=found.half_away)
        call = self.value_before(found.source)
        if not self.is_shared(found.source):
            layer = layer_of(self, call, self._source, found)
            if layer is not None:
                self.summary.layers += 1
                return layer.integers(self.emit, self.visit_expr(layer.data), steps, self.cpu)
        write = _OPERATORS.get(operator_name(call))
        result = write(self, call, found, steps) if write else None
        if result is None:
            result = _lines_of(self, found, steps)
        if result is None:
            result = scaled_layers(self, found, steps)
            self.summary.exact &= result is None
        if result is None and steps.half_away:
            result = to_integers(self.emit, self.visit_expr(found.source), steps, found.bounds(steps))
        return None if result is None else found.moved(self.emit, result)

    def integers(self, expression: relax.Expr) -> tuple[relax.Expr, Steps] | None:
        """The integers that an expression was dequantised from, in the new network, and their steps; else None."""
        found = self._source(expression)
        return None if found is None else (self.visit_expr(found[0]), found[1])

    def operands(self, expressions: Iterable[relax.Expr]) -> list[tuple[relax.Expr, Steps]]:
        """`integers` of several expressions; empty if one was not dequantised."""
        found = [self.integers(each) for each in expressions]
        return [] if None in found else found  # type: ignore[return-value]

    def layer(self, expression: relax.Expr) -> IntegerLayer | None:
        """The layer whose sums an expression computes, which may be written again elsewhere; else None."""
        return layer_of(self, self.value_before(expression), self._source)

    def floats(self, layer: IntegerLayer, divisor: np.float32) -> relax.Expr:
        """A layer's sums over a divisor, in float32."""
        self.summary.layers += 1
        return layer.floats(self.emit, self.visit_expr(layer.data), self.cpu, divisor)

    def _source(self, expression: relax.Expr) -> tuple[relax.Expr, Steps] | None:
        """The integers that an expression was dequantised from, in the network as it was, and their steps."""
        call = self.value_before(expression)
        if not is_call(call, "relax.dequantize") or constant_value(call.args[0]) is not None:
            return None
        steps = steps_of(call)
        return None if steps is None or steps.dtype != self.cpu.activation_type else (call.args[0], steps)

"""Functions of one quantised tensor that are one or two straight lines: products, where all 256 integers agree.

A leaky ReLU between bytes, or a change of steps, is `clip(rint(max(x * p, x * q)) + zero_point)` of the integers less
their zero point. Divisions and the steps of the network between them are rounded otherwise, so such a form is taken
only if it gives the same byte as the network's own operators for every byte that there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, constant_value, is_call
from edgedeploy.compile.integer_layers import Values
from edgedeploy.compile.optraits import Kind, evaluate, is_kind, tensors_of
from edgedeploy.compile.quantisation import SPAN, Steps, centred, rounded, steps_of

# Slopes that many steps of float32 around the quotient of scales are tried: those of the network are rounded twice.
_NEIGHBOURS = 2


@dataclass(frozen=True)
class Lines:
    """A function of integers less their zero point, in steps of the result, before it is rounded.

    Attributes:
        below, above: the slopes for negative and for positive values.
    """

    below: np.float32
    above: np.float32

    def written(
        self, build: relax.BlockBuilder, integers: relax.Expr, before: Steps, after: Steps, bounds: tuple[int, int]
    ) -> relax.Expr:
        """The result's integers, in steps `after` and within bounds, of integers in steps `before`."""
        values = build.emit(centred(build, integers, before))
        result = build.emit(relax.op.multiply(values, constant(self.above, "float32")))
        if self.below != self.above:
            below = build.emit(relax.op.multiply(values, constant(self.below, "float32")))
            either = relax.op.maximum if self.below < self.above else relax.op.minimum
            result = build.emit(either(result, below))
        largest = SPAN * float(max(abs(self.below), abs(self.above)))
        return rounded(build, result, after.to_even(), bounds, largest)


def every_integer(steps: Steps) -> np.ndarray:
    """All integers that a tensor of such steps can hold, in ascending order."""
    low, high = steps.limits
    return np.arange(low, high + 1)


def lines_through(reals: np.ndarray, before: Steps, after: Steps, bounds: tuple[int, int]) -> Lines | None:
    """Lines that give the same integers as a function, in steps `after` and within bounds, of every integer.

    Args:
        reals: the function's float32 values, for `every_integer(before)`.
        before: steps of the operand.
        after: steps of the result.
        bounds: the least and the greatest integer of the result.
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
        near = (slope, *_neighbours(slope))
        slopes.append(next((each for each in near if _agree(values[side] * each, wanted[side], low, high)), None))
    below, above = slopes[0], slopes[-1]
    return None if below is None or above is None else Lines(below, above)


def _neighbours(value: np.float32) -> Iterator[np.float32]:
    for towards in (np.float32(-np.inf), np.float32(np.inf)):
        near = value
        for _ in range(_NEIGHBOURS):
            near = np.nextafter(near, towards)
            yield near


def _agree(reals: np.ndarray, wanted: np.ndarray, low: np.float32, high: np.float32) -> bool:
    return bool((np.rint(np.clip(reals, low, high)) == wanted).all())


def in_other_steps(
    build: relax.BlockBuilder, integers: relax.Expr, before: Steps, after: Steps, bounds: tuple[int, int]
) -> relax.Expr | None:
    """Integers that stand for the same values in other steps, within bounds; None if no product gives them."""
    lines = lines_through(before.dequantised(every_integer(before)), before, after, bounds)
    return None if lines is None else lines.written(build, integers, before, after, bounds)


@dataclass(frozen=True)
class Function:
    """An elementwise function of one quantised tensor.

    Attributes:
        operand: the tensor, dequantised.
        steps: of that.
        reals: its float32 values, for `every_integer(steps)`.
    """

    operand: relax.Expr
    steps: Steps
    reals: np.ndarray


def function_before(values: Values, expression: Any) -> Function | None:
    """The function whose values an expression is; None if it is none of one quantised tensor and constant numbers."""
    call = values.of(expression)
    steps = steps_of(call) if is_call(call, "relax.dequantize") else None
    if steps:
        return Function(expression, steps, steps.dequantised(every_integer(steps)))
    if not is_kind(call, Kind.ELEMENTWISE):
        return None
    found: list[Function] = []
    operands = []
    for tensor in tensors_of(call):
        number = constant_value(values.of(tensor))
        if number is not None:
            if number.size != 1:
                return None
            operands.append(number.reshape(()))
            continue
        inner = function_before(values, tensor)
        if inner is None or (found and not inner.operand.same_as(found[0].operand)):
            return None
        found.append(inner)
        operands.append(inner.reals)
    reals = evaluate(call, operands) if found else None
    return (
        None
        if reals is None or reals.shape != found[0].reals.shape
        else Function(found[0].operand, found[0].steps, reals)
    )

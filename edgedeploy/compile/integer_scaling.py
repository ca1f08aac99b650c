"""Sums of integers that pass through what commutes with a positive factor before they are quantised.

The quotient of a result and its step is then a factor of the layers' own scales: `max(x, a x) / y_scale` is
`max(x', a x')` of `x' = x / y_scale`, for which no division is left. So leaky ReLUs and sums behind a layer cost what
they cost in float. Such a layer has no rounding of its own: its values are those of floats, and no program's bits.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from tvm import relax

from edgedeploy.compile.expressions import constant, constant_value
from edgedeploy.compile.integer_layers import Activation, IntegerLayer
from edgedeploy.compile.integer_operators import Surroundings
from edgedeploy.compile.optraits import operator_name
from edgedeploy.compile.quantisation import Steps, centred, rounded

# Operators all of whose operands are divided.
_OF_ALL = {
    "add": relax.op.add,
    "subtract": relax.op.subtract,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "nn.relu": relax.op.nn.relu,
}


def scaled_layers(network: Surroundings, found: Activation, steps: Steps) -> relax.Expr | None:
    """The integers of what operators of one degree make of layers, and of quantised tensors beside them.

    None where something is no such operator, no layer is among them, or a value is used elsewhere too.
    """
    if steps.away:
        return None
    scaled = _Scaled(network, steps.scale)
    if not scaled.reaches(found.source):
        return None
    return rounded(network.build, scaled.of(found.source), steps, found.bounds(steps))


class _Scaled:
    """Expressions over a divisor."""

    def __init__(self, network: Surroundings, divisor: np.float32) -> None:
        self._network, self._divisor = network, divisor
        self._reads: Counter[Any] = Counter()
        self._layers: dict[Any, IntegerLayer] = {}
        self._written: dict[Any, relax.Expr] = {}

    def reaches(self, expression: Any) -> bool:
        """Whether all of it is known, ends at a layer, and is used for nothing else."""
        known = self._follow(expression)
        alone = all(self._network.values.reads(each) == count for each, count in self._reads.items())
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
        operands = self._operands(self._network.values.of(expression))
        return bool(operands) and all(map(self._follow, operands))

    def _operands(self, call: Any) -> list[Any]:
        """What is divided for a call to be so; empty if it is no such operator."""
        if operator_name(call) in _OF_ALL:
            return list(call.args)
        if operator_name(call) == "multiply":
            factors = [each for each in call.args if constant_value(each) is None]
            return factors if len(factors) == 1 else []
        return []

    def of(self, expression: Any) -> relax.Expr:
        """It over the divisor."""
        if expression not in self._written:
            self._written[expression] = self._network.build.emit(self._write(expression))
        return self._written[expression]

    def _write(self, expression: Any) -> relax.Expr:
        network, build = self._network, self._network.build
        value = constant_value(expression)
        if value is not None:
            return constant(value / self._divisor, "float32")
        quantised = network.integers(expression)
        if quantised is not None:
            integers, before = quantised
            scale = constant(before.scale / self._divisor, "float32")
            return relax.op.multiply(centred(build, integers, before), scale)
        if expression in self._layers:
            return network.floats(self._layers[expression], self._divisor)
        call = network.values.of(expression)
        if operator_name(call) == "multiply":
            return relax.op.multiply(
                *(each if constant_value(each) is not None else self.of(each) for each in call.args)
            )
        return _OF_ALL[operator_name(call)](*map(self.of, call.args))

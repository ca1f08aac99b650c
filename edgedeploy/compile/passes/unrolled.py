"""Writes LSTMs that an exporter unrolled, step by step, as loops.

PyTorch's decompositions, and litert-torch with them, write an LSTM over a hundred steps as a hundred times its
operators: twenty functions for each step, and a file whose size grows with the steps. The search begins at the end of a
step: `h = sigmoid(o) * tanh(c)`, `c = sigmoid(f) * c' + sigmoid(i) * tanh(g)`, the four gates being parts of
`x[t] + h' W + b`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir.expressions import Rewriter, constant, constant_value, is_call, shape_of
from edgedeploy.compile.ir.optraits import operator_name
from edgedeploy.compile.operators.recurrence import Activation, Recurrence
from edgedeploy.compile.operators.recurrent_loop import called

_LEAST_STEPS = 3  # fewer steps are not shorter as loops

_ACTIVATIONS = (tuple(Activation(name=name) for name in ("sigmoid", "tanh", "tanh")),)


@dataclass(frozen=True)
class _Step:
    """One step of an LSTM, whose results are `state` and `cell`."""

    state: relax.Var
    cell: relax.Var
    # The state and the cell of the step before; None in the first step, which begins with zeros.
    before: tuple[relax.Var, relax.Var] | None
    products: relax.Var  # of the inputs of all steps, steps x batch x gates; `index` is the step's
    index: int
    weights: np.ndarray | None  # of the state, hidden x gates; None in the first step
    bias: np.ndarray  # added to all gates
    # Where input, output, forget and cell gate begin; the forget gate is None in the first step.
    starts: tuple[int, int, int | None, int]

    def follows(self, other: _Step) -> bool:
        return (
            self.products.same_as(other.products)
            and self.index == other.index + 1
            and (other.weights is None or (self.weights is not None and np.array_equal(self.weights, other.weights)))
            and np.array_equal(self.bias, other.bias)
            and all(mine == its for mine, its in zip(self.starts, other.starts, strict=True) if its is not None)
        )


class _Roller(Rewriter):
    """Writes LSTMs that are unrolled as one function each. Expects constants in the place of their variables."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._layers = list(self._found())
        self._rolled: dict[int, tuple[relax.Var, relax.Var]] = {}
        # By the calls that compute states and last cells: the layer's number, and the step of a state.
        numbered = list(enumerate(self._layers))
        self._states = {self.before[step.state]: (number, step.index) for number, steps in numbered for step in steps}
        self._last_cells = {self.before[steps[-1].cell]: number for number, steps in numbered}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if original in self._last_cells:
            return self._roll(self._last_cells[original])[1]
        if original in self._states:
            number, index = self._states[original]
            states, shape = self._roll(number)[0], shape_of(original)
            return relax.op.reshape(self.emit.strided_slice(states, [0], [index], [index + 1]), shape)
        if is_call(original, "relax.concat") and int(original.attrs.axis) == 0:
            fields = list(original.args[0].fields) if isinstance(original.args[0], relax.Tuple) else []
            found = [self._states.get(self.before.get(each)) for each in fields]
            if found and found[0]:
                number, _ = found[0]
                if found == [(number, index) for index in range(len(self._layers[number]))]:
                    return relax.op.reshape(self._roll(number)[0], shape_of(original))
        return None

    def _roll(self, number: int) -> tuple[relax.Var, relax.Var]:
        """The states of all steps of a layer, and its last cell; emitted at their first use."""
        if number not in self._rolled:
            first, last = self._layers[number][0], self._layers[number][-1]
            count, batch, _ = shape_of(first.products)
            assert last.weights is not None
            hidden = len(last.weights)
            layer = Recurrence(
                cell="lstm", steps=count, batch=batch, hidden=hidden, backwards=(False,), activations=_ACTIVATIONS
            )
            order = np.concatenate([np.arange(start, start + hidden) for start in last.starts if start is not None])
            products = self._products(first.products, order, last.bias)
            operands = {
                "products": self.emit.reshape(products, [count, batch, 1, layer.gates, hidden]),
                "weights": constant(last.weights[:, order].reshape(1, hidden, layer.gates, hidden)),
                **dict.fromkeys(("hidden", "cell"), constant(np.zeros([1, batch, hidden]), "float32")),
            }
            states, _, cell = map(self.emit, called(self.builder_, layer, operands))
            self._rolled[number] = states, self.emit.reshape(cell, shape_of(first.state))
        return self._rolled[number]

    def _products(self, value: relax.Expr, order: np.ndarray, bias: np.ndarray) -> relax.Var:
        """Products of inputs and a bias, with gates in another order: the order of the weights is changed."""
        reshape, total, product = (self._of(value, name) for name in ("reshape", "add", "matmul"))
        if reshape is not None and shape_of(reshape.args[0])[-1] == len(order):
            return self.emit.reshape(self._products(reshape.args[0], order, bias), shape_of(reshape))
        offset = constant_value(total.args[1]) if total is not None else None
        if total is not None and offset is not None and offset.size == len(order) == offset.shape[-1]:
            return self._products(total.args[0], order, bias + offset.reshape(-1))
        weights = constant_value(product.args[1]) if product is not None else None
        if product is not None and weights is not None and weights.ndim == 2:
            columns = constant(weights[:, order])
            ordered = self.emit.matmul(self.visit_expr(product.args[0]), columns, out_dtype=str(product.ty.dtype))
        else:
            ordered = self.emit.take(self.visit_expr(value), constant(order, "int64"), axis=-1)
        return self.emit.add(ordered, bias[order])

    # The search.

    def _found(self) -> Iterator[list[_Step]]:
        """The steps of each unrolled LSTM, all of them."""
        steps = [step for step in map(self._step, self.before) if step is not None]
        after = {step.before: step for step in steps if step.before is not None}
        for step in steps:
            chain = [step]
            while step.before is None and (chain[-1].state, chain[-1].cell) in after:
                following = after[chain[-1].state, chain[-1].cell]
                if not following.follows(chain[-1]):
                    break
                chain.append(following)
            whole = chain[0].index == 0 and len(chain) == shape_of(step.products)[0]
            if whole and len(chain) >= _LEAST_STEPS and len(set(chain[-1].starts)) == len(chain[-1].starts):
                yield chain

    def _of(self, expression: Any, name: str) -> relax.Call | None:
        """The value of a variable, if it is an operator of a name."""
        call = self.before.get(expression) if isinstance(expression, relax.Var) else None
        return call if operator_name(call) == name else None

    def _step(self, variable: relax.Var) -> _Step | None:
        found = self._gated(variable)
        if found is None:
            return None
        output, cell = found
        total = self._of(cell, "add")
        addends = [(each, self._gated(each)) for each in (total.args if total is not None else [cell])]
        fresh = [gated for _, gated in addends if gated is not None]
        kept = [self._gated(each, tanh=False) or (None, None) for each, gated in addends if gated is None]
        if len(fresh) != 1:
            return None
        [(given, candidate)], [(forget, before)] = fresh, kept or [(None, None)]
        gates = [self._part(each, shape_of(variable)) for each in (given, output, forget, candidate)]
        sources = {each[0] for each in gates if each}
        if len(sources) != 1 or [each is None for each in gates] != [False, False, total is None, False]:
            return None
        return self._gathered(variable, cell, sources.pop(), before, [each and each[1] for each in gates])

    def _gated(self, expression: Any, *, tanh: bool = True) -> tuple[Any, Any] | None:
        """The operands a and b of `sigmoid(a) * tanh(b)`, or of `sigmoid(a) * b`."""
        product = self._of(expression, "multiply")
        for gate, value in permutations(product.args) if product is not None else ():
            sigmoid, bounded = self._of(gate, "sigmoid"), self._of(value, "tanh")
            if sigmoid is not None and (bounded is not None or not tanh):
                return sigmoid.args[0], bounded.args[0] if tanh and bounded is not None else value
        return None

    def _part(self, expression: Any, shape: list[int]) -> tuple[relax.Var, int] | None:
        """The source of a gate of a shape, a slice, and where it begins along the last axis."""
        sliced = self._slice(expression)
        if sliced is None or shape_of(expression) != shape or shape_of(sliced[0])[:-1] != shape[:-1]:
            return None
        source, (*others, start) = sliced
        return None if any(others) else (source, start)

    def _slice(self, expression: Any) -> tuple[relax.Var, list[int]] | None:
        """The source of a slice without strides, and where it begins along each axis."""
        call = self._of(expression, "strided_slice")
        if call is None or not isinstance(call.args[0], relax.Var):
            return None
        axes, begins, *_ = ([int(each.value) for each in field.fields] for field in call.args[1:3])
        strides = [int(each.value) for each in call.args[4].fields] if len(call.args) > 4 else []
        starts = [0] * len(shape_of(call.args[0]))
        for axis, begin in zip(axes, begins, strict=True):
            starts[axis] = begin
        return (call.args[0], starts) if all(each == 1 for each in strides) else None

    def _gathered(
        self, state: relax.Var, cell: relax.Var, gates: relax.Var, cell_before: Any, starts: list[int | None]
    ) -> _Step | None:
        """The step whose gates are a sum of products of the inputs, of products of the state, and of constants."""
        width, hidden = shape_of(gates)[-1], shape_of(state)[-1]
        if width != 4 * hidden or str(state.ty.dtype) != "float32":
            return None
        products = before = weights = None
        bias, index = np.zeros(width, np.float32), 0
        for term in self._terms(gates):
            value, product, sliced = constant_value(term), self._of(term, "matmul"), self._slice(term)
            if value is not None and value.size == width == value.shape[-1]:
                bias = bias + value.reshape(-1)
            elif product is not None and before is None:
                weights, before = constant_value(product.args[1]), product.args[0]
                while (reshape := self._of(before, "reshape")) is not None:
                    before = reshape.args[0]
            elif sliced is not None and products is None and not any(sliced[1][1:]):
                products, index = sliced[0], sliced[1][0]
                if shape_of(term) != [1, *shape_of(products)[1:]]:
                    return None
            else:
                return None
        if products is None or (before is None) != (cell_before is None):
            return None
        shape = shape_of(products)
        fits = len(shape) == 3 and shape[-1] == width and math.prod(shape_of(state)) == shape[1] * hidden
        at_gates = {each for each in starts if each is not None} <= {gate * hidden for gate in range(4)}
        is_known = before is None or (weights is not None and weights.shape == (hidden, width))
        if not (fits and at_gates and is_known):
            return None
        earlier = None if before is None else (before, cell_before)
        return _Step(state, cell, earlier, products, index, weights, bias, tuple(starts))  # type: ignore[arg-type]

    def _terms(self, expression: Any) -> Iterator[Any]:
        total = self._of(expression, "add")
        if total is None:
            yield expression
            return
        for each in total.args:
            yield from self._terms(each)


roll_loops = _Roller.canonicalised

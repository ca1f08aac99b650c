"""Recurrent layers, by the formulas of ONNX's Operators.md (LSTM, GRU, RNN)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tvm import tirx

from edgedeploy.base.documents import Record
from edgedeploy.compile.operators.builder import Parameter

RECURRENCE_ATTRIBUTE = "edgedeploy.recurrence"  # the attribute of a function that holds a recurrent layer, as JSON

Cell = Literal["lstm", "gru", "rnn"]

# Gates of each cell, in the order of ONNX: input, output, forget, cell; update, reset, hidden; hidden.
GATES: dict[Cell, int] = {"lstm": 4, "gru": 3, "rnn": 1}


class Activation(Record):
    """A function of one value, by its name in ONNX's recurrent operators, in lower case."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def of(self, x: Any) -> Any:
        """The function of a scalar or vector expression of TIR."""
        return ACTIVATIONS[self.name](x, tirx.const(self.alpha, x.ty.dtype), tirx.const(self.beta, x.ty.dtype))


def _sigmoid(x: Any) -> Any:
    half = tirx.const(0.5, x.ty.dtype)
    return tirx.tanh(x * half) * half + half  # one quotient of polynomials; exp would need another


def _number(value: int, x: Any) -> Any:
    return tirx.const(value, x.ty.dtype)


# From x, alpha and beta.
ACTIVATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda x, a, b: tirx.max(x, _number(0, x)),
    "tanh": lambda x, a, b: tirx.tanh(x),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: tirx.Select(x >= _number(0, x), x, a * x),
    "thresholdedrelu": lambda x, a, b: tirx.Select(x > a, x, _number(0, x)),
    "scaledtanh": lambda x, a, b: a * tirx.tanh(b * x),
    "hardsigmoid": lambda x, a, b: tirx.max(tirx.min(a * x + b, _number(1, x)), _number(0, x)),
    "elu": lambda x, a, b: tirx.Select(x >= _number(0, x), x, a * (tirx.exp(x) - _number(1, x))),
    "softsign": lambda x, a, b: x / (_number(1, x) + tirx.abs(x)),
    "softplus": lambda x, a, b: tirx.max(x, _number(0, x)) + tirx.log(_number(1, x) + tirx.exp(-tirx.abs(x))),
}


class Recurrence(Record):
    """One recurrent layer, in one direction or in both."""

    cell: Cell
    steps: int  # the length of sequences
    batch: int
    hidden: int  # the size of a state
    backwards: tuple[bool, ...]  # for each direction, whether it begins at the end
    activations: tuple[tuple[Activation, ...], ...]  # for each direction, in ONNX's order: f, g, h of an LSTM
    clip: float | None = None  # inputs of activations are clipped to plus or minus this
    cell_clip: float | None = None  # and an LSTM's cell after each step to this
    coupled: bool = False  # whether an LSTM's forget gate is one minus its input gate
    reset_after: bool = False  # whether a GRU's reset gate acts on the product with the state, not on the state
    peepholes: bool = False  # whether an LSTM's gates read its cell
    lengths: bool = False  # whether an input states the lengths of sequences
    dtype: str = "float32"

    @property
    def directions(self) -> int:
        """One or two."""
        return len(self.backwards)

    @property
    def gates(self) -> int:
        """Products with the state in a step."""
        return GATES[self.cell]

    @property
    def phases(self) -> tuple[tuple[int, ...], ...]:
        """Gates that are computed together; a later phase needs the results of an earlier one."""
        whole = tuple(range(self.gates))
        return (whole[:2], whole[2:]) if self.cell == "gru" and not self.reset_after else (whole,)

    @property
    def inputs(self) -> list[Parameter]:
        """The inputs of its function: `products` of all steps' inputs with weights, biases added, and the state's.

        `bias` is added to the product that a GRU's reset gate acts on.
        """
        state = (self.directions, self.batch, self.hidden)
        return [
            Parameter("products", (self.steps, self.batch, self.directions, self.gates, self.hidden), self.dtype),
            Parameter("weights", (self.directions, self.hidden, self.gates, self.hidden), self.dtype),
            *([Parameter("bias", (self.directions, self.hidden), self.dtype)] if self.reset_after else []),
            Parameter("hidden", state, self.dtype),
            *([Parameter("cell", state, self.dtype)] if self.cell == "lstm" else []),
            *([Parameter("peepholes", (self.directions, 3, self.hidden), self.dtype)] if self.peepholes else []),
            *([Parameter("lengths", (self.batch,), "int32")] if self.lengths else []),
        ]

    @property
    def outputs(self) -> list[Parameter]:
        """The outputs of its function: the states of all steps, and the last ones."""
        state = (self.directions, self.batch, self.hidden)
        return [
            Parameter("states", (self.steps, *state), self.dtype),
            Parameter("last_hidden", state, self.dtype),
            *([Parameter("last_cell", state, self.dtype)] if self.cell == "lstm" else []),
        ]

    @property
    def operations(self) -> int:
        """Arithmetic operations of the products with the state, a multiply-add being two."""
        return 2 * self.steps * self.batch * self.directions * self.gates * self.hidden**2

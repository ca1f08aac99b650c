"""PyTorch's LSTM, GRU and RNN, which TVM's own importer reads with wrong values, or one layer of them only.

What they compute: the formulas of `torch.nn.LSTM`, `GRU` and `RNN`; arguments as in ATen's native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgedeploy.compile.expressions import shape_of
from edgedeploy.compile.operators.recurrence import Activation, Cell, Recurrence
from edgedeploy.errors import ModelError
from edgedeploy.frontends.onnx_operators.translation import Builder, dtype_of
from edgedeploy.frontends.recurrent import recurrent

# The cell of each operator, the places of ONNX's gates among PyTorch's, and the activations.
OPERATORS: dict[str, tuple[Cell, list[int], tuple[str, ...]]] = {
    "lstm.input": ("lstm", [0, 3, 1, 2], ("sigmoid", "tanh", "tanh")),
    "gru.input": ("gru", [1, 0, 2], ("sigmoid", "tanh")),
    "rnn_tanh.input": ("rnn", [0], ("tanh",)),
    "rnn_relu.input": ("rnn", [0], ("relu",)),
}


def check(nodes: Iterable[Any]) -> None:
    """Refuse nodes of an exported program that are recurrent layers without a translation."""
    for node in nodes:
        if getattr(node.target, "__name__", "") not in OPERATORS:
            continue
        _, _, weights, biased, count, dropout, training, both, _ = node.args
        if training and dropout:
            raise ModelError("a recurrent layer drops values at random", why="the network was exported for training")
        if len(weights) != count * (1 + both) * (4 if biased else 2):
            raise ModelError("a recurrent layer projects its state", why="no translation of proj_size is known")


def translate(node: Any, importer: Any, build: Builder) -> Any:
    """All layers of an operator: its output, and the last states of all layers."""
    cell, order, names = OPERATORS[node.target.__name__]
    data, states, weights, biased, count, _, _, both, by_batch = importer.retrieve_args(node)
    states = list(states) if cell == "lstm" else [states]
    directions, parts = 1 + both, 4 if biased else 2
    if by_batch:
        data = build.permute(data, [1, 0, 2])
    activations = tuple(Activation(name=name) for name in names)
    last: list[list[Any]] = [[] for _ in states]
    for number in range(count):
        steps, batch, _ = shape_of(data)
        layer = Recurrence(
            cell=cell,
            steps=steps,
            batch=batch,
            hidden=shape_of(states[0])[-1],
            backwards=(False, True)[:directions],
            activations=(activations,) * directions,
            reset_after=cell == "gru",
            dtype=dtype_of(data),
        )
        first = number * directions
        taken = [weights[place * parts : (place + 1) * parts] for place in range(first, first + directions)]
        stacked = [_stacked(build, layer, order, [each[part] for each in taken]) for part in range(parts)]
        begun = tuple(build.strided_slice(state, axes=[0], begin=[first], end=[first + directions]) for state in states)
        biases = (stacked[2], stacked[3]) if biased else None
        every, *ended = recurrent(importer.block_builder, layer, data, (stacked[0], stacked[1]), biases, begun)
        data = build.reshape(build.permute(every, [0, 2, 1, 3]), [steps, batch, directions * layer.hidden])
        for found, state in zip(last, ended, strict=True):
            found.append(state)
    output = build.permute(data, [1, 0, 2]) if by_batch else data
    joined = [each[0] if count == 1 else build.concat(each, axis=0) for each in last]
    return output, *joined


def _stacked(build: Builder, layer: Recurrence, order: Sequence[int], parts: Sequence[Any]) -> Any:
    """Weights or biases of all directions, with gates in ONNX's order."""
    rows = [gate * layer.hidden for gate in order]
    gates = [
        build.strided_slice(part, axes=[0], begin=[row], end=[row + layer.hidden]) for part in parts for row in rows
    ]
    joined = build.concat(gates, axis=0) if len(gates) > 1 else gates[0]
    return build.reshape(joined, [len(parts), layer.gates * layer.hidden, *shape_of(parts[0])[1:]])

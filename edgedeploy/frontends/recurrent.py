"""LSTM, GRU and RNN in Relax, for every frontend: products of all steps at once, then one function with the loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgedeploy.compile.ir.expressions import constant, shape_of
from edgedeploy.compile.operators.recurrence import Recurrence
from edgedeploy.compile.operators.recurrent_loop import called
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder


def recurrent(
    build: Builder,
    layer: Recurrence,
    data: Any,  # (steps, batch, features)
    # Of the data, (directions, gates * hidden, features), and of the state, (directions, gates * hidden, hidden), with
    # gates in ONNX's order.
    weights: tuple[Any, Any],
    biases: tuple[Any, Any] | None = None,  # of both products, (directions, gates * hidden); None for zeros
    # Before the first step, (directions, batch, hidden); those left out, or None, are zeros.
    states: tuple[Any, ...] = (),
    peepholes: Any = None,  # (directions, 3, hidden), for the gates input, output, forget, if `layer.peepholes`
    lengths: Any = None,  # (batch), int32, if `layer.lengths`
) -> list[Any]:
    """The states of all steps of a layer of float32, (steps, directions, batch, hidden), and each of the last step."""
    if layer.dtype != "float32":
        raise ModelError(f"recurrent layers of {layer.dtype} are not supported", why="only those of float32 are")
    directions, gates, hidden = layer.directions, layer.gates, layer.hidden
    given = {"products": _products(build, layer, data, weights[0], biases), "peepholes": peepholes}
    given["weights"] = build.reshape(build.permute(weights[1], [0, 2, 1]), [directions, hidden, gates, hidden])
    given["lengths"] = lengths
    for name, state in zip(("hidden", "cell"), (*states, None, None), strict=False):
        shape = [directions, layer.batch, hidden]
        given[name] = constant(np.zeros(shape), layer.dtype) if state is None else state
    if layer.reset_after:
        given["bias"] = (
            constant(np.zeros([directions, hidden]), layer.dtype)
            if biases is None
            else build.strided_slice(biases[1], [1], [2 * hidden], [3 * hidden])
        )
    for each in layer.inputs:  # the function would read beyond others
        found = tuple(shape_of(given[each.name])), str(given[each.name].ty.dtype)
        if found != each[1:]:
            raise ModelError(f"its {each.name} {found} do not fit", why=f"{each[1:]} are needed")
    return called(build.block, layer, given)


def _products(build: Builder, layer: Recurrence, data: Any, weights: Any, biases: tuple[Any, Any] | None) -> Any:
    """The inputs of all steps times their weights, biases added: one product of matrices."""
    directions, gates, hidden = layer.directions, layer.gates, layer.hidden
    features, columns = shape_of(data)[-1], directions * gates * hidden
    rows = build.reshape(data, [layer.steps * layer.batch, features])
    products = build.matmul(rows, build.permute(build.reshape(weights, [columns, features]), [1, 0]))
    if biases is not None:
        other = biases[1]
        if layer.reset_after:  # its last third is for the gate that is reset
            other = build.multiply(other, np.repeat(np.array([1, 1, 0]), hidden))
        products = build.add(products, build.reshape(build.add(biases[0], other), [columns]))
    return build.reshape(products, [layer.steps, layer.batch, directions, gates, hidden])

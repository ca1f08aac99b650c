"""LSTM, GRU and RNN by Operators.md, and by onnxruntime where it leaves something open.

`frontends/onnx` removes `layout` 1, except in branches and functions, where onnxruntime refuses it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import relax

from edgedeploy.compile.ir.expressions import constant, constant_value, shape_of
from edgedeploy.compile.operators.recurrence import ACTIVATIONS, GATES, Activation, Cell, Recurrence
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, Translation, dtype_of, optional, recurrent, text

_BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}

_DEFAULTS: dict[Cell, tuple[str, ...]] = {
    "lstm": ("Sigmoid", "Tanh", "Tanh"),
    "gru": ("Sigmoid", "Tanh"),
    "rnn": ("Tanh",),
}

# Default alphas and betas of activations that have some: those of onnxruntime 1.31.
_ALPHAS = {"affine": 0.0, "leakyrelu": 0.01, "thresholdedrelu": 0.0, "scaledtanh": 0.0, "hardsigmoid": 0.2, "elu": 1.0}
_BETAS = {"affine": 0.0, "scaledtanh": 0.0, "hardsigmoid": 0.5}


def _translation(cell: Cell, build: Builder, inputs: list[Any], attr: dict[str, Any]) -> Any:
    if attr.get("layout"):
        raise ModelError("its tensors begin with the batch inside of a branch or function")
    data, weights, recurrent_weights = inputs[:3]
    states = [optional(inputs, index) for index in ((5, 6) if cell == "lstm" else (5,))]
    steps, batch, _ = shape_of(data)
    lengths = _lengths(optional(inputs, 4), steps)
    peepholes = optional(inputs, 7) if cell == "lstm" else None
    layer = Recurrence(
        cell=cell,
        steps=steps,
        batch=batch,
        hidden=shape_of(recurrent_weights)[-1],
        backwards=_backwards(attr),
        activations=_activations(cell, attr),
        clip=float(attr["clip"]) if attr.get("clip") else None,
        coupled=bool(attr.get("input_forget", 0)),
        reset_after=bool(attr.get("linear_before_reset", 0)),
        peepholes=peepholes is not None,
        lengths=lengths is not None,
        dtype=dtype_of(data),
    )
    _check(layer, attr, weights, recurrent_weights)
    if peepholes is not None:
        peepholes = build.reshape(peepholes, [layer.directions, 3, layer.hidden])
    biases, both = _biases(build, layer, optional(inputs, 3)), (weights, recurrent_weights)
    return relax.Tuple(recurrent(build, layer, data, both, biases, tuple(states), peepholes, lengths))


def _backwards(attr: dict[str, Any]) -> tuple[bool, ...]:
    direction = text(attr, "direction", "forward")
    if direction not in _BACKWARDS:
        raise ModelError(f"its direction is {direction!r}", why=f"ONNX knows {', '.join(_BACKWARDS)}")
    return _BACKWARDS[direction]


def _activations(cell: Cell, attr: dict[str, Any]) -> tuple[tuple[Activation, ...], ...]:
    """The activations of each direction; alphas and betas are listed for those that have some, one after the other."""
    count, directions = len(_DEFAULTS[cell]), len(_backwards(attr))
    given = [name.decode() if isinstance(name, bytes) else str(name) for name in attr.get("activations", [])]
    names = [name.lower() for name in given or _DEFAULTS[cell] * directions]
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown or len(names) != count * directions:
        raise ModelError(f"its activations are {', '.join(names)}", why=f"{count} are needed for each direction")
    alphas, betas = iter(attr.get("activation_alpha", [])), iter(attr.get("activation_beta", []))
    found = [
        Activation(
            name=name,
            alpha=float(next(alphas, _ALPHAS[name])) if name in _ALPHAS else 0.0,
            beta=float(next(betas, _BETAS[name])) if name in _BETAS else 0.0,
        )
        for name in names
    ]
    return tuple(tuple(found[first : first + count]) for first in range(0, len(found), count))


def _check(layer: Recurrence, attr: dict[str, Any], weights: Any, recurrent_weights: Any) -> None:
    rows = [layer.directions, GATES[layer.cell] * layer.hidden]
    stated = int(attr.get("hidden_size", layer.hidden))
    if shape_of(weights)[:2] != rows or shape_of(recurrent_weights)[:2] != rows or stated != layer.hidden:
        raise ModelError(
            f"its weights of {shape_of(weights)} and {shape_of(recurrent_weights)} do not fit",
            why=f"{layer.cell} of {stated} hidden values in {layer.directions} directions",
        )


def _biases(build: Builder, layer: Recurrence, given: Any) -> tuple[Any, Any] | None:
    if given is None:
        return None
    size = layer.gates * layer.hidden
    first, second = (build.strided_slice(given, axes=[1], begin=[begin], end=[begin + size]) for begin in (0, size))
    return first, second


def _lengths(given: Any, steps: int) -> Any:
    """The length of each sequence; None if all have all steps."""
    if given is None:
        return None
    values = constant_value(given)
    if values is None:
        raise ModelError(
            "the lengths of its sequences depend on the network's input",
            why="only constants are known to work",
            hints=["export the network for sequences of one length"],
        )
    if values.min(initial=0) < 0 or values.max(initial=0) > steps:
        raise ModelError(f"its sequences claim {values.ravel().tolist()} steps", why=f"there are {steps}")
    return None if (values == steps).all() else constant(values, "int32")


TRANSLATIONS: dict[str, Translation] = {cell.upper(): partial(_translation, cell) for cell in _DEFAULTS}

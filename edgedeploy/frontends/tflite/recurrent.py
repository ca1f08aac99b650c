"""TensorFlow Lite's LSTMs over sequences; TVM's own importer reads only those without an input gate.

What they compute, and which input is which: `tensorflow/lite/kernels/unidirectional_sequence_lstm.cc`,
`bidirectional_sequence_lstm.cc` and `lstm_eval.cc`. States are zeros at the start of each inference: a file's variables
are not carried over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tflite
from tvm import relax

from edgedeploy.compile.ir.expressions import shape_of
from edgedeploy.compile.operators.recurrence import Activation, Recurrence
from edgedeploy.errors import ModelError
from edgedeploy.frontends.translation import Builder, dtype_of, recurrent

# Places of a direction's tensors among its own: ONNX's gates are input, output, forget, cell.
_DATA, _STATE, _BIASES = (0, 3, 1, 2), (4, 7, 5, 6), (11, 14, 12, 13)
_PEEPHOLES = (8, 10, 9)  # input, output, forget
_PROJECTION = (15, 16)
_OF_ONE_DIRECTION = 17
# Places behind the data, of an operator of one direction and of one of two.
_NORMALISATION, _AUXILIARY = slice(19, 23), slice(38, 47)

_ACTIVATIONS = {
    "TANH": Activation(name="tanh"),
    "RELU": Activation(name="relu"),
    "NONE": Activation(name="affine", alpha=1.0),
}


def _lstm(options_name: str, directions: int, refused: slice, what: str, converter: Any, op: Any) -> Any:
    """An LSTM in some directions; `refused` are places of inputs that it must not have, which would be for `what`."""
    options = converter._get_builtin_options(op, getattr(tflite, options_name))
    data, *tensors = converter.get_input_tensors(op)
    if any(_is_there(each) for each in tensors[refused]):
        raise ModelError(f"an LSTM {what}", why="no translation of that is known")
    firsts = range(0, directions * _OF_ONE_DIRECTION, _OF_ONE_DIRECTION)
    every = _computed(converter, data, [tensors[first : first + _OF_ONE_DIRECTION] for first in firsts], options)
    if directions == 1 or options.MergeOutputs():
        return _in_order(converter, every, options)
    build = Builder(converter)
    parts = [build.strided_slice(every, axes=[1], begin=[place], end=[place + 1]) for place in (0, 1)]
    return relax.Tuple([_in_order(converter, part, options) for part in parts])


def _in_order(converter: Any, every: Any, options: Any) -> Any:
    """States (steps, directions, batch, hidden) in the file's order, directions side by side."""
    build = Builder(converter)
    steps, directions, batch, hidden = shape_of(every)
    if options.TimeMajor():
        return build.reshape(build.permute(every, [0, 2, 1, 3]), [steps, batch, directions * hidden])
    return build.reshape(build.permute(every, [2, 0, 1, 3]), [batch, steps, directions * hidden])


def _is_there(tensor: Any) -> bool:
    return bool(tensor.tensor_idx >= 0)


def _computed(converter: Any, given: Any, directions: Sequence[Sequence[Any]], options: Any) -> Any:
    """The states of all steps, (steps, directions, batch, hidden)."""
    build, data = Builder(converter), converter.get_tensor_expr(given)
    if not options.TimeMajor():
        data = build.permute(data, [1, 0, 2])
    coupled, peepholes = _agreed(directions, _DATA[0]) is False, _agreed(directions, _PEEPHOLES[2])
    if any(_is_there(own[place]) for own in directions for place in _PROJECTION):
        raise ModelError("an LSTM projects its state", why="no translation of that is known")
    name = converter.activation_fn_type[options.FusedActivationFunction()]
    if (activation := _ACTIVATIONS.get(name)) is None:
        raise ModelError(f"the activation of an LSTM is {name}", why="no translation of that is known")
    steps, batch, _ = shape_of(data)
    hidden = int(directions[0][_STATE[1]].tensor.Shape(0))
    gate = Activation(name="sigmoid")
    layer = Recurrence(
        cell="lstm",
        steps=steps,
        batch=batch,
        hidden=hidden,
        backwards=(False, True)[: len(directions)],
        activations=((gate, activation, activation),) * len(directions),
        cell_clip=options.CellClip() or None,
        coupled=coupled,
        peepholes=peepholes,
        dtype=dtype_of(data),
    )

    def stacked(places: Sequence[int], rows: int) -> Any:
        found = [_gates(converter, own, places, negated=coupled) for own in directions]
        shape = [len(directions), rows * hidden, *found[0].shape[1:]]
        return relax.const(np.ascontiguousarray(np.stack(found).reshape(shape)), layer.dtype)

    every, *_ = recurrent(
        build,
        layer,
        data,
        (stacked(_DATA, 4), stacked(_STATE, 4)),
        (stacked(_BIASES, 4), relax.const(np.zeros([len(directions), 4 * hidden]), layer.dtype)),
        peepholes=_peepholes(converter, directions, layer) if peepholes else None,
    )
    return every


def _agreed(directions: Sequence[Sequence[Any]], place: int) -> bool:
    """Whether the directions have a tensor."""
    found = {_is_there(own[place]) for own in directions}
    if len(found) > 1:
        raise ModelError("the directions of an LSTM have different gates", why="no translation of that is known")
    return found.pop()


def _gates(converter: Any, own: Sequence[Any], places: Sequence[int], *, negated: bool) -> np.ndarray:
    """Weights or biases of the gates input, output, forget, cell, one below the other.

    A missing input gate is one minus the forget gate: the sigmoid of the negated sum.
    """
    values = [_values(converter, own[place]) if _is_there(own[place]) else None for place in places]
    if values[0] is None and negated and values[2] is not None:
        values[0] = -values[2]
    if any(value is None for value in values):
        raise ModelError("an LSTM is malformed", why="weights or biases are missing")
    return np.concatenate([value for value in values if value is not None])


def _peepholes(converter: Any, directions: Sequence[Sequence[Any]], layer: Recurrence) -> Any:
    """(directions, 3, hidden); a missing input gate has the forget gate's, negated."""
    found = []
    for own in directions:
        output, forget = (_values(converter, own[place]) for place in _PEEPHOLES[1:])
        into = _values(converter, own[_PEEPHOLES[0]]) if _is_there(own[_PEEPHOLES[0]]) else -forget
        found.append(np.stack([into, output, forget]))
    return relax.const(np.stack(found), layer.dtype)


def _values(converter: Any, tensor: Any) -> np.ndarray:
    if converter.has_expr(tensor.tensor_idx) or not tensor.buffer.DataLength():
        raise ModelError("weights of an LSTM depend on the network's input", why="only constants are known to work")
    values = np.asarray(converter.get_tensor_value(tensor))
    if values.dtype.kind != "f":
        raise ModelError("weights of an LSTM are quantised", why="only floats are known to work")
    return values


TRANSLATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": partial(
        _lstm, "BidirectionalSequenceLSTMOptions", 2, _AUXILIARY, "has an auxiliary input"
    ),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": partial(
        _lstm, "UnidirectionalSequenceLSTMOptions", 1, _NORMALISATION, "normalises its gates"
    ),
}

"""TensorFlow Lite files of one LSTM over a sequence, with seeded weights."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import tflite

from support import tflite_networks as files

STEPS, FEATURES, HIDDEN = 6, 5, 12

_GATES = 4


def lstm(
    *,
    batch: int = 2,
    both: bool = False,
    merged: bool = True,
    coupled: bool = False,
    peepholes: bool = False,
    time_major: bool = False,
    cell_clip: float = 0.0,
    projected: bool = False,
) -> bytes:
    """An LSTM of float32 from a sequence to all states.

    Args:
        batch: how many sequences.
        both: whether it goes in both directions.
        merged: whether it has one output for both.
        coupled: whether it has no input gate.
        peepholes: whether its gates read the cell.
        time_major: whether its tensors begin with time, not with the batch.
        cell_clip: what its cell is cut to, or 0.
        projected: whether it has weights for a projection.
    """
    random, builder = np.random.default_rng(0), flatbuffers.Builder(1 << 14)
    buffers = [files._buffer(builder, b"")]
    tensors: list[int] = []

    def tensor(name: str, shape: list[int], values: np.ndarray | None = None, *, variable: bool = False) -> int:
        if values is not None:
            buffers.append(files._buffer(builder, values.astype(np.float32).tobytes()))
        title, sizes = builder.CreateString(name), files._integers(builder, shape)
        tflite.TensorStart(builder)
        tflite.TensorAddName(builder, title)
        tflite.TensorAddShape(builder, sizes)
        tflite.TensorAddType(builder, tflite.TensorType.FLOAT32)
        tflite.TensorAddBuffer(builder, 0 if values is None else len(buffers) - 1)
        tflite.TensorAddIsVariable(builder, variable)
        tensors.append(tflite.TensorEnd(builder))
        return len(tensors) - 1

    def weight(name: str, *shape: int, there: bool = True) -> int:
        return tensor(name, list(shape), random.standard_normal(shape) * 0.4) if there else -1

    def direction(name: str) -> list[int]:
        gates = [f"{name}{gate}" for gate in ("input", "forget", "cell", "output")]
        kept = [not coupled or number > 0 for number in range(_GATES)]
        data = [weight(f"{gate}/w", HIDDEN, FEATURES, there=each) for gate, each in zip(gates, kept, strict=True)]
        state = [weight(f"{gate}/r", HIDDEN, HIDDEN, there=each) for gate, each in zip(gates, kept, strict=True)]
        peeped = [weight(f"{gates[place]}/p", HIDDEN, there=peepholes and kept[place]) for place in (0, 1, 3)]
        biases = [weight(f"{gate}/b", HIDDEN, there=each) for gate, each in zip(gates, kept, strict=True)]
        return [*data, *state, *peeped, *biases, weight(f"{name}projection", HIDDEN, HIDDEN, there=projected), -1]

    shape = [STEPS, batch] if time_major else [batch, STEPS]
    given = tensor("sequence", [*shape, FEATURES])
    directions = ["forward/", "backward/"][: 1 + both]
    inputs = [given, *(index for name in directions for index in direction(name))]
    inputs += [tensor(f"state{index}", [batch, HIDDEN], variable=True) for index in range(2 * len(directions))]
    inputs += [-1] * (9 if both else 4)
    sizes = [HIDDEN * 2] if both and merged else [HIDDEN] * len(directions)
    outputs = [tensor(f"states{index}", [*shape, size]) for index, size in enumerate(sizes)]
    operator = _operator(builder, inputs, outputs, both, merged, time_major, cell_clip)
    graph = _graph(builder, tensors, [operator], [given], outputs)
    kind = tflite.BuiltinOperator
    code = kind.BIDIRECTIONAL_SEQUENCE_LSTM if both else kind.UNIDIRECTIONAL_SEQUENCE_LSTM
    vectors = [files._offsets(builder, entries) for entries in ([files._code(builder, code)], [graph], buffers)]
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, vectors[0])
    tflite.ModelAddSubgraphs(builder, vectors[1])
    tflite.ModelAddBuffers(builder, vectors[2])
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())


def _operator(
    builder: Any,
    inputs: list[int],
    outputs: list[int],
    both: bool,
    merged: bool,
    time_major: bool,
    cell_clip: float,
) -> int:
    name = "BidirectionalSequenceLSTMOptions" if both else "UnidirectionalSequenceLSTMOptions"
    write = {part: getattr(tflite, f"{name}{part}") for part in ("Start", "End")}
    write["Start"](builder)
    getattr(tflite, f"{name}AddFusedActivationFunction")(builder, tflite.ActivationFunctionType.TANH)
    getattr(tflite, f"{name}AddCellClip")(builder, cell_clip)
    getattr(tflite, f"{name}AddTimeMajor")(builder, time_major)
    if both:
        tflite.BidirectionalSequenceLSTMOptionsAddMergeOutputs(builder, merged)
    options = write["End"](builder)
    return files._operator(builder, 0, inputs, outputs, getattr(tflite.BuiltinOptions, name), options)


def _graph(builder: Any, tensors: list[int], operators: list[int], inputs: list[int], outputs: list[int]) -> int:
    parts = files._offsets(builder, tensors), files._offsets(builder, operators)
    given, returned = files._integers(builder, inputs), files._integers(builder, outputs)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, parts[0])
    tflite.SubGraphAddInputs(builder, given)
    tflite.SubGraphAddOutputs(builder, returned)
    tflite.SubGraphAddOperators(builder, parts[1])
    return tflite.SubGraphEnd(builder)

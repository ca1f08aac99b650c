"""TensorFlow Lite files of one LSTM over a sequence, with seeded weights."""

from __future__ import annotations

import numpy as np
import tflite

from support.tflite_networks import Writer

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

    `both` directions may have one `merged` output. A `coupled` one has no input gate, `peepholes` read the cell, which
    `cell_clip` bounds unless it is 0, and a `projected` one has weights for a projection.
    """
    random, write = np.random.default_rng(0), Writer()
    buffers = [write.table("Buffer")]
    tensors: list[int] = []

    def tensor(name: str, shape: list[int], values: np.ndarray | None = None, *, variable: bool = False) -> int:
        if values is not None:
            buffers.append(write.table("Buffer", Data=values.astype(np.float32).tobytes()))
        place = 0 if values is None else len(buffers) - 1
        fields = {"Type": tflite.TensorType.FLOAT32, "Buffer": place, "IsVariable": variable}
        tensors.append(write.table("Tensor", Name=name, Shape=shape, **fields))
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
    kind = "BidirectionalSequenceLSTM" if both else "UnidirectionalSequenceLSTM"
    fields = {"FusedActivationFunction": tflite.ActivationFunctionType.TANH, "CellClip": cell_clip}
    fields |= {"TimeMajor": time_major} | ({"MergeOutputs": merged} if both else {})
    operator = write.table(
        "Operator",
        OpcodeIndex=0,
        Inputs=inputs,
        Outputs=outputs,
        BuiltinOptionsType=getattr(tflite.BuiltinOptions, f"{kind}Options"),
        BuiltinOptions=write.table(f"{kind}Options", **fields),
    )
    parts = {"Tensors": write.tables(tensors), "Operators": write.tables([operator])}
    graph = write.table("SubGraph", Inputs=[given], Outputs=outputs, **parts)
    names = tflite.BuiltinOperator
    code = names.BIDIRECTIONAL_SEQUENCE_LSTM if both else names.UNIDIRECTIONAL_SEQUENCE_LSTM
    codes = [write.table("OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, Version=1)]
    return write.file([graph], codes, buffers)

"""Inference by LiteRT, the reference of TensorFlow Lite's files; custom operators that it lacks are computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgedeploy.frontends.tflite_mediapipe import OPERATORS, options_of
from edgedeploy.network import Reference
from edgedeploy.streams import without_messages


def name_of(tensor: Any) -> str:
    """The name of a tensor of the schema."""
    return (tensor.Name() or b"").decode(errors="replace")


def packed(model: Any) -> bytes:
    """A file of a `ModelT` of the schema, without its signatures."""
    import flatbuffers

    model.signatureDefs = []
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def reference(content: bytes, inputs: Sequence[str], outputs: Sequence[str], *, delegates: bool = True) -> Reference:
    """One inference of a file by LiteRT: by XNNPACK's kernels, if it has them, or by LiteRT's own.

    `inputs` and `outputs` are their names, in the file's order.
    """

    def run(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        without = _without_custom(content)
        interpreter = _interpreter(without.content, delegates=delegates)
        given = interpreter.get_input_details()
        for name, detail in zip(inputs, given, strict=False):
            interpreter.set_tensor(detail["index"], tensors[name])
        interpreter.invoke()
        waiting = list(without.custom)
        while waiting:
            # Each turn computes those whose inputs are all computed, and the operators that follow from them.
            missing = {place for step in waiting for place in step.reaches}
            ready = [step for step in waiting if not missing & set(step.inputs)]
            for step in ready:
                arrays = [
                    without.halves[place] if place in without.halves else interpreter.get_tensor(place)
                    for place in step.inputs
                ]
                for place, made in zip(step.outputs, OPERATORS[step.name].compute(step.options, *arrays), strict=True):
                    interpreter.set_tensor(place, made)
            waiting = [step for step in waiting if step not in ready]
            interpreter.invoke()
        details = zip(outputs, interpreter.get_output_details(), strict=False)
        return {name: interpreter.get_tensor(detail["index"]) for name, detail in details}

    return run


@dataclass(frozen=True)
class _Step:
    """A custom operator of a file, with its tensors.

    Args:
        reaches: its outputs, and all tensors that are computed from them.
    """

    name: str
    options: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reaches: frozenset[int]


@dataclass(frozen=True)
class _Cut:
    """A file without its custom operators: their outputs become further inputs, their inputs further outputs.

    Args:
        halves: weights in half precision that they read, by tensor. XNNPACK refuses them as outputs of a file.
    """

    content: bytes
    custom: tuple[_Step, ...] = ()
    halves: Mapping[int, np.ndarray] = field(default_factory=dict)


def _without_custom(content: bytes) -> _Cut:
    """A file for LiteRT; itself if it has no custom operators that are computed here."""
    import tflite
    from ai_edge_litert import schema_py_generated as schema

    model = tflite.Model.GetRootAs(content, 0)
    codes = [model.OperatorCodes(index).CustomCode() for index in range(model.OperatorCodesLength())]
    if not any(code and code.decode(errors="replace") in OPERATORS for code in codes):
        return _Cut(content)
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    names = [(code.customCode or b"").decode(errors="replace") for code in model.operatorCodes]
    custom = [operator for operator in graph.operators if names[operator.opcodeIndex] in OPERATORS]
    kept = [operator for operator in graph.operators if names[operator.opcodeIndex] not in OPERATORS]
    steps = tuple(
        _Step(
            names[operator.opcodeIndex],
            options_of(operator.customOptions),
            tuple(int(place) for place in operator.inputs),
            tuple(int(place) for place in operator.outputs),
            _reached(graph.operators, operator),
        )
        for operator in custom
    )
    graph.operators = kept
    stored = {place for place, tensor in enumerate(graph.tensors) if model.buffers[tensor.buffer].data is not None}
    read = {place for step in steps for place in step.inputs} - stored
    halves = {}
    for operator in kept:
        if operator.outputs[0] in read and set(operator.inputs) <= stored:
            tensor = graph.tensors[operator.inputs[0]]
            data = np.asarray(model.buffers[tensor.buffer].data, np.uint8)
            halves[int(operator.outputs[0])] = data.view(np.float16).astype(np.float32).reshape(tensor.shape)
    read -= halves.keys()
    made = [place for step in steps for place in step.outputs]
    graph.inputs = np.array([*graph.inputs, *made], np.int32)
    graph.outputs = np.array([*graph.outputs, *sorted(read - set(graph.outputs))], np.int32)
    return _Cut(packed(model), steps, halves)


def _reached(operators: Sequence[Any], first: Any) -> frozenset[int]:
    """An operator's outputs and all tensors that are computed from them; operators are in topological order."""
    reached = {int(place) for place in first.outputs}
    for operator in operators:
        if reached & {int(place) for place in operator.inputs}:
            reached |= {int(place) for place in operator.outputs}
    return frozenset(reached)


def _interpreter(content: bytes, *, delegates: bool) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with without_messages():  # errors are exceptions, and the choice of the usual kernels is not news
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
    return interpreter

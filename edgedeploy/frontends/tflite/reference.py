"""Inference by LiteRT, the reference of TensorFlow Lite's files; custom operators that it lacks are computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgedeploy.base.streams import without_messages
from edgedeploy.frontends.tflite.mediapipe import OPERATORS, options_of


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


def inferred(
    content: bytes,
    inputs: Sequence[str],
    outputs: Sequence[str],
    tensors: Mapping[str, np.ndarray],
    *,
    delegates: bool = True,
) -> dict[str, np.ndarray]:
    """One inference of a file by LiteRT: by XNNPACK's kernels, if it has them, or by LiteRT's own.

    `inputs` and `outputs` are their names, in the file's order.
    """
    plain, custom, halves = _without_custom(content)
    interpreter = _interpreter(plain, delegates=delegates)
    given = interpreter.get_input_details()
    for name, detail in zip(inputs, given, strict=False):
        interpreter.set_tensor(detail["index"], tensors[name])
    interpreter.invoke()
    for name, operator in custom:
        arrays = [halves[place] if place in halves else interpreter.get_tensor(place) for place in operator.inputs]
        made = OPERATORS[name].compute(options_of(operator.customOptions), *arrays)
        for place, array in zip(operator.outputs, made, strict=True):
            interpreter.set_tensor(place, array)
        interpreter.invoke()
    details = zip(outputs, interpreter.get_output_details(), strict=False)
    return {name: interpreter.get_tensor(detail["index"]) for name, detail in details}


def _without_custom(content: bytes) -> tuple[bytes, list[tuple[str, Any]], dict[int, np.ndarray]]:
    """A file without its custom operators, these in topological order, and half-precision weights that they read.

    The operators' outputs become further inputs of the file, and their inputs further outputs. XNNPACK refuses weights
    in half precision as outputs.
    """
    import tflite
    from ai_edge_litert import schema_py_generated as schema

    model = tflite.Model.GetRootAs(content, 0)
    codes = [model.OperatorCodes(index).CustomCode() for index in range(model.OperatorCodesLength())]
    if not any(code and code.decode(errors="replace") in OPERATORS for code in codes):
        return content, [], {}
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    steps, kept = [], []
    for operator in graph.operators:
        name = (model.operatorCodes[operator.opcodeIndex].customCode or b"").decode(errors="replace")
        if name not in OPERATORS:
            kept.append(operator)
            continue
        operator.inputs, operator.outputs = operator.inputs.tolist(), operator.outputs.tolist()
        steps.append((name, operator))
    graph.operators = kept
    stored = {place for place, tensor in enumerate(graph.tensors) if model.buffers[tensor.buffer].data is not None}
    read = {place for _, operator in steps for place in operator.inputs} - stored
    halves = {}
    for operator in kept:
        if operator.outputs[0] in read and set(operator.inputs) <= stored:
            tensor = graph.tensors[operator.inputs[0]]
            data = np.asarray(model.buffers[tensor.buffer].data, np.uint8)
            halves[int(operator.outputs[0])] = data.view(np.float16).astype(np.float32).reshape(tensor.shape)
    read -= halves.keys()
    made = [place for _, operator in steps for place in operator.outputs]
    graph.inputs = np.array([*graph.inputs, *made], np.int32)
    graph.outputs = np.array([*graph.outputs, *sorted(read - set(graph.outputs))], np.int32)
    return packed(model), steps, halves


def _interpreter(content: bytes, *, delegates: bool) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.AUTO if delegates else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with without_messages():  # errors are exceptions, and the choice of the usual kernels is not news
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
    return interpreter

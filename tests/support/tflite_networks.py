"""Small TensorFlow Lite files that tests write, with seeded weights."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import tflite


def small(*, quantised: bool = False, rows: int = 8) -> bytes:
    """Convolution with ReLU6, average pooling and softmax of an NHWC image."""
    random = np.random.default_rng(0)
    weights = (random.standard_normal((8, 3, 3, 3)) * 0.3).astype(np.float32)
    bias = random.standard_normal(8).astype(np.float32)
    builder = flatbuffers.Builder(1 << 14)
    buffers = [_buffer(builder, content) for content in (b"", weights.tobytes(), bias.tobytes())]
    scale = _quantisation(builder) if quantised else None
    tensors = [
        _tensor(builder, name, shape, buffer, scale if name == "weights" else None)
        for name, shape, buffer in (
            ("image", [1, rows, 8, 3], 0),
            ("weights", [8, 3, 3, 3], 1),
            ("bias", [8], 2),
            ("filtered:0", [1, rows, 8, 8], 0),
            ("mean", [1, 1, 1, 8], 0),
            ("scores", [1, 1, 1, 8], 0),
        )
    ]
    operators = [
        _operator(builder, 0, [0, 1, 2], [3], tflite.BuiltinOptions.Conv2DOptions, _convolution(builder)),
        _operator(builder, 1, [3], [4], tflite.BuiltinOptions.Pool2DOptions, _pool(builder, 8, rows)),
        _operator(builder, 2, [4], [5], tflite.BuiltinOptions.SoftmaxOptions, _softmax(builder)),
    ]
    codes = [
        _code(builder, code)
        for code in (
            tflite.BuiltinOperator.CONV_2D,
            tflite.BuiltinOperator.AVERAGE_POOL_2D,
            tflite.BuiltinOperator.SOFTMAX,
        )
    ]
    graph = _graph(builder, tensors, operators)
    vectors = [_offsets(builder, entries) for entries in (codes, [graph], buffers)]
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, vectors[0])
    tflite.ModelAddSubgraphs(builder, vectors[1])
    tflite.ModelAddBuffers(builder, vectors[2])
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())


def _offsets(builder: Any, entries: list[int]) -> int:
    builder.StartVector(4, len(entries), 4)
    for entry in reversed(entries):
        builder.PrependUOffsetTRelative(entry)
    return builder.EndVector()


def _integers(builder: Any, values: list[int]) -> int:
    return builder.CreateNumpyVector(np.array(values, np.int32))


def _buffer(builder: Any, content: bytes) -> int:
    data = builder.CreateByteVector(content) if content else None
    tflite.BufferStart(builder)
    if data is not None:
        tflite.BufferAddData(builder, data)
    return tflite.BufferEnd(builder)


def _quantisation(builder: Any) -> int:
    scale = builder.CreateNumpyVector(np.array([0.1], np.float32))
    tflite.QuantizationParametersStart(builder)
    tflite.QuantizationParametersAddScale(builder, scale)
    return tflite.QuantizationParametersEnd(builder)


def _tensor(builder: Any, name: str, shape: list[int], buffer: int, quantisation: int | None) -> int:
    title, sizes = builder.CreateString(name), _integers(builder, shape)
    tflite.TensorStart(builder)
    tflite.TensorAddName(builder, title)
    tflite.TensorAddShape(builder, sizes)
    tflite.TensorAddType(builder, tflite.TensorType.FLOAT32 if quantisation is None else tflite.TensorType.INT8)
    tflite.TensorAddBuffer(builder, buffer)
    if quantisation is not None:
        tflite.TensorAddQuantization(builder, quantisation)
    return tflite.TensorEnd(builder)


def _convolution(builder: Any) -> int:
    tflite.Conv2DOptionsStart(builder)
    tflite.Conv2DOptionsAddPadding(builder, tflite.Padding.SAME)
    tflite.Conv2DOptionsAddStrideH(builder, 1)
    tflite.Conv2DOptionsAddStrideW(builder, 1)
    tflite.Conv2DOptionsAddFusedActivationFunction(builder, tflite.ActivationFunctionType.RELU6)
    return tflite.Conv2DOptionsEnd(builder)


def _pool(builder: Any, width: int, height: int) -> int:
    tflite.Pool2DOptionsStart(builder)
    tflite.Pool2DOptionsAddPadding(builder, tflite.Padding.VALID)
    tflite.Pool2DOptionsAddStrideH(builder, 1)
    tflite.Pool2DOptionsAddStrideW(builder, 1)
    tflite.Pool2DOptionsAddFilterWidth(builder, width)
    tflite.Pool2DOptionsAddFilterHeight(builder, height)
    return tflite.Pool2DOptionsEnd(builder)


def _softmax(builder: Any) -> int:
    tflite.SoftmaxOptionsStart(builder)
    tflite.SoftmaxOptionsAddBeta(builder, 1.0)
    return tflite.SoftmaxOptionsEnd(builder)


def _operator(builder: Any, code: int, inputs: list[int], outputs: list[int], kind: int, options: int) -> int:
    given, returned = _integers(builder, inputs), _integers(builder, outputs)
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, code)
    tflite.OperatorAddInputs(builder, given)
    tflite.OperatorAddOutputs(builder, returned)
    tflite.OperatorAddBuiltinOptionsType(builder, kind)
    tflite.OperatorAddBuiltinOptions(builder, options)
    return tflite.OperatorEnd(builder)


def _code(builder: Any, code: int) -> int:
    tflite.OperatorCodeStart(builder)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, code)
    tflite.OperatorCodeAddBuiltinCode(builder, code)
    tflite.OperatorCodeAddVersion(builder, 1)
    return tflite.OperatorCodeEnd(builder)


def _graph(builder: Any, tensors: list[int], operators: list[int]) -> int:
    parts = _offsets(builder, tensors), _offsets(builder, operators)
    given, returned = _integers(builder, [0]), _integers(builder, [5])
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, parts[0])
    tflite.SubGraphAddInputs(builder, given)
    tflite.SubGraphAddOutputs(builder, returned)
    tflite.SubGraphAddOperators(builder, parts[1])
    return tflite.SubGraphEnd(builder)

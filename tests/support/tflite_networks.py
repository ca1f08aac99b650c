"""Small TensorFlow Lite files that tests write, with seeded weights."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import tflite


class Writer:
    """The parts of a file; tables and vectors are known by their offsets."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 14)

    def table(self, kind: str, **fields: Any) -> int:
        """A table of the schema. Lists become vectors of integers or floats, texts strings; None is left out."""
        stated = {name: self._stored(value) for name, value in fields.items() if value is not None}
        getattr(tflite, f"{kind}Start")(self.builder)
        for name, value in stated.items():
            getattr(tflite, f"{kind}Add{name}")(self.builder, value)
        return int(getattr(tflite, f"{kind}End")(self.builder))

    def tables(self, offsets: list[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def file(self, graphs: list[int], codes: list[int], buffers: list[int]) -> bytes:
        """The file of graphs; operators are known by their places among the codes, tensors by those of buffers."""
        lists = {"OperatorCodes": codes, "Subgraphs": graphs, "Buffers": buffers}
        parts = {name: self.tables(offsets) for name, offsets in lists.items()}
        self.builder.Finish(self.table("Model", Version=3, **parts), b"TFL3")
        return bytes(self.builder.Output())

    def _stored(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self.builder.CreateNumpyVector(value)
        if isinstance(value, list):
            return self.builder.CreateNumpyVector(
                np.array(value, np.int32 if isinstance(value[0], int) else np.float32)
            )
        if isinstance(value, bytes):
            return self.builder.CreateByteVector(value)
        return self.builder.CreateString(value) if isinstance(value, str) else value


def small(*, rows: int = 8) -> bytes:
    """Convolution with ReLU6, average pooling and softmax of an NHWC image."""
    random, write = np.random.default_rng(0), Writer()
    weights = (random.standard_normal((8, 3, 3, 3)) * 0.3).astype(np.float32)
    bias = random.standard_normal(8).astype(np.float32)
    buffers = [write.table("Buffer", Data=content) for content in (None, weights.tobytes(), bias.tobytes())]
    tensors = [
        write.table("Tensor", Name=name, Shape=shape, Type=tflite.TensorType.FLOAT32, Buffer=buffer)
        for name, shape, buffer in (
            ("image", [1, rows, 8, 3], 0),
            ("weights", [8, 3, 3, 3], 1),
            ("bias", [8], 2),
            ("filtered:0", [1, rows, 8, 8], 0),
            ("mean", [1, 1, 1, 8], 0),
            ("scores", [1, 1, 1, 8], 0),
        )
    ]
    relu6, same, valid = tflite.ActivationFunctionType.RELU6, tflite.Padding.SAME, tflite.Padding.VALID
    filters = {"Padding": same, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": relu6}
    windows = {"Padding": valid, "StrideH": 1, "StrideW": 1, "FilterWidth": 8, "FilterHeight": rows}
    operators, codes = [], []
    for operator, inputs, output, kind, options in (
        ("CONV_2D", [0, 1, 2], 3, "Conv2DOptions", filters),
        ("AVERAGE_POOL_2D", [3], 4, "Pool2DOptions", windows),
        ("SOFTMAX", [4], 5, "SoftmaxOptions", {"Beta": 1.0}),
    ):
        operators.append(
            write.table(
                "Operator",
                OpcodeIndex=len(operators),
                Inputs=inputs,
                Outputs=[output],
                BuiltinOptionsType=getattr(tflite.BuiltinOptions, kind),
                BuiltinOptions=write.table(kind, **options),
            )
        )
        code = getattr(tflite.BuiltinOperator, operator)
        codes.append(write.table("OperatorCode", DeprecatedBuiltinCode=code, BuiltinCode=code, Version=1))
    parts = {"Tensors": write.tables(tensors), "Operators": write.tables(operators)}
    graph = write.table("SubGraph", Inputs=[0], Outputs=[5], **parts)
    return write.file([graph], codes, buffers)

"""TensorFlow Lite files of one operator, with given weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from support.tflite_networks import Writer


@dataclass(frozen=True)
class Steps:
    """What the integers of a quantised tensor stand for: one scale, or one for each place on an axis."""

    dtype: str
    scale: float | Sequence[float]
    zero_point: int = 0
    axis: int = 0

    def table(self, write: Writer) -> int:
        scales = [float(each) for each in np.atleast_1d(self.scale)]
        zeros = np.full(len(scales), self.zero_point, np.int64)
        return write.table("QuantizationParameters", Scale=scales, ZeroPoint=zeros, QuantizedDimension=self.axis)


def of_one(
    operator: str,
    inputs: Sequence[Sequence[int] | np.ndarray],
    outputs: Sequence[Sequence[int]],
    options: Mapping[str, Any] | None = None,
    *,
    kind: str = "",
    custom: bytes | None = None,
    version: int = 1,
    body: str = "",
    steps: Mapping[str, Steps] | None = None,
) -> bytes:
    """A file of one operator, whose outputs are `made0`, `made1` and so on, and whose inputs are `given0` and so on.

    `inputs` are shapes of what is given to the network and arrays that the file holds, in the operator's order; if all
    are arrays, the network has an input that nothing reads. `options` are fields of the table `kind`, which StableHLO's
    operators have in another field; `custom` are those of a custom operator, which is named as in the file. `body` is
    the operator of two values that a reduction uses, as a graph of its own. `steps` are those of quantised tensors, by
    name.
    """
    steps = steps or {}
    write = Writer()
    buffers = [write.table("Buffer")]

    def tensor(name: str, value: Sequence[int] | np.ndarray) -> int:
        held = isinstance(value, np.ndarray)
        if held:
            buffers.append(write.table("Buffer", Data=value.tobytes()))
        shape = list(value.shape) if held else list(value)
        dtype = str(value.dtype) if held else steps[name].dtype if name in steps else "float32"
        return write.table(
            "Tensor",
            Name=name,
            Shape=shape or None,
            Type=getattr(tflite.TensorType, dtype.upper()),
            Buffer=len(buffers) - 1 if held else 0,
            Quantization=steps[name].table(write) if name in steps else None,
        )

    tensors = [tensor(f"given{place}", value) for place, value in enumerate(inputs)]
    tensors += [tensor(f"made{place}", shape) for place, shape in enumerate(outputs)]
    made = list(range(len(inputs), len(tensors)))
    given = [place for place, value in enumerate(inputs) if not isinstance(value, np.ndarray)]
    if not given:
        given.append(len(tensors))
        tensors.append(tensor("unread", [1]))
    fields: dict[str, Any] = {"OpcodeIndex": 0, "Inputs": list(range(len(inputs))), "Outputs": made}
    if kind:
        field = "BuiltinOptions2" if kind.startswith("Stablehlo") else "BuiltinOptions"
        fields[field + "Type"] = getattr(getattr(tflite, field), kind)
        fields[field] = write.table(kind, **(options or {}))
    if custom is not None:
        fields["CustomOptions"] = custom
    parts = {"Tensors": write.tables(tensors), "Operators": write.tables([write.table("Operator", **fields)])}
    graphs = [write.table("SubGraph", Inputs=given, Outputs=made, **parts)]
    codes = [_code(write, operator, version)]
    if body:
        scalars = [write.table("Tensor", Name=name, Type=tflite.TensorType.FLOAT32, Buffer=0) for name in "abc"]
        inner = write.table("Operator", OpcodeIndex=1, Inputs=[0, 1], Outputs=[2])
        parts = {"Tensors": write.tables(scalars), "Operators": write.tables([inner])}
        graphs.append(write.table("SubGraph", Inputs=[0, 1], Outputs=[2], **parts))
        codes.append(_code(write, body, 1))
    return write.file(graphs, codes, buffers)


def _code(write: Writer, operator: str, version: int) -> int:
    known = getattr(tflite.BuiltinOperator, operator, None)
    number = tflite.BuiltinOperator.CUSTOM if known is None else known
    return write.table(
        "OperatorCode",
        DeprecatedBuiltinCode=min(number, 127),
        BuiltinCode=number,
        CustomCode=operator if known is None else None,
        Version=version,
    )


def sparse(
    values: np.ndarray, shape: Sequence[int], order: Sequence[int], blocks: Sequence[int], levels: Sequence[Any]
) -> bytes:
    """A file with DENSIFY of a tensor of `values`, whose result is added to the input of the same shape.

    `order` is that in which dimensions, and blocks behind them, are traversed, `blocks` the dimension along which each
    block lies, and `levels` the size of each, or the name of a vector's table with segments and indices.
    """
    write = Writer()
    buffers = [write.table("Buffer"), write.table("Buffer", Data=values.tobytes())]
    metadata = []
    for level in levels:
        if isinstance(level, int):
            metadata.append(write.table("DimensionMetadata", Format=tflite.DimensionType.DENSE, DenseSize=level))
            continue
        name, *vectors = level
        dtype = {"Int32Vector": np.int32, "Uint16Vector": np.uint16, "Uint8Vector": np.uint8}[name]
        tables = [write.table(name, Values=np.array(vector, dtype)) for vector in vectors]
        kind = getattr(tflite.SparseIndexVector, name)
        metadata.append(
            write.table(
                "DimensionMetadata",
                Format=tflite.DimensionType.SPARSE_CSR,
                ArraySegmentsType=kind,
                ArraySegments=tables[0],
                ArrayIndicesType=kind,
                ArrayIndices=tables[1],
            )
        )
    sparsity = write.table(
        "SparsityParameters",
        TraversalOrder=list(order),
        BlockMap=list(blocks) or None,
        DimMetadata=write.tables(metadata),
    )
    half = values.dtype == np.float16
    stored = tflite.TensorType.FLOAT16 if half else tflite.TensorType.FLOAT32
    names = ["given0", "sparse", "dense", *(["wide"] if half else []), "made0"]
    tensors = [
        write.table(
            "Tensor",
            Name=name,
            Shape=list(shape),
            Type=stored if name in ("sparse", "dense") else tflite.TensorType.FLOAT32,
            Buffer=int(name == "sparse"),
            Sparsity=sparsity if name == "sparse" else None,
        )
        for name in names
    ]
    steps = [("DENSIFY", [1], 2), *([("DEQUANTIZE", [2], 3)] if half else []), ("ADD", [0, 2 + half], 3 + half)]
    added = {"BuiltinOptionsType": tflite.BuiltinOptions.AddOptions, "BuiltinOptions": write.table("AddOptions")}
    operators = [
        write.table("Operator", OpcodeIndex=place, Inputs=read, Outputs=[made], **(added if name == "ADD" else {}))
        for place, (name, read, made) in enumerate(steps)
    ]
    codes = [_code(write, name, 3 if name == "DEQUANTIZE" else 1) for name, _, _ in steps]
    parts = {"Tensors": write.tables(tensors), "Operators": write.tables(operators)}
    return write.file([write.table("SubGraph", Inputs=[0], Outputs=[3 + half], **parts)], codes, buffers)

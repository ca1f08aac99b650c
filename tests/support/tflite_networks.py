"""Small TensorFlow Lite files that tests write, with given or seeded weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import tflite
from ai_edge_litert import schema_py_generated as schema


def table(kind: str, **fields: Any) -> Any:
    """A record of the schema, whose fields are called as in the schema's own functions."""
    made = getattr(schema, f"{kind}T")()
    for name, value in fields.items():
        attribute = name[0].lower() + name[1:]
        assert hasattr(made, attribute), f"{kind} has no {name}"
        setattr(made, attribute, value)
    return made


# Of operators that have no table of their own.
_SHARED_TABLES = {"MEAN": "ReducerOptions", "MAXIMUM": "MaximumMinimumOptions", "MINIMUM": "MaximumMinimumOptions"}
_SHARED_TABLES |= {"AVERAGE_POOL_2D": "Pool2DOptions", "MAX_POOL_2D": "Pool2DOptions"}


class Writer:
    """A file that grows tensor by tensor and operator by operator."""

    def __init__(self) -> None:
        self.buffers, self.codes = [table("Buffer")], []
        self.tensors, self.operators = [], []

    def tensor(
        self, name: str, shape: Sequence[int], dtype: str = "float32", data: bytes | None = None, **fields: Any
    ) -> int:
        """Add a tensor, whose values the file holds if they are given; its number in the graph."""
        if data is not None:
            self.buffers.append(table("Buffer", Data=data))
        fields["Buffer"] = 0 if data is None else len(self.buffers) - 1
        fields["Type"] = getattr(tflite.TensorType, dtype.upper())
        self.tensors.append(table("Tensor", Name=name, Shape=list(shape) or None, **fields))
        return len(self.tensors) - 1

    def constant(self, name: str, values: np.ndarray, **fields: Any) -> int:
        return self.tensor(name, values.shape, str(values.dtype), values.tobytes(), **fields)

    def operator(
        self,
        operator: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, Any] | None = None,
        version: int = 1,
        **fields: Any,
    ) -> None:
        """Add an operator; `options` are fields of its table in the schema, which StableHLO's have in another field.

        One whose name the schema does not know is a custom operator.
        """
        field = "BuiltinOptions2" if operator.startswith("STABLEHLO") else "BuiltinOptions"
        kinds = {name.lower(): name for name in vars(getattr(tflite, field))}
        if kind := _SHARED_TABLES.get(operator, kinds.get(operator.replace("_", "").lower() + "options")):
            fields[field + "Type"] = getattr(getattr(tflite, field), kind)
            fields[field] = table(kind, **(options or {}))
        places = {"Inputs": list(inputs), "Outputs": list(outputs)}
        self.operators.append(table("Operator", OpcodeIndex=len(self.codes), **places, **fields))
        known = getattr(tflite.BuiltinOperator, operator, None)
        number = tflite.BuiltinOperator.CUSTOM if known is None else known
        codes = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": version}
        self.codes.append(table("OperatorCode", CustomCode=operator if known is None else None, **codes))

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> Any:
        """The graph of what was added since the one before."""
        parts = {"Tensors": self.tensors, "Operators": self.operators}
        self.tensors, self.operators = [], []
        return table("SubGraph", Inputs=list(inputs), Outputs=list(outputs), **parts)

    def file(self, *graphs: Any) -> bytes:
        builder, parts = flatbuffers.Builder(1 << 14), {"OperatorCodes": self.codes, "Buffers": self.buffers}
        builder.Finish(table("Model", Version=3, Subgraphs=[*graphs], **parts).Pack(builder), b"TFL3")
        return bytes(builder.Output())


@dataclass(frozen=True)
class Steps:
    """What the integers of a quantised tensor stand for: one scale, or one for each place on an axis."""

    dtype: str
    scale: float | Sequence[float]
    zero_point: int = 0
    axis: int = 0

    def table(self) -> Any:
        scales = [float(each) for each in np.atleast_1d(self.scale)]
        zeros = np.full(len(scales), self.zero_point, np.int64)
        return table("QuantizationParameters", Scale=scales, ZeroPoint=zeros, QuantizedDimension=self.axis)


def small(*, rows: int = 8) -> bytes:
    """Convolution with ReLU6, average pooling and softmax of an NHWC image."""
    random, write = np.random.default_rng(0), Writer()
    image = write.tensor("image", [1, rows, 8, 3])
    weights = write.constant("weights", (random.standard_normal((8, 3, 3, 3)) * 0.3).astype(np.float32))
    bias = write.constant("bias", random.standard_normal(8).astype(np.float32))
    filtered = write.tensor("filtered:0", [1, rows, 8, 8])
    mean, scores = (write.tensor(name, [1, 1, 1, 8]) for name in ("mean", "scores"))
    relu6, same, valid = tflite.ActivationFunctionType.RELU6, tflite.Padding.SAME, tflite.Padding.VALID
    filters = {"Padding": same, "StrideH": 1, "StrideW": 1, "FusedActivationFunction": relu6}
    windows = {"Padding": valid, "StrideH": 1, "StrideW": 1, "FilterWidth": 8, "FilterHeight": rows}
    write.operator("CONV_2D", [image, weights, bias], [filtered], filters)
    write.operator("AVERAGE_POOL_2D", [filtered], [mean], windows)
    write.operator("SOFTMAX", [mean], [scores], {"Beta": 1.0})
    return write.file(write.graph([image], [scores]))


def of_one(
    operator: str,
    inputs: Sequence[Sequence[int] | np.ndarray],
    outputs: Sequence[Sequence[int]],
    options: Mapping[str, Any] | None = None,
    *,
    custom: bytes | None = None,
    version: int = 1,
    body: str = "",
    steps: Mapping[str, Steps] | None = None,
) -> bytes:
    """A file of one operator, whose outputs are `made0`, `made1` and so on, and whose inputs are `given0` and so on.

    `inputs` are shapes of what is given to the network and arrays that the file holds, in the operator's order; if all
    are arrays, the network has an input that nothing reads. `options` are fields of the operator's table; `custom` are
    those of a custom operator. `body` is the operator of two values that a reduction uses, as a graph of its own.
    `steps` are those of quantised tensors, by name.
    """
    steps = steps or {}
    write = Writer()

    def tensor(name: str, value: Sequence[int] | np.ndarray) -> int:
        fields = {"Quantization": steps[name].table()} if name in steps else {}
        if isinstance(value, np.ndarray):
            return write.constant(name, value, **fields)
        return write.tensor(name, value, steps[name].dtype if name in steps else "float32", **fields)

    read = [tensor(f"given{place}", value) for place, value in enumerate(inputs)]
    made = [tensor(f"made{place}", shape) for place, shape in enumerate(outputs)]
    given = [place for place, value in enumerate(inputs) if not isinstance(value, np.ndarray)]
    if not given:
        given.append(write.tensor("unread", [1]))
    write.operator(operator, read, made, options, version, CustomOptions=custom)
    graphs = [write.graph(given, made)]
    if body:
        first, second, result = (write.tensor(name, ()) for name in "abc")
        write.operator(body, [first, second], [result])
        graphs.append(write.graph([first, second], [result]))
    return write.file(*graphs)


def sparse(
    values: np.ndarray, shape: Sequence[int], order: Sequence[int], blocks: Sequence[int], levels: Sequence[Any]
) -> bytes:
    """A file with DENSIFY of a tensor of `values`, whose result is added to the input of the same shape.

    `order` is that in which dimensions, and blocks behind them, are traversed, `blocks` the dimension along which each
    block lies, and `levels` the size of each, or the name of a vector's table with segments and indices.
    """
    write = Writer()
    metadata = []
    for level in levels:
        if isinstance(level, int):
            fields = {"Format": tflite.DimensionType.DENSE, "DenseSize": level}
        else:
            name, *vectors = level
            dtype = {"Int32Vector": np.int32, "Uint16Vector": np.uint16, "Uint8Vector": np.uint8}[name]
            fields = {"Format": tflite.DimensionType.SPARSE_CSR}
            for field, vector in zip(("ArraySegments", "ArrayIndices"), vectors, strict=True):
                fields[f"{field}Type"] = getattr(tflite.SparseIndexVector, name)
                fields[field] = table(name, Values=np.array(vector, dtype))
        metadata.append(table("DimensionMetadata", **fields))
    orders = {"TraversalOrder": list(order), "BlockMap": list(blocks) or None}
    sparsity = table("SparsityParameters", DimMetadata=metadata, **orders)
    dtype = str(values.dtype)
    given = write.tensor("given0", shape)
    packed = write.tensor("sparse", shape, dtype, values.tobytes(), Sparsity=sparsity)
    dense = write.tensor("dense", shape, dtype)
    write.operator("DENSIFY", [packed], [dense])
    if dtype == "float16":
        narrow, dense = dense, write.tensor("wide", shape)
        write.operator("DEQUANTIZE", [narrow], [dense], version=3)
    made = write.tensor("made0", shape)
    write.operator("ADD", [given, dense], [made])
    return write.file(write.graph([given], [made]))


STEPS, FEATURES, HIDDEN = 6, 5, 12


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

    def weight(name: str, *shape: int, there: bool = True) -> int:
        return write.constant(name, (random.standard_normal(shape) * 0.4).astype(np.float32)) if there else -1

    def direction(name: str) -> list[int]:
        gates = {f"{name}{gate}": not coupled or gate != "input" for gate in ("input", "forget", "cell", "output")}
        data = [weight(f"{gate}/w", HIDDEN, FEATURES, there=there) for gate, there in gates.items()]
        state = [weight(f"{gate}/r", HIDDEN, HIDDEN, there=there) for gate, there in gates.items()]
        read = {gate: there and peepholes for gate, there in gates.items() if not gate.endswith("cell")}
        peeped = [weight(f"{gate}/p", HIDDEN, there=there) for gate, there in read.items()]
        biases = [weight(f"{gate}/b", HIDDEN, there=there) for gate, there in gates.items()]
        return [*data, *state, *peeped, *biases, weight(f"{name}projection", HIDDEN, HIDDEN, there=projected), -1]

    shape = [STEPS, batch] if time_major else [batch, STEPS]
    given = write.tensor("sequence", [*shape, FEATURES])
    directions = ["forward/", "backward/"][: 1 + both]
    inputs = [given, *(index for name in directions for index in direction(name))]
    inputs += [write.tensor(f"state{index}", [batch, HIDDEN], IsVariable=True) for index in range(2 * len(directions))]
    inputs += [-1] * (9 if both else 4)
    sizes = [HIDDEN * 2] if both and merged else [HIDDEN] * len(directions)
    outputs = [write.tensor(f"states{index}", [*shape, size]) for index, size in enumerate(sizes)]
    fields = {"FusedActivationFunction": tflite.ActivationFunctionType.TANH, "CellClip": cell_clip}
    fields |= {"TimeMajor": time_major} | ({"MergeOutputs": merged} if both else {})
    write.operator(f"{'BI' if both else 'UNI'}DIRECTIONAL_SEQUENCE_LSTM", inputs, outputs, fields)
    return write.file(write.graph([given], outputs))

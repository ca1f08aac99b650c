"""Cuts `TFLite_Detection_PostProcess` off the end of a TensorFlow Lite graph.

The file is edited in place, so that TVM's importer and LiteRT both read a network that ends before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.tflite_reference import name_of, packed
from edgedeploy.tail.program import Block, Constant, Node
from edgedeploy.tensors import Tensors, TensorSpec

OPERATOR = b"TFLite_Detection_PostProcess"

# Fields of the table SubGraph (schema.fbs), as offsets into its vtable: four bytes before the first, two for each.
_OUTPUTS, _OPERATORS = 8, 10

# The options that LiteRT's detection_postprocess.cc reads; the last two have defaults there.
_NUMBERS = ("y_scale", "x_scale", "h_scale", "w_scale", "nms_score_threshold", "nms_iou_threshold")
_COUNTS = ("max_detections", "max_classes_per_detection", "num_classes")
_DEFAULTS = {"detections_per_class": 100, "use_regular_nms": 0}


@dataclass(frozen=True)
class Cut:
    """A network in two parts: a file without the operator, whose outputs the tail reads, and the tail.

    Attributes:
        outputs: of the whole network.
    """

    head: bytes
    tail: Block
    outputs: list[TensorSpec]

    def cleared(self, outputs: Tensors) -> dict[str, np.ndarray]:
        """LiteRT's outputs for the whole network, with zeros behind the last box, where it leaves memory as it was."""
        [node] = self.tail.nodes
        *lists, count = node.outputs
        if count not in outputs:
            return dict(outputs)
        each = 1 if node.attributes["use_regular_nms"] else node.attributes["max_classes_per_detection"]
        found = int(outputs[count][0]) * int(each)  # type: ignore[arg-type]
        return {
            name: np.concatenate([array[:, :found], np.zeros_like(array[:, found:])], 1) if name in lists else array
            for name, array in outputs.items()
        }


def with_real_heads(content: bytes) -> bytes:
    """A checked file whose detections come from real numbers: heads are dequantised before, and anchors are float32."""
    import tflite
    from ai_edge_litert import schema_py_generated as schema

    from edgedeploy.frontends.tflite_quantised import Quantisation

    stored = tflite.Model.GetRootAs(content, 0)
    if all(stored.OperatorCodes(i).CustomCode() != OPERATOR for i in range(stored.OperatorCodesLength())):
        return content
    ways = [Quantisation.of(stored.Subgraphs(0).Tensors(i)) for i in range(stored.Subgraphs(0).TensorsLength())]
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    [*ends] = [each for each in graph.operators if model.operatorCodes[each.opcodeIndex].customCode == OPERATOR]
    heads = [int(place) for each in ends for place in each.inputs if place >= 0 and ways[place]]
    if not heads:
        return content
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = tflite.BuiltinOperator.DEQUANTIZE
    code.version = 2
    model.operatorCodes.append(code)
    real = {}
    for place in dict.fromkeys(heads):
        source, way, tensor = graph.tensors[place], ways[place], schema.TensorT()
        tensor.name, tensor.shape, tensor.type = source.name + b"/real", source.shape, tflite.TensorType.FLOAT32
        real[place] = len(graph.tensors)
        graph.tensors.append(tensor)
        held = _stored(stored, place, way.dtype) if way else None
        if held is not None and way is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(way.real(held).astype("<f4").tobytes(), np.uint8)
            tensor.buffer = len(model.buffers)
            model.buffers.append(buffer)
            continue
        step = schema.OperatorT()
        step.opcodeIndex = len(model.operatorCodes) - 1
        step.inputs, step.outputs = np.array([place], np.int32), np.array([real[place]], np.int32)
        graph.operators.insert(graph.operators.index(ends[0]), step)
    for each in ends:
        each.inputs = np.array([real.get(int(place), int(place)) for place in each.inputs], np.int32)
    return packed(model)


def _stored(model: Any, place: int, dtype: str) -> np.ndarray | None:
    """The values of a constant; None for other tensors."""
    tensor = model.Subgraphs(0).Tensors(place)
    raw = model.Buffers(tensor.Buffer()).DataAsNumpy()
    return np.frombuffer(raw.tobytes(), dtype).reshape(tensor.ShapeAsNumpy()) if isinstance(raw, np.ndarray) else None


def cut(content: bytes) -> Cut | None:
    """A checked file in two parts; None without the operator."""
    import tflite
    from tvm.relax.frontend.tflite.tflite_frontend import _decode_type

    model = tflite.Model.GetRootAs(content, 0)
    graph = model.Subgraphs(0)
    operators = [graph.Operators(index) for index in range(graph.OperatorsLength())]
    places = [
        index
        for index, each in enumerate(operators)
        if model.OperatorCodes(each.OpcodeIndex()).CustomCode() == OPERATOR
    ]
    if not places:
        return None
    operator = operators[places[0]]
    inputs, made = (
        list(map(int, np.atleast_1d(each))) for each in (operator.InputsAsNumpy(), operator.OutputsAsNumpy())
    )
    what = f"operator {places[0]}, {OPERATOR.decode()}, cannot be cut off"
    read_later = {int(each) for other in operators for each in np.atleast_1d(other.InputsAsNumpy())} & set(made)
    if len(places) > 1 or read_later:
        raise ModelError(what, why="another operator follows it")
    if len(inputs) != 3 or len(made) != 4 or min(inputs) < 0:
        raise ModelError(what, why=f"it has {len(inputs)} inputs and {len(made)} outputs, and not 3 and 4")
    names = {index: name_of(graph.Tensors(index)) for index in (*inputs, *made, *map(int, graph.OutputsAsNumpy()))}
    constants = {
        names[index]: Constant.of(array.astype(np.float32))
        for index in inputs
        if graph.Tensors(index).Type() == tflite.TensorType.FLOAT32
        and (array := _stored(model, index, "<f4")) is not None
    }
    attributes = _options(what, operator)
    node = Node(
        name=names[made[0]],
        operator=OPERATOR.decode(),
        inputs=[names[index] for index in inputs],
        outputs=[names[index] for index in made],
        attributes=dict(attributes),
    )
    ends = [int(index) for index in graph.OutputsAsNumpy()]
    kept = list(dict.fromkeys([*(i for i in inputs if names[i] not in constants), *(i for i in ends if i not in made)]))
    if len(kept) > len(ends):
        raise ModelError(what, why="the network gives too few of its outputs")
    slots = int(attributes["max_detections"]) * int(attributes["max_classes_per_detection"])
    shapes = dict(zip(made, ([1, slots, 4], [1, slots], [1, slots], [1]), strict=True))
    specs = []
    for index in ends:
        tensor = graph.Tensors(index)
        sizes = shapes.get(index) or [int(tensor.Shape(axis)) for axis in range(tensor.ShapeLength())]
        specs.append(TensorSpec(name=names[index], shape=sizes, dtype=str(_decode_type(tensor.Type()))))
    block = Block(constants=constants, nodes=[node], outputs=[names[index] for index in ends])
    return Cut(_without(content, graph, places[0], kept), block, specs)


def _without(content: bytes, graph: Any, operator: int, outputs: Sequence[int]) -> bytes:
    """The file without an operator, and with other outputs, no more than before."""
    edited = bytearray(content)

    def vector(field: int) -> int:
        return int(graph._tab.Vector(graph._tab.Offset(field)))

    def write(place: int, value: int) -> None:
        edited[place : place + 4] = value.to_bytes(4, "little")

    start = vector(_OUTPUTS)
    for index, tensor in enumerate([len(outputs), *outputs]):
        write(start - 4 + 4 * index, tensor)
    # Entries are distances from their own place to a table: moving up by four bytes adds four.
    start, count = vector(_OPERATORS), graph.OperatorsLength()
    for index in range(operator, count - 1):
        place = start + 4 * index
        write(place, int.from_bytes(content[place + 4 : place + 8], "little") + 4)
    write(start - 4, count - 1)
    return bytes(edited)


def _options(what: str, operator: Any) -> dict[str, int | float]:
    from flatbuffers import flexbuffers

    raw = operator.CustomOptionsAsNumpy()
    if not isinstance(raw, np.ndarray):
        raise ModelError(what, why="it has no options")
    try:
        given = flexbuffers.Loads(bytes(raw))
        found: dict[str, int | float] = {name: float(given[name]) for name in _NUMBERS}
        found |= {name: int(given[name]) for name in _COUNTS}
        found |= {name: int(given.get(name, otherwise)) for name, otherwise in _DEFAULTS.items()}
    except Exception as error:  # of many kinds, in readers of a damaged flexbuffer
        raise ModelError(what, why=f"its options cannot be read: {error}") from error
    if not all(0 < found[name] < 1 << 20 for name in (*_COUNTS, "detections_per_class")) or not all(
        found[f"{axis}_scale"] > 0 for axis in "yxhw"
    ):
        raise ModelError(what, why=f"its options are {found}")
    return found

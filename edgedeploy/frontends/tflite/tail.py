"""Cuts `TFLite_Detection_PostProcess` off the end of a TensorFlow Lite graph; the file then ends before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.tflite.mediapipe import options_of
from edgedeploy.frontends.tflite.reference import name_of, packed
from edgedeploy.model.tail.program import Block, Constant, Node
from edgedeploy.model.tensors import Tensors, TensorSpec

OPERATOR = b"TFLite_Detection_PostProcess"

# The options that LiteRT's detection_postprocess.cc reads; the last two have defaults there.
_NUMBERS = ("y_scale", "x_scale", "h_scale", "w_scale", "nms_score_threshold", "nms_iou_threshold")
_COUNTS = ("max_detections", "max_classes_per_detection", "num_classes")
_DEFAULTS = {"detections_per_class": 100, "use_regular_nms": 0}


@dataclass(frozen=True)
class Cut:
    """A network in two parts: a file without the operator, whose outputs the tail reads, and the tail.

    `outputs` are those of the whole network.
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


def cut(content: bytes) -> Cut | None:
    """A checked file in two parts; None without the operator.

    Detections come from real numbers: the head dequantises quantised inputs of the operator, constants are float32.
    """
    import tflite
    from ai_edge_litert import schema_py_generated as schema
    from tvm.relax.frontend.tflite.tflite_frontend import _decode_type

    from edgedeploy.frontends.tflite.quantised import Quantisation

    stored = tflite.Model.GetRootAs(content, 0)
    codes = [stored.OperatorCodes(index).CustomCode() for index in range(stored.OperatorCodesLength())]
    if OPERATOR not in codes:
        return None
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph, tensor_of = model.subgraphs[0], stored.Subgraphs(0).Tensors
    places = [place for place, each in enumerate(graph.operators) if codes[each.opcodeIndex] == OPERATOR]
    if not places:
        return None
    operator = graph.operators.pop(places[0])
    what = f"operator {places[0]}, {OPERATOR.decode()}, cannot be cut off"
    inputs, made = _indices(operator.inputs), _indices(operator.outputs)
    read_later = {place for other in graph.operators for place in _indices(other.inputs)} & set(made)
    if len(places) > 1 or read_later:
        raise ModelError(what, why="another operator follows it")
    if len(inputs) != 3 or len(made) != 4 or min(inputs) < 0:
        raise ModelError(what, why=f"it has {len(inputs)} inputs and {len(made)} outputs, and not 3 and 4")
    heads: list[int] = []
    names: list[str] = []
    constants: dict[str, Constant] = {}
    for place in inputs:
        tensor = tensor_of(place)
        quantisation = Quantisation.of(tensor)
        names.append(name_of(tensor) + ("/real" if quantisation else ""))
        raw = stored.Buffers(tensor.Buffer()).DataAsNumpy()
        if isinstance(raw, np.ndarray) and (quantisation or tensor.Type() == tflite.TensorType.FLOAT32):
            array = np.frombuffer(raw.tobytes(), quantisation.dtype if quantisation else "<f4")
            array = array.reshape(tensor.ShapeAsNumpy())
            constants[names[-1]] = Constant.of((quantisation.real(array) if quantisation else array).astype(np.float32))
        else:
            heads.append(_dequantised(model, place, names[-1]) if quantisation else place)
    attributes = _options(what, operator.customOptions)
    node = Node(
        name=name_of(tensor_of(made[0])),
        operator=OPERATOR.decode(),
        inputs=names,
        outputs=[name_of(tensor_of(place)) for place in made],
        attributes=dict(attributes),
    )
    slots = int(attributes["max_detections"]) * int(attributes["max_classes_per_detection"])
    shapes = dict(zip(made, ([1, slots, 4], [1, slots], [1, slots], [1]), strict=True))
    specs, ends = [], _indices(graph.outputs)
    for place in ends:
        tensor = tensor_of(place)
        sizes = shapes.get(place) or [int(tensor.Shape(axis)) for axis in range(tensor.ShapeLength())]
        specs.append(TensorSpec(name=name_of(tensor), shape=sizes, dtype=str(_decode_type(tensor.Type()))))
    block = Block(constants=constants, nodes=[node], outputs=[spec.name for spec in specs])
    others = [place for place in ends if place not in made]
    graph.outputs = np.array(list(dict.fromkeys([*heads, *others])), np.int32)
    return Cut(packed(model), block, specs)


def _indices(vector: Any) -> list[int]:
    return [] if vector is None else [int(place) for place in vector]


def _dequantised(model: Any, place: int, name: str) -> int:
    """The place of a new float32 tensor, a quantised one dequantised at the end of a `ModelT`."""
    import tflite
    from ai_edge_litert import schema_py_generated as schema

    graph, code, tensor, step = model.subgraphs[0], schema.OperatorCodeT(), schema.TensorT(), schema.OperatorT()
    code.builtinCode = code.deprecatedBuiltinCode = tflite.BuiltinOperator.DEQUANTIZE
    code.version = 2
    tensor.name, tensor.shape, tensor.type = name.encode(), graph.tensors[place].shape, tflite.TensorType.FLOAT32
    step.opcodeIndex = len(model.operatorCodes)
    step.inputs, step.outputs = np.array([place], np.int32), np.array([len(graph.tensors)], np.int32)
    model.operatorCodes.append(code)
    graph.tensors.append(tensor)
    graph.operators.append(step)
    return len(graph.tensors) - 1


def _options(what: str, custom: Any) -> dict[str, int | float]:
    from flatbuffers import flexbuffers

    if custom is None:
        raise ModelError(what, why="it has no options")
    try:
        given = flexbuffers.Loads(options_of(custom))
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

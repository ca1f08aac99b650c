"""Small networks whose end depends on data: detections in ONNX and in TensorFlow Lite."""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import tflite
from flatbuffers import flexbuffers
from onnx import TensorProto, helper

from support.networks import Graph
from support.tflite_networks import Writer

CLASSES, SIZE = 3, 16
PLACES = SIZE * SIZE


def _value(name: str, dtype: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def detections(path: Path) -> Path:
    """Boxes and scores of each pixel, non-maximum suppression, and what exporters write behind it.

    The outputs are boxes, scores and labels of what is kept, at the length that this has, and the features.
    """
    graph = Graph(opset=17)
    image = graph.input("image", [1, 3, SIZE, SIZE])
    features = graph.node("Relu", graph.conv(image, 3, 8, 3, pads=[1, 1, 1, 1]))
    raw = graph.node("Sigmoid", graph.conv(features, 8, 4 + CLASSES, 1))
    flat = graph.node("Reshape", raw, graph.weight(np.array([1, 4 + CLASSES, PLACES])))
    corners, scores = (
        graph.node("Slice", flat, *(graph.weight(np.array([each])) for each in (begin, end, 1)))
        for begin, end in ((0, 4), (4, 4 + CLASSES))
    )
    boxes = graph.node("Transpose", corners, perm=[0, 2, 1])
    limits = [graph.weight(np.array([each], dtype)) for each, dtype in ((9, np.int64), (0.4, "f4"), (0.45, "f4"))]
    kept = graph.node("NonMaxSuppression", boxes, scores, *limits)
    labels = graph.node("Gather", kept, graph.weight(np.array(1)), axis=1)
    place = graph.node("Gather", kept, graph.weight(np.array([1, 2])), axis=1)
    found = graph.node("GatherND", graph.node("Squeeze", scores, graph.weight(np.array([0]))), place)
    where = graph.node("Gather", kept, graph.weight(np.array(2)), axis=1)
    chosen = graph.node("Gather", graph.node("Squeeze", boxes, graph.weight(np.array([0]))), where, axis=0)
    model = graph.model(chosen, found, labels, features)
    del model.graph.output[:]
    model.graph.output.extend(
        [
            _value(chosen, TensorProto.FLOAT, "count", 4),
            _value(found, TensorProto.FLOAT, "count"),
            _value(labels, TensorProto.INT64, "count"),
            _value(features, TensorProto.FLOAT, 1, 8, SIZE, SIZE),
        ]
    )
    onnx.save(model, path)
    return path


def post_processed(*, regular: bool = False, classes_each: int = 1, threshold: float = 0.5) -> bytes:
    """Convolutions that give offsets and probabilities, and TFLite_Detection_PostProcess."""
    random, write = np.random.default_rng(1), Writer()
    offsets = (random.standard_normal((4, 1, 1, 3)) * 1.5).astype(np.float32)
    scores = (random.standard_normal((CLASSES + 1, 1, 1, 3)) * 2).astype(np.float32)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    anchors = np.stack([rows, columns, np.full_like(rows, 0.15), np.full_like(rows, 0.2)], axis=-1).reshape(-1, 4)
    contents = (
        None,
        offsets.tobytes(),
        scores.tobytes(),
        anchors.astype(np.float32).tobytes(),
        np.zeros(4, "f4").tobytes(),
    )
    buffers = [write.table("Buffer", Data=content) for content in contents]
    tensors = [
        write.table("Tensor", Name=name, Shape=shape, Type=tflite.TensorType.FLOAT32, Buffer=buffer)
        for name, shape, buffer in (
            ("image", [1, SIZE, SIZE, 3], 0),
            ("offset weights", [4, 1, 1, 3], 1),
            ("score weights", [CLASSES + 1, 1, 1, 3], 2),
            ("no bias", [4], 4),
            ("anchors", [PLACES, 4], 3),
            ("offset maps", [1, SIZE, SIZE, 4], 0),
            ("score maps", [1, SIZE, SIZE, CLASSES + 1], 0),
            ("offsets", [1, PLACES, 4], 0),
            ("logits", [1, PLACES, CLASSES + 1], 0),
            ("probabilities", [1, PLACES, CLASSES + 1], 0),
            ("boxes", [1, 10 * classes_each, 4], 0),
            ("classes", [1, 10 * classes_each], 0),
            ("scores", [1, 10 * classes_each], 0),
            ("count", [1], 0),
        )
    ]
    convolution = {"Padding": tflite.Padding.VALID, "StrideH": 1, "StrideW": 1}
    options = flexbuffers.Dumps(
        {
            "max_detections": 10, "max_classes_per_detection": classes_each, "detections_per_class": 6,
            "use_regular_nms": regular, "nms_score_threshold": threshold, "nms_iou_threshold": 0.4,
            "num_classes": CLASSES, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        }
    )  # fmt: skip
    operators, codes = [], []
    for operator, inputs, outputs, kind, fields in (
        ("CONV_2D", [0, 1, 3], [5], "Conv2DOptions", convolution),
        ("CONV_2D", [0, 2, 3], [6], "Conv2DOptions", convolution),
        ("RESHAPE", [5], [7], "ReshapeOptions", {"NewShape": [1, PLACES, 4]}),
        ("RESHAPE", [6], [8], "ReshapeOptions", {"NewShape": [1, PLACES, CLASSES + 1]}),
        ("LOGISTIC", [8], [9], None, {}),
        ("CUSTOM", [7, 9, 4], [10, 11, 12, 13], None, {}),
    ):
        custom = operator == "CUSTOM"
        operators.append(
            write.table(
                "Operator",
                OpcodeIndex=len(operators),
                Inputs=inputs,
                Outputs=outputs,
                BuiltinOptionsType=getattr(tflite.BuiltinOptions, kind) if kind else None,
                BuiltinOptions=write.table(kind, **fields) if kind else None,
                CustomOptions=bytes(options) if custom else None,
            )
        )
        code = getattr(tflite.BuiltinOperator, operator)
        name = "TFLite_Detection_PostProcess" if custom else None
        codes.append(
            write.table("OperatorCode", DeprecatedBuiltinCode=min(code, 127), BuiltinCode=code, CustomCode=name)
        )
    parts = {"Tensors": write.tables(tensors), "Operators": write.tables(operators)}
    graph = write.table("SubGraph", Inputs=[0], Outputs=[10, 11, 12, 13], **parts)
    return write.file([graph], codes, buffers)


def with_quantised_heads(content: bytes) -> bytes:
    """The same with offsets, probabilities and anchors of uint8."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = model.subgraphs[0]
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = tflite.BuiltinOperator.QUANTIZE
    model.operatorCodes.append(code)
    detection = graph.operators[-1]
    detection.inputs = detection.inputs.copy()
    for index, scale, zero_point in ((0, 0.03, 133), (1, 1 / 256, 0)):
        place = int(detection.inputs[index])
        tensor = schema.TensorT()
        tensor.name, tensor.shape = graph.tensors[place].name + b" in integers", graph.tensors[place].shape
        tensor.type, tensor.quantization = tflite.TensorType.UINT8, schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero_point]
        graph.tensors.append(tensor)
        step = schema.OperatorT()
        step.opcodeIndex = len(model.operatorCodes) - 1
        step.inputs, step.outputs = np.array([place], np.int32), np.array([len(graph.tensors) - 1], np.int32)
        graph.operators.insert(len(graph.operators) - 1, step)
        detection.inputs[index] = len(graph.tensors) - 1
    anchors = graph.tensors[detection.inputs[2]]
    buffer = model.buffers[anchors.buffer]
    values = np.frombuffer(bytes(buffer.data), np.float32)
    buffer.data = np.rint(values * 255).astype(np.uint8)
    anchors.type, anchors.quantization = tflite.TensorType.UINT8, schema.QuantizationParametersT()
    anchors.quantization.scale, anchors.quantization.zeroPoint = [1 / 255], [0]
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())

"""Small networks whose end depends on data: detections in ONNX and in TensorFlow Lite."""

from pathlib import Path

import numpy as np
import onnx
import tflite
from flatbuffers import flexbuffers
from onnx import TensorProto, helper

from support.networks import Graph
from support.tflite_networks import Steps, Writer

CLASSES, SIZE = 3, 16
PLACES = SIZE * SIZE


def detections(path: Path) -> Path:
    """Boxes and scores of each pixel, non-maximum suppression, and what exporters write behind it.

    The outputs are boxes, scores and labels of what is kept, at the length that this has, and the features.
    """
    graph = Graph(opset=17)
    image = graph.input("image", [1, 3, SIZE, SIZE])
    features = graph.node("Relu", graph.conv(image, 3, 8, 3, pads=[1, 1, 1, 1]))
    raw = graph.node("Sigmoid", graph.conv(features, 8, 4 + CLASSES, 1))
    flat = graph.reshape(raw, 1, 4 + CLASSES, PLACES)
    corners, scores = graph.slice(flat, 0, 4, 1), graph.slice(flat, 4, 4 + CLASSES, 1)
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
    shapes = {chosen: ("count", 4), found: ("count",), labels: ("count",), features: (1, 8, SIZE, SIZE)}
    for name, shape in shapes.items():
        dtype = TensorProto.INT64 if name == labels else TensorProto.FLOAT
        model.graph.output.append(helper.make_tensor_value_info(name, dtype, shape))
    onnx.save(model, path)
    return path


def post_processed(
    *, regular: bool = False, classes_each: int = 1, threshold: float = 0.5, quantised: bool = False
) -> bytes:
    """Convolutions that give offsets and probabilities, and TFLite_Detection_PostProcess.

    That reads uint8 if it is `quantised`.
    """
    random, write = np.random.default_rng(1), Writer()
    image = write.tensor("image", [1, SIZE, SIZE, 3])
    values = random.standard_normal((4, 1, 1, 3)) * 1.5, random.standard_normal((CLASSES + 1, 1, 1, 3)) * 2
    none = write.constant("no bias", np.zeros(4, "f4"))
    convolution = {"Padding": tflite.Padding.VALID, "StrideH": 1, "StrideW": 1}
    heads = []
    for name, weights, steps in zip(
        ("offsets", "logits"), values, (Steps("uint8", 0.03, 133), Steps("uint8", 1 / 256)), strict=True
    ):
        each = len(weights)
        kernel = write.constant(f"weights of {name}", weights.astype(np.float32))
        maps, flat = write.tensor(f"maps of {name}", [1, SIZE, SIZE, each]), write.tensor(name, [1, PLACES, each])
        write.operator("CONV_2D", [image, kernel, none], [maps], convolution)
        write.operator("RESHAPE", [maps], [flat], {"NewShape": [1, PLACES, each]})
        if name == "logits":
            logits, flat = flat, write.tensor("probabilities", [1, PLACES, each])
            write.operator("LOGISTIC", [logits], [flat])
        if quantised:
            fields = {"Quantization": steps.table()}
            real, flat = flat, write.tensor(f"{name} in integers", [1, PLACES, each], "uint8", **fields)
            write.operator("QUANTIZE", [real], [flat])
        heads.append(flat)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    anchors = np.stack([rows, columns, np.full_like(rows, 0.15), np.full_like(rows, 0.2)], axis=-1).reshape(-1, 4)
    anchors, fields = anchors.astype(np.float32), {}
    if quantised:
        anchors, fields = np.rint(anchors * 255).astype(np.uint8), {"Quantization": Steps("uint8", 1 / 255).table()}
    heads.append(write.constant("anchors", anchors, **fields))
    most = 10 * classes_each
    shapes = {"boxes": [1, most, 4], "classes": [1, most], "scores": [1, most], "count": [1]}
    found = [write.tensor(name, shape) for name, shape in shapes.items()]
    options = flexbuffers.Dumps(
        {
            "max_detections": 10, "max_classes_per_detection": classes_each, "detections_per_class": 6,
            "use_regular_nms": regular, "nms_score_threshold": threshold, "nms_iou_threshold": 0.4,
            "num_classes": CLASSES, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
        }
    )  # fmt: skip
    write.operator("TFLite_Detection_PostProcess", heads, found, CustomOptions=bytes(options))
    return write.file(write.graph([image], found))

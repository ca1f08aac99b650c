"""Tengine's operators by number, and the parameters that a tmfile has of each (`tm2_format.h`, Tengine-Lite)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Parameters = dict[str, Any]

# TM2_OPTYPE_*, from 0 on.
OPERATORS = (
    *("Accuracy", "BatchNormalization", "BilinearResize", "Concat", "Const", "Convolution", "Deconvolution"),
    *("DetectionOutput", "Dropout", "Eltwise", "Flatten", "FullyConnected", "InputOp", "LRN", "Normalize", "Permute"),
    *("Pooling", "PReLU", "PriorBox", "Region", "ReLu", "ReLu6", "Reorg", "Reshape", "ROIPooling", "RPN", "Scale"),
    *("Slice", "Softmax", "Split", "DetectionPostProcess", "Gemm", "Generic", "Logistic", "LSTM", "RNN", "Tanh"),
    *("Sigmoid", "Squeeze", "Fused.BNScaleReLu", "Pad", "StridedSlice", "ArgMax", "ArgMin", "TopKV2", "Reduction"),
    *("Maximum", "Minimum", "GRU", "Addn", "SwapAxis", "Upsample", "SpaceToBatchND", "BatchToSpaceND", "Resize"),
    *("ShuffleChannel", "Crop", "Roialign", "Psroipooling", "Unary", "Expanddims", "Bias", "Noop", "Threshold"),
    *("Hardsigmoid", "Embedding", "InstanceNorm", "MVN", "Absval", "Cast", "HardSwish", "Interp", "Selu", "Elu"),
    *("BroadMul", "Logical", "Gather", "Transpose", "Comparison", "SpaceToDepth", "DepthToSpace", "Reverse"),
    *("SparseToDense", "Ceil", "SquaredDifference", "Round", "ZerosLike", "Clip", "Unsqueeze", "ReduceL2", "Mean"),
    *("MatMul", "Expand", "Scatter", "Shape", "Where", "Tile", "Mish", "L2Pool", "LogSoftmax", "ReLU1"),
    *("L2Normalization", "Softplus", "Reciprocal"),
)


class Layout(NamedTuple):
    """An operator's parameters.

    Attributes:
        fields: the structure.
        vectors: those of its fields that are offsets of vectors of int32.
    """

    fields: np.dtype
    vectors: tuple[str, ...]


def record(fields: str) -> np.dtype:
    """A little-endian C structure from `code name` pairs, with the type codes of Python's `struct`."""
    pairs = [field.split() for field in fields.split(", ")]
    return np.dtype([(name, f"<{code}") for code, name in pairs], align=True)


def _layout(fields: str) -> Layout:
    """As `record`; the code V stands for the offset of a vector."""
    vectors = tuple(field.removeprefix("V ") for field in fields.split(", ") if field.startswith("V "))
    return Layout(record(fields.replace("V ", "I ")), vectors)


_AXIS = _layout("i axis")

# Of the operators that are translated.
PARAMETERS = {
    "BatchNormalization": _layout("f rescale, f epsilon, i caffe"),
    "Clip": _layout("f high, f low"),
    "Concat": _AXIS,
    "Convolution": _layout(
        "i kernel_h, i kernel_w, i stride_h, i stride_w, i dilation_h, i dilation_w, i input_channels, "
        "i output_channels, i groups, i activation, i pad_top, i pad_left, i pad_bottom, i pad_right"
    ),
    "Crop": _layout(
        "i inputs, i offset_c, i offset_h, i offset_w, i height, i width, B centred, i axis, i mxnet",
    ),
    "Deconvolution": _layout(
        "i output_channels, i kernel_h, i kernel_w, i stride_h, i stride_w, i pad_left, i pad_top, i pad_right, "
        "i pad_bottom, i dilation_h, i dilation_w, i groups, i activation, i output_pad_h, i output_pad_w"
    ),
    "Eltwise": _layout("I kind, i caffe, f shift, f power, f scale"),
    "Elu": _layout("f alpha"),
    "Flatten": _layout("i axis, i end_axis"),
    "Hardsigmoid": _layout("f alpha, f beta"),
    "InstanceNorm": _layout("f epsilon"),
    "Interp": _layout("i kind, f scale_w, f scale_h, i width, i height"),
    "LogSoftmax": _AXIS,
    "Pad": _layout(
        "i begin_n, i end_n, i begin_c, i end_c, i begin_h, i end_h, i begin_w, i end_w, i mode, f value",
    ),
    "Permute": _layout("i flag, i order_0, i order_1, i order_2, i order_3"),
    "Pooling": _layout(
        "I kind, i kernel_h, i kernel_w, i stride_h, i stride_w, i whole, i flavour, i pad_top, i pad_left, "
        "i pad_bottom, i pad_right"
    ),
    "ReLu": _layout("f slope"),
    "Reduction": _layout("i axis_0, i axis_1, i axis_2, i axis_3, i kind, i keep"),
    "Reshape": _layout("i mxnet, i reverse, V shape"),
    "Resize": _layout("f scale_h, f scale_w, i kind"),
    "Scale": _layout("i axis, i axes, i bias"),
    "Selu": _layout("f alpha, f scale"),
    "ShuffleChannel": _layout("i groups"),
    "Slice": _layout(
        "i axis, V points, V begins, V sizes, i caffe, i mxnet, i onnx, i begin, i end, i step",
    ),
    "Softmax": _AXIS,
    "Split": _layout("i axis, i parts, B caffe, B onnx, V sizes"),
    "Squeeze": _layout("i axis_0, i axis_1, i axis_2, i axis_3"),
    "StridedSlice": _layout(
        "i begin_n, i end_n, i step_n, i begin_c, i end_c, i step_c, i begin_h, i end_h, i step_h, "
        "i begin_w, i end_w, i step_w"
    ),
    "SwapAxis": _layout("i axis_0, i axis_1"),
    "Transpose": _layout("V order"),
    "Unary": _layout("i kind"),
    "Unsqueeze": _layout("V axes"),
    "Upsample": _layout("f scale"),
}

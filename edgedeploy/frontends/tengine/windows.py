"""Tengine's operators that slide a window over a feature map, or resize it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Shape
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.tengine.operation import Converter, Operation

_SAME_UPPER, _SAME_LOWER = -1, -2  # in the place of a padding

Bounds = Mapping[int, tuple[float, float]]  # by number of an activation

_LARGEST = 2**31 - 1  # of a dimension

# Pooling's `caffe_flavor`. COUNT_INCLUDE_PAD_MSK is the flavour of ONNX's averages over padding, too.
_FLOOR, _CEIL, _TOTAL, _FLOOR_WITH_PADDING = 0, 1, 2, 16


def _convolution(op: Operation) -> list[str]:
    """Tengine's conv_ref.c; SAME paddings as in its prototype convolution.c."""
    p, (_, channels, *sizes), window = op.parameters, op.feature_map(), _Window.of(op)
    same = same_padding(sizes, window.kernel, window.stride)
    pads = []
    for total, dilation, begin, end in zip(
        same, window.dilation, ("pad_top", "pad_left"), ("pad_bottom", "pad_right"), strict=True
    ):
        if p[begin] in (_SAME_UPPER, _SAME_LOWER) and dilation == 1:
            [before], [after] = halves([total], lower=p[begin] == _SAME_LOWER)
            pads.append((before, after))
        elif p[begin] >= 0 and p[end] >= 0:
            pads.append((p[begin], p[end]))
        else:
            raise ModelError(f"its padding is {p[begin]} and {p[end]}")
    shape = (window.outputs, channels // window.groups, *window.kernel)
    begins, ends = zip(*pads, strict=True)
    return _convolved(op, "Conv", window, shape, {1: (-1, 1), 6: (0, 6)}, pads=[*begins, *ends])


def _deconvolution(op: Operation) -> list[str]:
    """Tengine's deconv_ref.c: weights are group by group, inputs x outputs x kernel, as ONNX has them."""
    p, channels, window = op.parameters, op.feature_map()[1], _Window.of(op)
    pads = [p["pad_top"], p["pad_left"], p["pad_bottom"], p["pad_right"]]
    more = [p["output_pad_h"], p["output_pad_w"]]
    if min(pads) < 0 or any(not 0 <= extra < max(step, 2) for extra, step in zip(more, window.stride, strict=True)):
        raise ModelError(f"its paddings are {pads} and {more}")
    shape = (channels, window.outputs // window.groups, *window.kernel)
    if op.has_several_scales(1):
        raise ModelError("its weights have several scales", why="their first axis is not that of outputs")
    return _convolved(op, "ConvTranspose", window, shape, {1: (0, 1), 2: (0, 6)}, pads=pads, output_padding=more)


def _convolved(
    op: Operation, operator: str, window: _Window, weights: Shape, bounds: Bounds, **attributes: list[int]
) -> list[str]:
    """A convolution with the activation that is fused into it: none if negative, ReLU if 0, else between bounds."""
    inputs = [op.value(), op.weights(1, weights)]
    if op.inputs > 2:
        inputs.append(op.weights(2, (window.outputs,)))
    activation = op.parameters["activation"]
    if activation < 0:
        return op.finish(operator, *inputs, **window.attributes, **attributes)
    value = op.step(operator, *inputs, **window.attributes, **attributes)
    if activation == 0:
        return op.finish("Relu", value)
    if activation not in bounds:
        raise ModelError(f"its activation {activation} is not known")
    return op.clipped(value, *bounds[activation])


class _Window(NamedTuple):
    """What kinds of convolutions have in common; pairs are height and width."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    groups: int
    outputs: int

    @property
    def attributes(self) -> dict[str, Any]:
        """As ONNX has them."""
        return {"kernel_shape": self.kernel, "strides": self.stride, "dilations": self.dilation, "group": self.groups}

    @staticmethod
    def of(op: Operation) -> _Window:
        """As the parameters say, checked to be positive, and to suit the channels of the input."""
        p, channels = op.parameters, op.feature_map()[1]
        kernel, stride, dilation = ([p[f"{what}_h"], p[f"{what}_w"]] for what in ("kernel", "stride", "dilation"))
        groups, outputs = p["groups"], p["output_channels"]
        if min(*kernel, *stride, *dilation, groups, outputs) < 1 or outputs % groups:
            raise ModelError(
                "it has sizes that it cannot have",
                why=f"kernel {kernel}, stride {stride}, dilation {dilation}, groups {groups}, outputs {outputs}",
            )
        if channels % groups:
            raise ModelError(f"{channels} channels do not divide into {groups} groups")
        return _Window(kernel, stride, dilation, groups, outputs)


class _Windows(NamedTuple):
    """The windows along one axis: how many, and how many pixels of padding they reach beyond each end."""

    number: int
    begin: int
    end: int


def _windows(size: int, kernel: int, stride: int, pad: int, flavour: int) -> _Windows:
    """calc_output_size and calc_real_pads of Tengine's pooling_param.h; flavour 1 rounds up as Caffe's PoolingLayer."""
    if kernel < 1 or stride < 1:
        raise ModelError(f"its kernel is {kernel}, its stride {stride}")
    begin = pad
    if pad < 0:
        count = 1 + (size - 1) // stride
        [begin], _ = halves(same_padding([size], [kernel], [stride]))
    elif flavour == _CEIL:
        count = 1 - (kernel - size - 2 * pad) // stride
        if pad > 0 and (count - 1) * stride >= size + pad:
            count -= 1
    elif flavour == _TOTAL:
        count = 1 + (size - kernel + pad) // stride
        begin = pad // 2
    else:
        count = 1 + (size - kernel + 2 * pad) // stride
    last = (count - 1) * stride - begin
    if count < 1 or begin >= kernel or last >= size:
        raise ModelError("a window has no pixels", why=f"kernel {kernel}, stride {stride}, padding {pad}, size {size}")
    return _Windows(count, begin, max(0, last + kernel - size))


def _pooling(op: Operation) -> list[str]:
    """Tengine's pooling_ref_fp32.c. With flavour 0 averages leave padding out; else it counts, but not what lies
    beyond it, as in Caffe."""
    p = op.parameters
    sizes = op.feature_map()[2:]
    kernel, stride = (p["kernel_h"], p["kernel_w"]), (p["stride_h"], p["stride_w"])
    operator = {0: "MaxPool", 1: "AveragePool"}.get(p["kind"])
    if operator is None:
        raise ModelError(f"its kind {p['kind']} is neither the maximum nor the average")
    if p["whole"] or kernel == sizes:
        return op.finish(f"Global{operator}", op.value())
    flavour = p["flavour"]
    if flavour not in (_FLOOR, _CEIL, _TOTAL, _FLOOR_WITH_PADDING):
        raise ModelError(f"its rounding is not known: caffe_flavor {flavour}")
    pads = p["pad_top"], p["pad_left"]
    axes = [_windows(*axis, flavour) for axis in zip(sizes, kernel, stride, pads, strict=True)]
    attributes: dict[str, int | Sequence[int]] = {
        "kernel_shape": kernel,
        "strides": stride,
        "pads": [axis.begin for axis in axes] + [axis.end for axis in axes],
    }
    if operator == "MaxPool" or flavour == _FLOOR:
        return op.finish(operator, op.value(), **attributes)
    attributes["count_include_pad"] = 1
    corrections = []
    for dimension, axis in enumerate(axes):
        if axis.end > axis.begin:
            op.constants.reserve(4 * axis.number)
            beyond = np.arange(axis.number) * stride[dimension] - 2 * axis.begin + kernel[dimension] - sizes[dimension]
            factors = (kernel[dimension] / (kernel[dimension] - np.maximum(beyond, 0))).astype(np.float32)
            corrections.append(factors.reshape((1, 1, -1, 1) if dimension == 0 else (1, 1, 1, -1)))
    if not corrections:
        return op.finish(operator, op.value(), **attributes)
    value = op.step(operator, op.value(), **attributes)
    for factors in corrections[:-1]:
        value = op.step("Mul", value, op.graph.constant(factors))
    return op.finish("Mul", value, op.graph.constant(corrections[-1]))


def _interp(op: Operation) -> list[str]:
    """Tengine's interp_ref.c: both kinds have their pixels' corners, not their centres, at the same places."""
    p = op.parameters
    height, width = op.feature_map()[2:]
    mode = {1: "nearest", 2: "linear"}.get(p["kind"])
    if mode is None:
        raise ModelError(f"its kind {p['kind']} is neither nearest nor bilinear")
    if p["scale_h"] != 0 and p["scale_w"] != 0:
        return _resized(op, p["scale_h"], p["scale_w"], mode)
    if min(p["height"], p["width"]) < 1:
        raise ModelError(f"it has no size: {p['height']}x{p['width']}")
    return _resized(op, p["height"] / height, p["width"] / width, mode)


def _resize(op: Operation) -> list[str]:
    """Tengine's resize_ref.c; tm2_resize.c does not read the kind, so that all are nearest."""
    return _resized(op, op.parameters["scale_h"], op.parameters["scale_w"], "nearest")


def _upsample(op: Operation) -> list[str]:
    """Tengine's upsample_ref.c."""
    return _resized(op, op.parameters["scale"], op.parameters["scale"], "nearest")


def _resized(op: Operation, scale_h: float, scale_w: float, mode: str) -> list[str]:
    """Pixel x of the output lies at x / scale of the input."""
    batch, channels, height, width = op.feature_map()
    if not (0 < scale_h < math.inf and 0 < scale_w < math.inf):
        raise ModelError(f"its scales are {scale_h:g} and {scale_w:g}")
    # Scales are float32: a third of 30 pixels is not quite 10.
    exact = height * scale_h, width * scale_w
    rounded = [round(size) for size in exact]
    if max(exact) > _LARGEST or any(abs(size - whole) > 1e-3 for size, whole in zip(exact, rounded, strict=True)):
        raise ModelError(f"its scales {scale_h:g} and {scale_w:g} do not bring {height}x{width} to a whole size")
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    sizes = op.integers([batch, channels, *rounded])
    return op.finish("Resize", op.value(), "", "", sizes, **attributes)


CONVERTERS: dict[str, Converter] = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Interp": _interp,
    "Pooling": _pooling,
    "Resize": _resize,
    "Upsample": _upsample,
}

"""Tengine's operators that slide a window over a feature map, or resize it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from edgedeploy.errors import ModelError
from edgedeploy.frontends.graph import Shape, Value
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.tengine.graph import Converter, TengineGraph

_SAME_UPPER, _SAME_LOWER = -1, -2  # in the place of a padding

Bounds = Mapping[int, tuple[float, float]]  # by number of an activation

_LARGEST = 2**31 - 1  # of a dimension

# Pooling's `caffe_flavor`. COUNT_INCLUDE_PAD_MSK is the flavour of ONNX's averages over padding, too.
_FLOOR, _CEIL, _TOTAL, _FLOOR_WITH_PADDING = 0, 1, 2, 16


def _convolution(graph: TengineGraph) -> Value:
    """Tengine's conv_ref.c; SAME paddings as in its prototype convolution.c."""
    p, (_, channels, *sizes), window = graph.parameters, graph.feature_map(), _Window.of(graph)
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
    return _convolved(graph, "Conv", window, shape, {1: (-1, 1), 6: (0, 6)}, pads=[*begins, *ends])


def _deconvolution(graph: TengineGraph) -> Value:
    """Tengine's deconv_ref.c: weights are group by group, inputs x outputs x kernel, as ONNX has them."""
    p, channels, window = graph.parameters, graph.feature_map()[1], _Window.of(graph)
    pads = [p["pad_top"], p["pad_left"], p["pad_bottom"], p["pad_right"]]
    more = [p["output_pad_h"], p["output_pad_w"]]
    if min(pads) < 0 or any(not 0 <= extra < max(step, 2) for extra, step in zip(more, window.stride, strict=True)):
        raise ModelError(f"its paddings are {pads} and {more}")
    shape = (channels, window.outputs // window.groups, *window.kernel)
    if graph.has_several_scales(1):
        raise ModelError("its weights have several scales", why="their first axis is not that of outputs")
    return _convolved(graph, "ConvTranspose", window, shape, {1: (0, 1), 2: (0, 6)}, pads=pads, output_padding=more)


def _convolved(
    graph: TengineGraph, operator: str, window: _Window, weights: Shape, bounds: Bounds, **attributes: Any
) -> Value:
    """A convolution with the activation that is fused into it: none if negative, ReLU if 0, else between bounds."""
    inputs = [graph.value(), graph.weights(1, weights)]
    if graph.inputs > 2:
        inputs.append(graph.weights(2, (window.outputs,)))
    value = graph.node(operator, *inputs, **window.attributes, **attributes)
    activation = graph.parameters["activation"]
    if activation < 0:
        return value
    if activation == 0:
        return graph.node("Relu", value)
    if activation not in bounds:
        raise ModelError(f"its activation {activation} is not known")
    return graph.clip(value, *bounds[activation])


class _Window(NamedTuple):
    """The window of a convolution; pairs are height and width."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    groups: int
    outputs: int

    @property
    def attributes(self) -> dict[str, Any]:
        return {"kernel_shape": self.kernel, "strides": self.stride, "dilations": self.dilation, "group": self.groups}

    @staticmethod
    def of(graph: TengineGraph) -> _Window:
        """As the parameters state it, checked to be positive, and to suit the channels of the input."""
        p, channels = graph.parameters, graph.feature_map()[1]
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


def _windows(size: int, kernel: int, stride: int, pad: int, flavour: int) -> tuple[int, int, int]:
    """Along one axis, the number of windows, and the pixels of padding that they reach beyond each end.

    By calc_output_size and calc_real_pads of Tengine's pooling_param.h; flavour 1 rounds up as Caffe's PoolingLayer.
    """
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
    return count, begin, max(0, last + kernel - size)


def _pooling(graph: TengineGraph) -> Value:
    """Tengine's pooling_ref_fp32.c.

    With flavour 0 averages leave padding out; else it counts, but not pixels beyond it, as in Caffe.
    """
    p = graph.parameters
    sizes = graph.feature_map()[2:]
    kernel, stride = (p["kernel_h"], p["kernel_w"]), (p["stride_h"], p["stride_w"])
    operator = graph.one_of("kind", ("MaxPool", "AveragePool"))
    if p["whole"] or kernel == sizes:
        return graph.node(f"Global{operator}", graph.value())
    flavour = p["flavour"]
    if flavour not in (_FLOOR, _CEIL, _TOTAL, _FLOOR_WITH_PADDING):
        raise ModelError(f"its rounding is not known: caffe_flavor {flavour}")
    pads = p["pad_top"], p["pad_left"]
    axes = [_windows(*axis, flavour) for axis in zip(sizes, kernel, stride, pads, strict=True)]
    _, begins, ends = zip(*axes, strict=True)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride, "pads": [*begins, *ends]}
    if operator == "MaxPool" or flavour == _FLOOR:
        return graph.node(operator, graph.value(), **attributes)
    value = graph.node(operator, graph.value(), **attributes, count_include_pad=1)
    for dimension, (count, begin, end) in enumerate(axes):
        if end > begin:
            graph.reserve(4 * count)
            extent = kernel[dimension]
            beyond = np.arange(count) * stride[dimension] - 2 * begin + extent - sizes[dimension]
            factors = extent / (extent - np.maximum(beyond, 0))
            shape = (1, 1, -1, 1) if dimension == 0 else (1, 1, 1, -1)
            value = graph.node("Mul", value, graph.floats(factors.reshape(shape)))
    return value


def _interp(graph: TengineGraph) -> Value:
    """Tengine's interp_ref.c: both kinds align the corners of pixels, not their centres."""
    p = graph.parameters
    height, width = graph.feature_map()[2:]
    mode = {1: "nearest", 2: "linear"}.get(p["kind"])
    if mode is None:
        raise ModelError(f"its kind {p['kind']} is neither nearest nor bilinear")
    if p["scale_h"] != 0 and p["scale_w"] != 0:
        return _resized(graph, p["scale_h"], p["scale_w"], mode)
    if min(p["height"], p["width"]) < 1:
        raise ModelError(f"it has no size: {p['height']}x{p['width']}")
    return _resized(graph, p["height"] / height, p["width"] / width, mode)


def _nearest(height: str, width: str) -> Converter:
    """Tengine's resize_ref.c and upsample_ref.c; tm2_resize.c does not read the kind, so that all are nearest."""
    return lambda graph: _resized(graph, graph.parameters[height], graph.parameters[width], "nearest")


def _resized(graph: TengineGraph, scale_h: float, scale_w: float, mode: str) -> Value:
    """Pixel x of the output is at x / scale of the input."""
    batch, channels, height, width = graph.feature_map()
    if not (0 < scale_h < math.inf and 0 < scale_w < math.inf):
        raise ModelError(f"its scales are {scale_h:g} and {scale_w:g}")
    exact = height * scale_h, width * scale_w  # scales are float32: a third of 30 pixels is not quite 10
    rounded = [round(size) for size in exact]
    if max(exact) > _LARGEST or any(abs(size - whole) > 1e-3 for size, whole in zip(exact, rounded, strict=True)):
        raise ModelError(f"its scales {scale_h:g} and {scale_w:g} do not bring {height}x{width} to a whole size")
    sizes = graph.integers([batch, channels, *rounded])
    return graph.resize(graph.value(), "", sizes, mode=mode, transform="asymmetric", nearest_mode="floor")


CONVERTERS: dict[str, Converter] = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Interp": _interp,
    "Pooling": _pooling,
    "Resize": _nearest("scale_h", "scale_w"),
    "Upsample": _nearest("scale", "scale"),
}

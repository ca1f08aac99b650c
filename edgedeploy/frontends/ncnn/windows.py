"""Convolutions, dense layers, both of them perhaps of 8 bits, and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgedeploy.frontends.graph import Value, times
from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.ncnn.elementwise import activated
from edgedeploy.frontends.ncnn.graph import CHECK_INPUT, UNSET, NcnnGraph, translates
from edgedeploy.frontends.ncnn.text import NcnnLayer

# In the place of padding: as much as gives size / stride windows, the odd one at the end or at the beginning.
SAME_UPPER, SAME_LOWER = -233, -234

_COMMON = {0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16}
_CONVOLUTION = _COMMON | {8, 17, 18, 19}
_DECONVOLUTION = _COMMON | {18, 19, 20, 21, 28}


@dataclass(frozen=True)
class _Window:
    """The window of a convolution, with its padding before and after; pairs are height and width."""

    kernel: list[int]
    stride: list[int]
    dilation: list[int]
    begins: list[int]
    ends: list[int]

    @property
    def extent(self) -> list[int]:
        return [gap * (size - 1) + 1 for gap, size in zip(self.dilation, self.kernel, strict=True)]

    @property
    def attributes(self) -> dict[str, Any]:
        return {"kernel_shape": self.kernel, "strides": self.stride, "dilations": self.dilation}

    @staticmethod
    def of(graph: NcnnGraph) -> _Window:
        layer = graph.layer
        kernel, dilation, stride = _pair(layer, 11, 1), _pair(layer, 12, 2, 1), _pair(layer, 13, 3, 1)
        top, left = begins = _pair(layer, 14, 4)
        window = _Window(kernel, stride, dilation, begins, [layer.integer(16, top), layer.integer(15, left)])
        if min(*window.kernel, *window.stride, *window.dilation) < 1:
            raise layer.error("kernel, stride and dilation should be positive")
        return window

    def padding(self, graph: NcnnGraph, same: Sequence[int]) -> tuple[list[int], list[int]]:
        """Padding before and after; `same` is how much there is in all, where the parameters leave it open."""
        pads = {*self.begins, *self.ends}
        if pads in ({SAME_UPPER}, {SAME_LOWER}):
            return halves(same, lower=pads == {SAME_LOWER})
        if min(pads) < 0:
            raise graph.layer.error("padding should not be negative")
        return self.begins, self.ends


def _pair(layer: NcnnLayer, down: int, across: int, default: int = 0) -> list[int]:
    """Height and width by parameters with these numbers; the height is the width unless it is stated."""
    width = layer.integer(across, default)
    return [layer.integer(down, width), width]


@translates("Convolution", _CONVOLUTION, 1, 3)
def _convolution(graph: NcnnGraph, blob: Value) -> Value | Sequence[Value]:
    layer = graph.layer
    if blob.rank == 3:
        return _grouped_convolution(graph, blob)
    # A convolution of 1 x 1 on a vector is a dense layer.
    if _Window.of(graph).kernel != [1, 1]:
        raise layer.error("its input is a vector, and its kernel larger than 1x1")
    return _dense(graph, blob, layer.integer(0), layer.integer(6), with_bias=layer.integer(5) != 0)


@translates("ConvolutionDepthWise", {*_CONVOLUTION, 7}, 3)
def _grouped_convolution(graph: NcnnGraph, blob: Value) -> Value:
    layer, window = graph.layer, _Window.of(graph)
    groups, outputs = layer.integer(7, 1), layer.integer(0)
    if layer.integer(19):
        raise layer.error("its weights come from another layer")
    quantised = layer.integer(8) != 0
    weights, *bias = _weights(graph, blob.shape[0], outputs, groups, window.kernel, quantised=quantised)
    scales = _Scales.read(graph, outputs, groups if layer.kind == "ConvolutionDepthWise" else 0)
    blob = _rounded(graph, blob, scales.data) if scales else blob
    begins, ends = window.padding(graph, same_padding(blob.shape[1:], window.extent, window.stride))
    if fill := layer.number(18):
        if quantised:
            raise layer.error("its padding has a value other than zero, and its input 8 bits")
        blob = graph.pad(blob, [0, *begins], [0, *ends], fill=fill)
        begins = ends = [0, 0]
    operands = [scales.dequantised(graph, weights) if scales else graph.floats(weights), *map(graph.floats, bias)]
    result = graph.node("Conv", blob, *operands, group=groups, pads=[*begins, *ends], **window.attributes)
    return _rounded(graph, activated(graph, result), scales.result if scales else None)


@translates("Deconvolution", _DECONVOLUTION, 3)
@translates("DeconvolutionDepthWise", {*_DECONVOLUTION, 7}, 3)
def _deconvolution(graph: NcnnGraph, blob: Value) -> Value:
    layer, window = graph.layer, _Window.of(graph)
    groups = layer.integer(7, 1)
    if layer.integer(28):
        raise layer.error("its weights come from another layer")
    outputs, inputs = layer.integer(0), blob.shape[0]
    weights, *bias = _weights(graph, inputs, outputs, groups, window.kernel)
    # ONNX has the inputs of all groups first.
    weights = weights.reshape(groups, outputs // groups, inputs // groups, *window.kernel)
    weights = weights.swapaxes(1, 2).reshape(inputs, outputs // groups, *window.kernel)
    more = _pair(layer, 19, 18)
    places = zip(blob.shape[1:], window.stride, window.extent, more, strict=True)
    whole = [(size - 1) * stride + extent + extra for size, stride, extent, extra in places]
    wanted = _pair(layer, 21, 20)  # if the padding is left open, the output's size is stated instead
    begins, ends = window.padding(graph, [size - inner for size, inner in zip(whole, wanted, strict=True)])
    if min(more) < 0 or min(wanted) < 0:
        raise layer.error("sizes of the output should not be negative")
    if min(window.begins) < 0 and 0 in wanted:
        raise layer.error("neither its padding nor the size of its output is stated")
    # Additions and cuts at the end become one number.
    cut = [max(end - extra, 0) for end, extra in zip(ends, more, strict=True)]
    added = [max(extra - end, 0) for end, extra in zip(ends, more, strict=True)]
    padding: dict[str, Any] = {"pads": [*begins, *cut], "output_padding": added}
    operands = map(graph.floats, (weights, *bias))
    return activated(graph, graph.node("ConvTranspose", blob, *operands, group=groups, **padding, **window.attributes))


@translates("InnerProduct", (0, 1, 2, 8, 9, 10))
def _inner_product(graph: NcnnGraph, blob: Value, outputs: int = 0, with_bias: bool = False, count: int = 0) -> Value:
    # A matrix with as many columns as weights is multiplied row by row; all else is one vector.
    if blob.rank != 2 or outputs < 1 or count != outputs * blob.shape[1]:
        blob = graph.reshape(blob, [math.prod(blob.shape)])
    return _dense(graph, blob, outputs, count, with_bias=with_bias)


def _dense(graph: NcnnGraph, blob: Value, outputs: int, count: int, *, with_bias: bool) -> Value:
    """The product of the last axis with weights, outputs x inputs in the file, and the activation."""
    inputs = blob.shape[-1]
    _check_count(graph, count, outputs, [outputs, inputs])
    weights = graph.weights.tagged(outputs, inputs, quantised=graph.layer.integer(8) != 0)
    bias = [graph.weights.plain(outputs)] if with_bias else []
    scales = _Scales.read(graph, outputs)
    blob = _rounded(graph, blob, scales.data) if scales else blob
    rows = blob.rank > 1
    if scales:
        operand = scales.dequantised(graph, weights, transposed=rows)
    else:
        operand = graph.floats(np.ascontiguousarray(weights.T) if rows else weights)
    if rows:
        result = graph.node("MatMul", blob, operand)
        result = graph.node("Add", result, graph.floats(bias[0])) if bias else result
    else:
        result = graph.node("Gemm", blob, operand, *map(graph.floats, bias), transB=1)
    return _rounded(graph, activated(graph, result), scales.result if scales else None)


def _weights(
    graph: NcnnGraph, inputs: int, outputs: int, groups: int, kernel: list[int], *, quantised: bool = False
) -> list[np.ndarray]:
    """The weights, outputs x inputs of a group x height x width, and the bias if there is one."""
    layer = graph.layer
    if groups < 1 or inputs % groups or outputs % groups:
        raise layer.error(f"{inputs} inputs and {outputs} outputs do not fit {groups} groups")
    shape = [outputs, inputs // groups, *kernel]
    _check_count(graph, layer.integer(6), outputs, shape)
    weights = graph.weights.tagged(*shape, quantised=quantised)
    return [weights, graph.weights.plain(outputs)] if layer.integer(5) else [weights]


def _check_count(graph: NcnnGraph, stated: int, outputs: int, shape: Sequence[int]) -> None:
    if outputs < 1:
        raise graph.layer.error("its number of outputs (parameter 0) should be positive")
    if stated != math.prod(shape):
        why = f"it states {stated} weights, and {times(shape)} are needed for the shape of its input"
        raise graph.layer.error(why, CHECK_INPUT)


# ncnn's scales of 8 bits are factors: an integer is `round(value * scale)` within -127 and 127, halves away from zero
# (float2int8 in src/layer/quantize.cpp). Sums become real numbers before the bias is added, which stays in float32.
_LARGEST = 127
_REQUANTISED = 100  # if parameter 8 is larger, the output is rounded too
_FORMS = (0, 1, 2, 101, 102)


@dataclass(frozen=True)
class _Scales:
    """The scales of a layer that `ncnn2int8` wrote."""

    weights: np.ndarray  # one for each output; zero if all of an output's weights are
    data: float  # of the input
    result: float | None  # of the output; None if it stays in float32

    @staticmethod
    def read(graph: NcnnGraph, outputs: int, groups: int = 0) -> _Scales | None:
        """The next scales of the file, for each of `groups` of a grouped convolution; None if the layer is in float."""
        layer = graph.layer
        form = layer.integer(8)
        if form not in _FORMS:
            raise layer.error(f"its form of quantisation (parameter 8) is {form}, which is not known")
        if not form:
            return None
        count = (1 if form % _REQUANTISED == 2 else groups) if groups else outputs
        weights = graph.weights.scales(count)
        [data] = graph.weights.scales(1)
        [result] = graph.weights.scales(1) if form > _REQUANTISED else [np.float32(1)]
        if not np.isfinite([*weights, data, result]).all() or min(data, result) <= 0 or weights.min() < 0:
            raise layer.error("its scales (of weights, input or output) are impossible")
        return _Scales(np.repeat(weights, outputs // count), data, result if form > _REQUANTISED else None)

    def dequantised(self, graph: NcnnGraph, weights: np.ndarray, *, transposed: bool = False) -> Value:
        """The real numbers of weights, whose first axis is that of outputs, or the last when they are transposed."""
        if weights.dtype != np.int8:  # float32 ones are rounded as when ncnn loads them
            scaled = weights * self.weights.reshape(-1, *[1] * (weights.ndim - 1))
            rounded = np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))
            weights = np.clip(rounded, -_LARGEST, _LARGEST).astype(np.int8)
        weights = np.ascontiguousarray(weights.T) if transposed else weights
        steps = np.where(self.weights > 0, 1 / np.where(self.weights > 0, self.weights, 1), 1)
        operands = graph.constant(weights), graph.floats(steps), graph.constant(np.zeros(len(steps), np.int8))
        # Counted from the end, as weights have no batch.
        return graph.node("DequantizeLinear", *operands, axis=-1 if transposed else -weights.ndim)


def _rounded(graph: NcnnGraph, blob: Value, scale: float | None) -> Value:
    """A blob as 8 bits can hold it; unchanged without a scale."""
    if scale is None or graph.factors.get(blob) == scale:
        return blob
    result = graph.round_half_away(blob, np.float32(1) / np.float32(scale), np.zeros((), np.int8))
    graph.factors[result] = scale
    return result


_FULL, _VALID, _SAME_UPPER, _SAME_LOWER = range(4)


@translates("Pooling", {*range(9), *range(11, 16), 18}, 3)
def _pooling(graph: NcnnGraph, blob: Value) -> Value:
    layer = graph.layer
    operator = layer.one_of(0, "pooling", ("MaxPool", "AveragePool"))
    if layer.integer(4):
        return graph.reshape(graph.node(f"Global{operator}", blob), blob.shape[:1])
    if layer.integer(7):
        kernel = _adaptive_kernel(graph, blob)
        return graph.node(operator, blob, kernel_shape=kernel, strides=kernel)
    kernel, strides = _pair(layer, 11, 1), _pair(layer, 12, 2, 1)
    top, left = begins = _pair(layer, 13, 3)
    ends = [layer.integer(15, top), layer.integer(14, left)]
    if min(*kernel, *strides) < 1 or min(*begins, *ends) < 0:
        raise layer.error("kernel and stride should be positive, and padding not negative")
    mode = layer.one_of(5, "padding", (_FULL, _VALID, _SAME_UPPER, _SAME_LOWER))
    # Unlike TensorFlow, ncnn counts the zeros of SAME among the values of an average.
    counted = layer.integer(6) != 0 or mode in (_SAME_UPPER, _SAME_LOWER)
    if mode in (_SAME_UPPER, _SAME_LOWER):
        begins, ends = halves(same_padding(blob.shape[1:], kernel, strides), lower=mode == _SAME_LOWER)
    used = []
    for size, begin, end, extent, stride in zip(blob.shape[1:], begins, ends, kernel, strides, strict=True):
        steps, rest = divmod(size + begin + end - extent, stride)
        if mode == _FULL and rest:
            steps += 1
        end = max(steps * stride + extent - size - begin, 0)  # padding ends with the last window
        if max(begin, end) >= extent:
            raise layer.error("a window lies in the padding alone")
        used.append(end)
    more: dict[str, Any] = {"count_include_pad": int(counted)} if operator == "AveragePool" else {}
    return graph.node(operator, blob, kernel_shape=kernel, strides=strides, pads=[*begins, *used], **more)


def _adaptive_kernel(graph: NcnnGraph, blob: Value) -> list[int]:
    """The windows, without overlap, of pooling to a stated size, which must divide that of the input."""
    layer, sizes = graph.layer, blob.shape[1:]
    wanted = [size if want == UNSET else want for size, want in zip(sizes, _pair(layer, 18, 8), strict=True)]
    if min(wanted) < 1 or any(size % want for size, want in zip(sizes, wanted, strict=True)):
        raise layer.error(f"pooling from {sizes[0]}x{sizes[1]} to {wanted[0]}x{wanted[1]} needs windows of many sizes")
    return [size // want for size, want in zip(sizes, wanted, strict=True)]

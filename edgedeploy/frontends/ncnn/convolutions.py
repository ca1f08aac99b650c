"""Convolutions, their transposed forms, and dense layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgedeploy.frontends.importing import halves, same_padding
from edgedeploy.frontends.ncnn.elementwise import activated
from edgedeploy.compile.quantisation import rounded
from edgedeploy.frontends.ncnn.quantised import Scales
from edgedeploy.compile.backends.cpu.steps import Step
from edgedeploy.frontends.ncnn.graph import translates
from edgedeploy.frontends.ncnn.step import Blob

# In the place of padding: as much as keeps size / stride, the odd one at the end or at the beginning.
SAME_UPPER, SAME_LOWER = -233, -234

_COMMON = {0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 16}
_CONVOLUTION = _COMMON | {8, 17, 18, 19}
_DECONVOLUTION = _COMMON | {18, 19, 20, 21, 28}


@dataclass(frozen=True)
class _Window:
    """What all kinds of convolutions have; pairs are height and width.

    Attributes:
        kernel, stride, dilation: positive.
        extent: of the kernel with its gaps.
        begins, ends: padding before and after.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    begins: tuple[int, int]
    ends: tuple[int, int]

    @property
    def extent(self) -> tuple[int, int]:
        height, width = (gap * (size - 1) + 1 for gap, size in zip(self.dilation, self.kernel, strict=True))
        return height, width

    @staticmethod
    def of(step: Step) -> _Window:
        """As the parameters say."""
        layer = step.layer
        width, gap, stride, left = (layer.integer(number, default) for number, default in enumerate((0, 1, 1, 0), 1))
        top = layer.integer(14, left)
        window = _Window(
            kernel=(layer.integer(11, width), width),
            stride=(layer.integer(13, stride), stride),
            dilation=(layer.integer(12, gap), gap),
            begins=(top, left),
            ends=(layer.integer(16, top), layer.integer(15, left)),
        )
        if min(*window.kernel, *window.stride, *window.dilation) < 1:
            raise layer.error("kernel, stride and dilation should be positive")
        return window

    @property
    def attributes(self) -> dict[str, Sequence[int]]:
        return {"kernel_shape": self.kernel, "strides": self.stride, "dilations": self.dilation}

    def padding(self, step: Step, same: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Padding before and after; `same` is how much there is in all, where the parameters leave it open."""
        pads = {*self.begins, *self.ends}
        if pads in ({SAME_UPPER}, {SAME_LOWER}):
            return halves(same, lower=pads == {SAME_LOWER})
        if min(pads) < 0:
            raise step.layer.error("padding should not be negative")
        return self.begins, self.ends


@translates("Convolution", _CONVOLUTION)
def _convolution(step: Step) -> Blob | Sequence[Blob]:
    blob = step.only_input(1, 3)
    return _on_a_vector(step, blob) if blob.rank == 1 else _grouped_convolution(step)


@translates("ConvolutionDepthWise", {*_CONVOLUTION, 7})
def _grouped_convolution(step: Step) -> Blob:
    layer, window, blob = step.layer, _Window.of(step), step.only_input(3)
    groups, outputs = layer.integer(7, 1), layer.integer(0)
    if layer.integer(19):
        raise layer.error("its weights come from another layer")
    quantised = layer.integer(8) != 0
    weights, *bias = _weights(step, blob.shape[0], outputs, groups, window.kernel, quantised=quantised)
    scales = Scales.read(step, outputs, groups if layer.kind == "ConvolutionDepthWise" else 0)
    blob = rounded(step, blob, scales.data) if scales else blob
    begins, ends = window.padding(step, same_padding(blob.shape[1:], window.extent, window.stride))
    if layer.number(18) and quantised:
        raise layer.error("its padding has a value other than zero, and its input 8 bits")
    if layer.number(18):  # the value of padding
        blob = step.pad(blob, [0, *begins], [0, *ends], value=layer.number(18))
        begins = ends = (0, 0)
    held = scales.dequantised(step, weights) if scales else step.constant(weights)
    operands = [held, *map(step.constant, bias)]
    made = step.node("Conv", blob, *operands, group=groups, pads=[*begins, *ends], **window.attributes)
    return rounded(step, activated(step, made), scales.result if scales else None)


@translates("Deconvolution", _DECONVOLUTION)
@translates("DeconvolutionDepthWise", {*_DECONVOLUTION, 7})
def _deconvolution(step: Step) -> Blob:
    layer, window, blob = step.layer, _Window.of(step), step.only_input(3)
    groups = layer.integer(7, 1)
    if layer.integer(28):
        raise layer.error("its weights come from another layer")
    outputs, inputs = layer.integer(0), blob.shape[0]
    weights, *bias = _weights(step, inputs, outputs, groups, window.kernel)
    # ONNX has the inputs of all groups first.
    weights = weights.reshape(groups, outputs // groups, inputs // groups, *window.kernel)
    weights = weights.swapaxes(1, 2).reshape(inputs, outputs // groups, *window.kernel)
    right = layer.integer(18)
    more = (layer.integer(19, right), right)
    places = zip(blob.shape[1:], window.stride, window.extent, more, strict=True)
    whole = [(size - 1) * stride + extent + extra for size, stride, extent, extra in places]
    # Where the padding is left open, the output's size is stated instead.
    width = layer.integer(20)
    wanted = (layer.integer(21, width), width)
    begins, ends = window.padding(step, [size - inner for size, inner in zip(whole, wanted, strict=True)])
    if min(more) < 0 or min(wanted) < 0:
        raise layer.error("sizes of the output should not be negative")
    if min(window.begins) < 0 and 0 in wanted:
        raise layer.error("neither its padding nor the size of its output is stated")
    # What is added at the end, and what is cut off there, become one number.
    cut = [max(end - extra, 0) for end, extra in zip(ends, more, strict=True)]
    added = [max(extra - end, 0) for end, extra in zip(ends, more, strict=True)]
    operands = [step.constant(values) for values in (weights, *bias)]
    return activated(
        step,
        step.node(
            "ConvTranspose",
            blob,
            *operands,
            group=groups,
            pads=[*begins, *cut],
            output_padding=added,
            **window.attributes,
        ),
    )


@translates("InnerProduct", {0, 1, 2, 8, 9, 10})
def _inner_product(step: Step) -> Blob:
    blob, layer = step.only_input(), step.layer
    outputs, bias, count = layer.integer(0), layer.integer(1), layer.integer(2)
    rows = blob.rank == 2 and outputs > 0 and count == outputs * blob.shape[1]
    # Each row of a matrix with as many columns as weights is multiplied on its own; all else is one vector.
    return _dense(step, blob if rows else _flat(step, blob), outputs, count, with_bias=bias != 0)


def _on_a_vector(step: Step, blob: Blob) -> Blob:
    """A convolution of 1 x 1 on a vector is a dense layer."""
    window, layer = _Window.of(step), step.layer
    if window.kernel != (1, 1):
        raise layer.error("its input is a vector, and its kernel larger than 1x1")
    return _dense(step, blob, layer.integer(0), layer.integer(6), with_bias=layer.integer(5) != 0)


def _dense(step: Step, blob: Blob, outputs: int, count: int, *, with_bias: bool) -> Blob:
    """The product of the last axis with weights, outputs x inputs in the file, and the activation."""
    inputs, name = blob.shape[-1], step.layer.name
    _check_count(step, count, outputs, [outputs, inputs])
    weights = step.weights.tagged([outputs, inputs], name, quantised=step.layer.integer(8) != 0)
    bias = step.weights.plain([outputs], name) if with_bias else None
    scales = Scales.read(step, outputs)
    blob = rounded(step, blob, scales.data) if scales else blob
    rows = blob.rank > 1
    if scales:
        held = scales.dequantised(step, weights, transposed=rows)
    else:
        held = step.constant(np.ascontiguousarray(weights.T) if rows else weights)
    if rows:
        made = step.node("MatMul", blob, held)
        made = made if bias is None else step.node("Add", made, step.constant(bias))
    else:
        made = step.node("Gemm", blob, held, *([] if bias is None else [step.constant(bias)]), transB=1)
    return rounded(step, activated(step, made), scales.result if scales else None)


def _flat(step: Step, blob: Blob) -> Blob:
    return step.reshape(blob, [math.prod(blob.shape)])


def _weights(
    step: Step, inputs: int, outputs: int, groups: int, kernel: tuple[int, int], *, quantised: bool = False
) -> list[np.ndarray]:
    """The weights, outputs x inputs of a group x height x width, and the bias if there is one."""
    layer = step.layer
    if groups < 1 or inputs % groups or outputs % groups:
        raise layer.error(f"{inputs} inputs and {outputs} outputs do not fit {groups} groups")
    shape = [outputs, inputs // groups, *kernel]
    _check_count(step, layer.integer(6), outputs, shape)
    weights = step.weights.tagged(shape, layer.name, quantised=quantised)
    return [weights, step.weights.plain([outputs], layer.name)] if layer.integer(5) else [weights]


def _check_count(step: Step, stated: int, outputs: int, shape: Sequence[int]) -> None:
    """Check the count of weights that the layer states against the shapes that it is between."""
    if outputs < 1:
        raise step.layer.error("its number of outputs (parameter 0) should be positive")
    if stated != math.prod(shape):
        shown = "x".join(map(str, shape))
        raise step.layer.error(
            f"it states {stated} weights, and {shown} are needed for the shape of its input",
            "check the shape of the network's input",
        )

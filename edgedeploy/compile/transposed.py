"""Transposed convolutions as convolutions: one for each place that an output has between its inputs.

With strides of s, output `s q + r - p` (p being the padding) sums `x[q - m] w[s m + r]` over m: for each phase r, a
convolution with every s-th kernel element, in reversed order. Outputs of all phases are computed as channels of one
pixel, and laid side by side then.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.layouts import NCHW_OF_NHWC
from edgedeploy.compile.lowering import NHWC_OF_NCHW


def rewrite_transposed(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each `conv2d_transpose` in NCHW with constant weights and no dilation; sums keep their terms."""
    return rewritten(_Convolver, module)


class _Convolver(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.nn.conv2d_transpose"):
            return None
        attrs, weights = call.attrs, constant_value(call.args[1])
        strides, kernel = _pair(attrs.strides), weights.shape[2:] if weights is not None else ()
        top, left, bottom, right = (int(width) for width in attrs.padding)
        plain = (attrs.data_layout, attrs.kernel_layout, _pair(attrs.dilation)) == ("NCHW", "IOHW", (1, 1))
        if weights is None or not plain or max(top, bottom) >= kernel[0] or max(left, right) >= kernel[1]:
            return None
        batch, _, *sizes = shape_of(call.args[0])
        _, channels, height, width = shape_of(call)
        elements = [-(-count // stride) for count, stride in zip(kernel, strides, strict=True)]
        # Pixels of all phases that reach to the end of the output.
        pixels = [
            -(-(size + begin) // stride)
            for size, begin, stride in zip((height, width), (top, left), strides, strict=True)
        ]
        padding = [elements[0] - 1, elements[1] - 1, pixels[0] - sizes[0], pixels[1] - sizes[1]]
        if min(padding) < 0:
            return None
        groups = int(attrs.groups)
        phases = _phases(weights, strides, elements, groups)
        # Groups must stay together in a convolution's outputs, phases in the result: each phase gets one of its own.
        parts = [phases.reshape(-1, *phases.shape[2:])] if groups == 1 else list(phases)
        results = [
            self.emit(relax.op.nn.conv2d(call.args[0], constant(part), padding=padding, groups=groups))
            for part in parts
        ]
        result = self.emit(relax.op.concat(results, 1)) if len(results) > 1 else results[0]
        result = self.emit(relax.op.permute_dims(result, NHWC_OF_NCHW))
        result = self.emit(relax.op.reshape(result, [batch, *pixels, *strides, channels]))
        result = self.emit(relax.op.permute_dims(result, [0, 1, 3, 2, 4, 5]))
        whole = [count * stride for count, stride in zip(pixels, strides, strict=True)]
        result = self.emit(relax.op.reshape(result, [batch, *whole, channels]))
        if whole != [height, width]:
            cut = relax.op.strided_slice(result, axes=[1, 2], begin=[top, left], end=[top + height, left + width])
            result = self.emit(cut)
        return relax.op.permute_dims(result, NCHW_OF_NHWC)


def _phases(weights: np.ndarray, strides: tuple[int, int], elements: list[int], groups: int) -> np.ndarray:
    """The weights of each phase's convolution.

    Args:
        weights: inputs x outputs of a group x rows x columns of kernel elements.
        strides: of the transposed convolution.
        elements: of each phase, rows and columns; those that it lacks are zero.
        groups: of channels.

    Returns:
        phases x outputs x inputs of a group x rows x columns of kernel elements.
    """
    inputs, outputs, height, width = weights.shape
    widths = [
        (0, count * stride - size) for count, stride, size in zip(elements, strides, (height, width), strict=True)
    ]
    whole = np.pad(weights, [(0, 0), (0, 0), *widths])
    split = whole.reshape(groups, inputs // groups, outputs, elements[0], strides[0], elements[1], strides[1])[
        :, :, :, ::-1, :, ::-1
    ]
    # group, input, output, row, phase down, column, phase across
    ordered = split.transpose(4, 6, 0, 2, 1, 3, 5)
    return np.ascontiguousarray(ordered.reshape(strides[0] * strides[1], groups * outputs, inputs // groups, *elements))


def _pair(values: object) -> tuple[int, int]:
    first, second = (int(value) for value in values)  # type: ignore[attr-defined]
    return first, second

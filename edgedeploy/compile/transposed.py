"""Transposed convolutions as convolutions: one for each place that an output has between its inputs.

With steps of s, output `s q + r - p` (p being the padding) sums `x[q - m] w[s m + r]` over m: for each phase r, a
convolution with every s-th tap, in reversed order. Outputs of all phases are computed as channels of one pixel, and
laid side by side then.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import constant_value, is_call, rewritten
from edgedeploy.compile.layouts import NCHW_OF_NHWC
from edgedeploy.compile.lowering import NHWC_OF_NCHW


def rewrite_transposed(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each `conv2d_transpose` in NCHW with constant weights and no dilation; sums keep their terms."""
    return rewritten(_Rewriter(module), module)


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.nn.conv2d_transpose"):
            return call
        attrs, weights = call.attrs, constant_value(call.args[1])
        steps, kernel = _pair(attrs.strides), weights.shape[2:] if weights is not None else ()
        top, left, bottom, right = (int(width) for width in attrs.padding)
        plain = (attrs.data_layout, attrs.kernel_layout, _pair(attrs.dilation)) == ("NCHW", "IOHW", (1, 1))
        if weights is None or not plain or max(top, bottom) >= kernel[0] or max(left, right) >= kernel[1]:
            return call
        batch, _, *sizes = (int(size) for size in call.args[0].ty.shape)
        _, channels, height, width = (int(size) for size in call.ty.shape)
        taps = [-(-count // step) for count, step in zip(kernel, steps, strict=True)]
        # Pixels of all phases that reach to the end of the output.
        pixels = [
            -(-(size + begin) // step) for size, begin, step in zip((height, width), (top, left), steps, strict=True)
        ]
        padding = [taps[0] - 1, taps[1] - 1, pixels[0] - sizes[0], pixels[1] - sizes[1]]
        if min(padding) < 0:
            return call
        groups = int(attrs.groups)
        phases = _phases(weights, steps, taps, groups)
        # Groups must stay together in a convolution's outputs, phases in the result: each phase gets one of its own.
        parts = [phases.reshape(-1, *phases.shape[2:])] if groups == 1 else list(phases)
        results = [
            self.builder_.emit(relax.op.nn.conv2d(call.args[0], relax.const(part), padding=padding, groups=groups))
            for part in parts
        ]
        result = self.builder_.emit(relax.op.concat(results, 1)) if len(results) > 1 else results[0]
        result = self.builder_.emit(relax.op.permute_dims(result, NHWC_OF_NCHW))
        result = self.builder_.emit(relax.op.reshape(result, [batch, *pixels, *steps, channels]))
        result = self.builder_.emit(relax.op.permute_dims(result, [0, 1, 3, 2, 4, 5]))
        whole = [count * step for count, step in zip(pixels, steps, strict=True)]
        result = self.builder_.emit(relax.op.reshape(result, [batch, *whole, channels]))
        if whole != [height, width]:
            cut = relax.op.strided_slice(result, axes=[1, 2], begin=[top, left], end=[top + height, left + width])
            result = self.builder_.emit(cut)
        return relax.op.permute_dims(result, NCHW_OF_NHWC)


def _phases(weights: np.ndarray, steps: tuple[int, int], taps: list[int], groups: int) -> np.ndarray:
    """The weights of each phase's convolution.

    Args:
        weights: inputs x outputs of a group x rows x columns of taps.
        steps: of the transposed convolution.
        taps: of each phase, rows and columns; those that it lacks are zero.
        groups: of channels.

    Returns:
        phases x outputs x inputs of a group x rows x columns of taps.
    """
    inputs, outputs, height, width = weights.shape
    widths = [(0, count * step - size) for count, step, size in zip(taps, steps, (height, width), strict=True)]
    whole = np.pad(weights, [(0, 0), (0, 0), *widths])
    split = whole.reshape(groups, inputs // groups, outputs, taps[0], steps[0], taps[1], steps[1])[
        :, :, :, ::-1, :, ::-1
    ]
    # group, input, output, row, phase down, column, phase across
    ordered = split.transpose(4, 6, 0, 2, 1, 3, 5)
    return np.ascontiguousarray(ordered.reshape(steps[0] * steps[1], groups * outputs, inputs // groups, *taps))


def _pair(values: object) -> tuple[int, int]:
    first, second = (int(value) for value in values)  # type: ignore[attr-defined]
    return first, second

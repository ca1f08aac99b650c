"""Kernel elements that read nothing but padding, which atrous convolutions of small feature maps have, are left out."""

from __future__ import annotations

import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, is_oihw, rewritten, shape_of


def trim_kernels(module: tvm.IRModule) -> tvm.IRModule:
    """Cut the first and last rows and columns that meet no pixel off the kernels of `conv2d` with constant weights.

    A 3x3 kernel with a dilation of 24 on 20x20 pixels becomes its element in the middle. Expects NCHW.
    """
    return rewritten(_Trimmer, module)


class _Trimmer(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        weights = constant_value(call.args[1]) if is_call(call, "relax.nn.conv2d") and is_oihw(call) else None
        if weights is None:
            return None
        attrs, sizes, results = call.attrs, shape_of(call.args[0])[2:], shape_of(call)[2:]
        strides, dilation, padding = (
            [int(each) for each in values] for values in (attrs.strides, attrs.dilation, attrs.padding)
        )
        kept = [
            _kept(weights.shape[2 + axis], dilation[axis], strides[axis], padding[axis], sizes[axis], results[axis])
            for axis in (0, 1)
        ]
        if all(range(count) == rows for count, rows in zip(weights.shape[2:], kept, strict=True)):
            return None
        for axis, rows in enumerate(kept):
            padding[axis] -= rows.start * dilation[axis]
            padding[2 + axis] -= (weights.shape[2 + axis] - rows.stop) * dilation[axis]
        down, across = (slice(each.start, each.stop) for each in kept)
        return relax.op.nn.conv2d(
            call.args[0],
            constant(weights[:, :, down, across]),
            strides,
            padding,
            dilation,
            int(attrs.groups),
            out_dtype=str(call.ty.dtype),
        )


def _kept(elements: int, dilation: int, stride: int, padding: int, size: int, results: int) -> range:
    """The elements of a kernel along one axis that meet a pixel, and those that cannot be cut off.

    Args:
        elements: of the kernel.
        dilation, stride: in pixels.
        padding: before the first pixel.
        size, results: pixels of the feature map, and of the result.
    """
    last = (results - 1) * stride - padding
    after = last + (elements - 1) * dilation - size + 1  # padding that is read behind the last pixel
    first, stop = 0, elements
    while stop - first > 1 and last + first * dilation < 0 and padding >= (first + 1) * dilation:
        first += 1
    while stop - first > 1 and (stop - 1) * dilation - padding >= size and after >= (elements - stop + 1) * dilation:
        stop -= 1
    return range(first, stop)

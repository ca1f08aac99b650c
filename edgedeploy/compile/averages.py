"""Means over windows as depthwise convolutions, for which there is a template."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, is_call, rewritten, shape_of

# Larger windows are few, and mostly whole feature maps.
_MOST_ELEMENTS = 64


def convolve_averages(module: tvm.IRModule) -> tvm.IRModule:
    """Write means over small windows as depthwise convolutions with constant weights.

    Where padding is not counted, and windows at the borders have fewer values, the results are multiplied by constants.
    What follows, as the scale of a layer, is folded into the weights. Expects NCHW.
    """
    return rewritten(_Convolver, module)


class _Convolver(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.nn.avg_pool2d") or not call.attrs.layout == call.attrs.out_layout == "NCHW":
            return None
        attrs, (_, channels, *sizes), results = call.attrs, shape_of(call.args[0]), shape_of(call)[2:]
        elements, strides, dilation, padding = (
            [int(each) for each in values] for values in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
        )
        count = math.prod(elements)
        if channels == 1 or not 1 < count <= _MOST_ELEMENTS or str(call.ty.dtype) != "float32" or results == [1, 1]:
            return None
        # What counts: the feature map, or with its padding; not what ceil_mode reads beyond.
        counted = [
            (padding[axis], sizes[axis] + padding[axis] + padding[2 + axis])
            if attrs.count_include_pad
            else (0, sizes[axis])
            for axis in (0, 1)
        ]
        for axis in (0, 1):
            last = (results[axis] - 1) * strides[axis] + (elements[axis] - 1) * dilation[axis]
            padding[2 + axis] = max(padding[2 + axis], last + 1 - sizes[axis] - padding[axis])
        # Of quantised tensors, sums are divided: 1 / count is rounded, which decides where a result is a half.
        quantised = self._is_dequantised(call.args[0])
        weights = constant(np.full((channels, 1, *elements), 1 if quantised else 1 / count, np.float32))
        pool = relax.op.nn.conv2d(call.args[0], weights, strides, padding, dilation, channels)
        inside = [
            _inside(*counted[axis], results[axis], elements[axis], strides[axis], dilation[axis], padding[axis])
            for axis in (0, 1)
        ]
        counts = np.maximum(np.outer(*inside), 1).astype(np.float32)[None, None]
        if quantised:
            return relax.op.divide(self.emit(pool), constant(counts))
        if (counts == count).all():
            return pool
        return relax.op.multiply(self.emit(pool), constant(np.float32(count) / counts))

    def _is_dequantised(self, data: relax.Expr) -> bool:
        """Whether it is integers less their zero point, times their scale."""
        value = self.bound_value(data)
        for operator in ("relax.multiply", "relax.add"):
            if is_call(value, operator):
                value = self.bound_value(value.args[0])
        return is_call(value, "relax.astype") and "int" in str(value.args[0].ty.dtype)


def _inside(
    before: int, size: int, results: int, elements: int, stride: int, dilation: int, padding: int
) -> np.ndarray:
    """How many elements of each window along an axis lie in what counts, which begins `before` the feature map."""
    places = np.arange(results)[:, None] * stride + np.arange(elements) * dilation - padding + before
    return np.asarray(((places >= 0) & (places < size)).sum(axis=1))

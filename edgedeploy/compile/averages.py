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
        for axis in (0, 1):  # ceil_mode reads beyond
            last = (results[axis] - 1) * strides[axis] + (elements[axis] - 1) * dilation[axis]
            padding[2 + axis] = max(padding[2 + axis], last + 1 - sizes[axis] - padding[axis])
        weights = constant(np.full((channels, 1, *elements), 1 / count, np.float32))
        pool = relax.op.nn.conv2d(call.args[0], weights, strides, padding, dilation, channels)
        if attrs.count_include_pad or not any(padding):
            return pool
        inside = [
            _inside(sizes[axis], results[axis], elements[axis], strides[axis], dilation[axis], padding[axis])
            for axis in (0, 1)
        ]
        factors = count / np.maximum(np.outer(*inside), 1)
        return relax.op.multiply(self.emit(pool), constant(factors.astype(np.float32)[None, None]))


def _inside(size: int, results: int, elements: int, stride: int, dilation: int, padding: int) -> np.ndarray:
    """How many elements of each window along an axis do not lie in the padding."""
    places = np.arange(results)[:, None] * stride + np.arange(elements) * dilation - padding
    return np.asarray(((places >= 0) & (places < size)).sum(axis=1))

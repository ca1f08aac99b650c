"""Rewrites convolutions and operators around them: into forms for which there are fast templates, or with less work.

A transposed convolution becomes a convolution for each position that an output has between its inputs. With strides of
s, output `s q + r - p` (p being the padding) sums `x[q - m] w[s m + r]` over m: for each phase r, a convolution with
every s-th kernel element, in reversed order. Outputs of all phases are computed as channels of one pixel, and put side
by side then.
"""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import operator_name, per_channel
from edgedeploy.compile.ir.types import is_floating

_MOST_ELEMENTS = 64  # larger windows of means are few, and mostly whole feature maps


class _TransposedRewriter(ir.Rewriter):
    """Replaces each `conv2d_transpose` in NCHW with constant weights and no dilation; sums keep their terms."""

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not ir.is_call(call, "relax.nn.conv2d_transpose"):
            return None
        attrs, weights = call.attrs, ir.constant_value(call.args[1])
        strides, kernel = [int(each) for each in attrs.strides], weights.shape[2:] if weights is not None else ()
        top, left, bottom, right = (int(width) for width in attrs.padding)
        plain = (attrs.data_layout, attrs.kernel_layout, {*map(int, attrs.dilation)}) == ("NCHW", "IOHW", {1})
        if weights is None or not plain or max(top, bottom) >= kernel[0] or max(left, right) >= kernel[1]:
            return None
        batch, _, *sizes = ir.shape_of(call.args[0])
        _, channels, height, width = ir.shape_of(call)
        elements = [-(-count // stride) for count, stride in zip(kernel, strides, strict=True)]
        # Pixels of all phases that reach to the end of the output.
        pixels = [-(-(height + top) // strides[0]), -(-(width + left) // strides[1])]
        padding = [elements[0] - 1, elements[1] - 1, pixels[0] - sizes[0], pixels[1] - sizes[1]]
        if min(padding) < 0:
            return None
        groups = int(attrs.groups)
        phases = _phases(weights, strides, elements, groups)
        # Groups must stay together in a convolution's outputs, phases in the result: each phase gets a convolution.
        parts = [phases.reshape(-1, *phases.shape[2:])] if groups == 1 else list(phases)
        results = [
            self.emit(relax.op.nn.conv2d(call.args[0], ir.constant(part), padding=padding, groups=groups))
            for part in parts
        ]
        result = self.emit.concat(results, axis=1) if len(results) > 1 else results[0]
        result = self.emit.permute_dims(result, ir.NHWC_OF_NCHW)
        result = self.emit.reshape(result, [batch, *pixels, *strides, channels])
        result = self.emit.permute_dims(result, [0, 1, 3, 2, 4, 5])
        whole = [count * stride for count, stride in zip(pixels, strides, strict=True)]
        result = self.emit.reshape(result, [batch, *whole, channels])
        if whole != [height, width]:
            result = self.emit.strided_slice(result, [1, 2], [top, left], [top + height, left + width])
        return relax.op.permute_dims(result, ir.NCHW_OF_NHWC)


def _phases(weights: np.ndarray, strides: list[int], elements: list[int], groups: int) -> np.ndarray:
    """The weights of each phase's convolution: phases x outputs x inputs of a group x rows x columns of elements.

    `weights` are inputs x outputs of a group x rows x columns, `elements` the rows and columns of each phase; missing
    ones are zero.
    """
    inputs, outputs, *sizes = weights.shape
    widths = [(0, count * stride - size) for count, stride, size in zip(elements, strides, sizes, strict=True)]
    whole = np.pad(weights, [(0, 0), (0, 0), *widths])
    split = whole.reshape(groups, inputs // groups, outputs, elements[0], strides[0], elements[1], strides[1])
    # group, input, output, row, phase down, column, phase across
    ordered = split[:, :, :, ::-1, :, ::-1].transpose(4, 6, 0, 2, 1, 3, 5)
    return np.ascontiguousarray(ordered.reshape(strides[0] * strides[1], groups * outputs, inputs // groups, *elements))


rewrite_transposed = _TransposedRewriter.rewritten


class _Trimmer(ir.Rewriter):
    """Cuts the first and last rows and columns that meet no pixel off the kernels of `conv2d` with constant weights.

    A 3x3 kernel with a dilation of 24 on 20x20 pixels becomes its element in the middle. Expects NCHW.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        weights = ir.constant_value(call.args[1]) if ir.is_call(call, "relax.nn.conv2d") and ir.is_oihw(call) else None
        if weights is None:
            return None
        attrs, sizes, results = call.attrs, ir.shape_of(call.args[0])[2:], ir.shape_of(call)[2:]
        strides, dilation, padding = (ir.integers_of(attrs, each) for each in ("strides", "dilation", "padding"))
        left = [
            _left(weights.shape[2 + axis], dilation[axis], strides[axis], padding[axis], sizes[axis], results[axis])
            for axis in (0, 1)
        ]
        if all(range(count) == rows for count, rows in zip(weights.shape[2:], left, strict=True)):
            return None
        for axis, rows in enumerate(left):
            padding[axis] -= rows.start * dilation[axis]
            padding[2 + axis] -= (weights.shape[2 + axis] - rows.stop) * dilation[axis]
        down, across = (slice(each.start, each.stop) for each in left)
        return ir.conv2d_like(call, call.args[0], ir.constant(weights[:, :, down, across]), padding=padding)


def _left(elements: int, dilation: int, stride: int, padding: int, size: int, results: int) -> range:
    """The elements of a kernel along one axis that meet a pixel or cannot be cut off.

    `padding` is before the first of `size` pixels; the result has `results`.
    """
    last = (results - 1) * stride - padding
    after = last + (elements - 1) * dilation - size + 1  # padding that is read behind the last pixel
    first, stop = 0, elements
    while stop - first > 1 and last + first * dilation < 0 and padding >= (first + 1) * dilation:
        first += 1
    while stop - first > 1 and (stop - 1) * dilation - padding >= size and after >= (elements - stop + 1) * dilation:
        stop -= 1
    return range(first, stop)


trim_kernels = _Trimmer.rewritten


class _ScaleFolder(ir.Rewriter):
    """Rewrites `conv(x, w) * s + b` to `conv(x, w * s) + b`, and `(conv(x, w) + a) + b` to `conv(x, w) + (a + b)`.

    Batch normalisation arrives as such a product and sum. Expects NCHW activations and OIHW weights, and
    constants that vary over channels only. Exact up to rounding of the constants.

    Visits operators in order, so that each is folded into the ones folded before it.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        operator = operator_name(call)
        if operator not in ("multiply", "add"):
            return None
        for (before, data), (_, factor) in permutations(zip(original.args, call.args, strict=True)):
            folded = self._fold(operator, data, ir.constant_value(factor)) if self.uses[before] == 1 else None
            if folded is not None:
                return folded
        return None

    def _fold(self, operator: str, data: relax.Expr, factor: np.ndarray | None) -> relax.Expr | None:
        """The convolution, or convolution and bias, that `data <operator> factor` amounts to."""
        convolution, bias = self._convolution_and_bias(data)
        if convolution is None or factor is None or factor.dtype != np.float32:
            return None
        weights = ir.constant_value(convolution.args[1])
        values = None if weights is None else per_channel(factor, weights.shape[0], 1, 4)
        if values is None or not ir.is_oihw(convolution):
            return None
        if operator == "add":
            return None if bias is None else self._biased(convolution, bias + values)
        scaled = ir.constant(weights * values.reshape(-1, 1, 1, 1))
        convolution = relax.Call(convolution.op, [convolution.args[0], scaled], convolution.attrs)
        return self.builder_.normalize(convolution) if bias is None else self._biased(convolution, bias * values)

    def _convolution_and_bias(self, data: relax.Expr) -> tuple[relax.Call | None, np.ndarray | None]:
        value = self.bound_value(data)
        if ir.is_call(value, "relax.nn.conv2d"):
            return value, None
        if ir.is_call(value, "relax.add"):
            for data_side, bias_side in permutations(value.args):
                inner = self.bound_value(data_side)
                added = ir.constant_value(bias_side)
                if added is not None and ir.is_call(inner, "relax.nn.conv2d"):
                    bias = per_channel(added, int(inner.args[1].ty.shape[0]), 1, 4)
                    if bias is not None:
                        return inner, bias
        return None, None

    def _biased(self, convolution: relax.Call, bias: np.ndarray) -> relax.Expr:
        return relax.op.add(self.emit(convolution), ir.constant(bias.reshape(1, -1, 1, 1)))


fold_scales = _ScaleFolder.rewritten


class _AverageConvolver(ir.Rewriter):
    """Writes means over small windows as depthwise convolutions with constant weights.

    If padding is not counted, windows at the borders have fewer values, and the results are multiplied by constants.
    What follows, as the scale of a layer, is folded into the weights. Expects NCHW.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not ir.is_call(call, "relax.nn.avg_pool2d") or not call.attrs.layout == call.attrs.out_layout == "NCHW":
            return None
        attrs, (_, channels, *sizes), results = call.attrs, ir.shape_of(call.args[0]), ir.shape_of(call)[2:]
        names = "pool_size", "strides", "dilation", "padding"
        elements, strides, dilation, padding = (ir.integers_of(attrs, each) for each in names)
        count = math.prod(elements)
        if channels == 1 or not 1 < count <= _MOST_ELEMENTS or str(call.ty.dtype) != "float32" or results == [1, 1]:
            return None
        inside = []
        for axis in (0, 1):
            before, behind = padding[axis], padding[2 + axis]
            places = np.arange(results[axis])[:, None] * strides[axis] + np.arange(elements[axis]) * dilation[axis]
            # What counts: the feature map, or with its padding; not what ceil_mode reads beyond.
            first, rest = (0, behind) if attrs.count_include_pad else (before, 0)
            inside.append(((places >= first) & (places < before + sizes[axis] + rest)).sum(axis=1))
            padding[2 + axis] = max(behind, int(np.max(places)) + 1 - sizes[axis] - before)
        # Sums of quantised tensors are divided: 1 / count is rounded, which decides if a result is a half.
        quantised = self._is_dequantised(call.args[0])
        weights = ir.constant(np.full((channels, 1, *elements), 1 if quantised else 1 / count, np.float32))
        pool = relax.op.nn.conv2d(call.args[0], weights, strides, padding, dilation, channels)
        counts = np.maximum(np.outer(*inside), 1).astype(np.float32)[None, None]
        if quantised:
            return relax.op.divide(self.emit(pool), ir.constant(counts))
        if (counts == count).all():
            return pool
        return relax.op.multiply(self.emit(pool), ir.constant(np.float32(count) / counts))

    def _is_dequantised(self, data: relax.Expr) -> bool:
        """Whether it is integers less their zero point, times their scale."""
        value = self.bound_value(data)
        for operator in ("relax.multiply", "relax.add"):
            if ir.is_call(value, operator):
                value = self.bound_value(value.args[0])
        return ir.is_call(value, "relax.astype") and "int" in str(value.args[0].ty.dtype)


def convolve_averages(module: tvm.IRModule) -> tvm.IRModule:
    """Write means over windows as depthwise convolutions."""
    return fold_scales(_AverageConvolver.rewritten(module))


class _ConcatenationSplitter(ir.Rewriter):
    """Rewrites `conv(concat(a, b), w)` to `conv(a, w_a) + conv(b, w_b)` if that moves fewer values.

    A maximum over windows in between is taken of each part. Expects NCHW activations and OIHW weights. Exact up to
    the order of the sums.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        pools = ir.is_call(call, "relax.nn.max_pool2d") and call.attrs.layout == "NCHW"
        if not (pools or ir.is_call(call, "relax.nn.conv2d")) or self.uses[original.args[0]] != 1:
            return None
        parts = self._parts(call.args[0])
        if not parts or not pools:
            return self._convolved(call, parts) if parts else None
        pooled = [self.emit(relax.Call(call.op, [part], call.attrs)) for part in parts]
        return self.builder_.normalize(relax.op.concat(pooled, axis=1))

    def _parts(self, data: relax.Expr) -> list[relax.Expr]:
        """The parts of a concatenation by channels."""
        value = self.bound_value(data)
        if not ir.is_call(value, "relax.concat") or value.attrs.axis is None or int(value.attrs.axis) != 1:
            return []
        parts = self.bound_value(value.args[0])
        return list(parts.fields) if isinstance(parts, relax.Tuple) else []

    def _convolved(self, call: relax.Call, parts: list[relax.Expr]) -> relax.Expr | None:
        attrs, weights = call.attrs, ir.constant_value(call.args[1])
        floating = is_floating(str(call.ty.dtype))  # sums of integers are four times as wide as the copied values
        if weights is None or int(attrs.groups) != 1 or attrs.data_layout != "NCHW" or not floating:
            return None
        copied, added = np.prod(ir.shape_of(call.args[0])), (len(parts) - 1) * np.prod(ir.shape_of(call))
        if added >= copied:
            return None
        ends = np.cumsum([ir.shape_of(part)[1] for part in parts])
        total, *others = (
            relax.Call(call.op, [part, ir.constant(piece)], attrs)
            for part, piece in zip(parts, np.split(weights, ends[:-1], axis=1), strict=True)
        )
        for each in others:
            total = relax.op.add(self.emit(each), self.emit(total))
        return self.builder_.normalize(total)


split_concatenations = _ConcatenationSplitter.rewritten

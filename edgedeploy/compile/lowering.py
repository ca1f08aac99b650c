"""Convolutions and products as functions in canonical form that state their anchor operator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm
from tvm import relax

from edgedeploy.compile.expressions import (
    Rewriter,
    axes_of,
    constant_value,
    is_call,
    rewritten,
    shape_of,
    types_of,
)
from edgedeploy.compile.layers import (
    AnyAnchorOp,
    BatchMatmul,
    Convolution,
    Dense,
    DepthwiseConvolution,
    FirstConvolution,
)
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.types import is_floating

# The attribute of a function that holds a layer, as JSON.
LAYER_ATTRIBUTE = "edgedeploy.layer"

NHWC_OF_NCHW = [0, 2, 3, 1]

# Layers of more input channels read NHWC: in NCHW they would go from one line of the cache to another for each of them.
_FEW_CHANNELS = 16


def lower_layers(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each `conv2d`, and each product of matrices, by a function of ours.

    Expects convolutions in NHWC, HWIO, as `ConvertLayout` leaves them. Where a first layer's input of few channels is
    transposed for it, it reads the NCHW feature map instead: its input values are broadcast one by one, from wherever
    they lie.
    """
    return rewritten(_Lowerer, module)


class _Lowerer(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(call, "relax.matmul"):
            return self._product(call)
        if is_call(call, "relax.nn.conv2d") and call.attrs.data_layout == "NHWC":
            return self._convolution(call)
        return None

    def _convolution(self, call: relax.Call) -> relax.Expr:
        data, groups, outputs = call.args[0], int(call.attrs.groups), shape_of(call.args[1])[3]
        window = _window(call)
        transpose = self.bound_value(data)
        kind: type[AnyAnchorOp] = Convolution
        if shape_of(call.args[1])[2] == 1 and groups == outputs > 1:
            kind = DepthwiseConvolution
        elif groups == 1 and shape_of(data)[3] <= _FEW_CHANNELS and axes_of(transpose) == NHWC_OF_NCHW:
            kind, data = FirstConvolution, transpose.args[0]
        rows = 2 if kind is FirstConvolution else 1
        pad = self.bound_value(data)
        if (padded := _with_padding(window, pad, rows)) is not None:
            window, data = padded, pad.args[0]
        return self._emit(kind, call, data, call.args[1], window=window)

    def _product(self, call: relax.Call) -> relax.Expr | None:
        data, weights = call.args
        if min(len(shape_of(data)), len(shape_of(weights))) < 2:
            return None
        if constant_value(weights) is not None and len(shape_of(weights)) == 2:
            return self._emit(Dense, call, data, weights)
        rank, transpose = len(shape_of(weights)), self.bound_value(weights)
        transposed = axes_of(transpose) == [*range(rank - 2), rank - 1, rank - 2]
        return self._emit(BatchMatmul, call, data, transpose.args[0] if transposed else weights, transposed=transposed)

    def _emit(
        self, kind: type[AnyAnchorOp], call: relax.Call, data: relax.Expr, weights: relax.Expr, **others: Any
    ) -> relax.Expr:
        layer = kind(
            data=tuple(shape_of(data)),
            weights=tuple(shape_of(weights)),
            types=types_of(call),
            constant=constant_value(weights) is not None,
            **others,
        )
        form = layer.canonical()
        return self.builder_.call_te(
            lambda *tensors: form(*tensors),
            data,
            weights,
            primfunc_name_hint=layer.name,
            primfunc_attrs={LAYER_ATTRIBUTE: layer.model_dump_json()},
        )


def _window(call: relax.Call) -> Window:
    kernel_height, kernel_width, _, _ = shape_of(call.args[1])
    down, across = (int(step) for step in call.attrs.strides)
    apart_down, apart_across = (int(step) for step in call.attrs.dilation)
    top, left, bottom, right = (int(width) for width in call.attrs.padding)
    return Window((kernel_height, kernel_width), (down, across), (apart_down, apart_across), (top, left, bottom, right))


def _with_padding(window: Window, pad: Any, rows: int) -> Window | None:
    """A window over integers that also pads as an operator before it does; None if there is none.

    Args:
        window: of a convolution without padding of its own.
        pad: what computes its data.
        rows: the axis of the data's rows; that of columns is the next one.
    """
    if not is_call(pad, "relax.nn.pad") or pad.attrs.pad_mode != "constant" or any(window.padding):
        return None
    widths = [int(width) for width in pad.attrs.pad_width]
    (top, bottom), (left, right) = (widths[2 * axis : 2 * axis + 2] for axis in (rows, rows + 1))
    if is_floating(str(pad.ty.dtype)) or sum(widths) != top + bottom + left + right:
        return None
    return replace(window, padding=(top, left, bottom, right), padding_value=float(pad.attrs.pad_value))

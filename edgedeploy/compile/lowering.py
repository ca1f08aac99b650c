"""Convolutions and dense layers as functions in canonical form that state their anchor operator."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant_value, is_call, rewritten, shape_of, types_of
from edgedeploy.compile.layers import AnyAnchorOp, Convolution, Dense, DepthwiseConvolution, FirstConvolution
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.types import FLOAT32

# The attribute of a function that holds a layer, as JSON.
LAYER_ATTRIBUTE = "edgedeploy.layer"

NHWC_OF_NCHW = [0, 2, 3, 1]


def lower_layers(module: tvm.IRModule) -> tvm.IRModule:
    """Replace each `conv2d`, and each product with a matrix of constants, by a function of ours.

    Expects convolutions in NHWC, HWIO, as `ConvertLayout` leaves them. Where a first layer's input is transposed
    for it, it reads the NCHW feature map instead: its input values are broadcast one by one, from wherever they lie.
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
        data, weights = call.args
        groups, window = int(call.attrs.groups), _window(call)
        common = _common(call)
        if common["weights"][2] == 1 and groups == common["weights"][3] > 1:
            return self._emit(DepthwiseConvolution(**common, window=window), data, weights)
        nchw = self._nchw(data)
        if groups == 1 and nchw is not None:
            common["data"] = tuple(shape_of(nchw))
            return self._emit(FirstConvolution(**common, window=window), nchw, weights)
        return self._emit(Convolution(**common, window=window, groups=groups), data, weights)

    def _product(self, call: relax.Call) -> relax.Expr:
        common = _common(call)
        if (
            not common["constant"]
            or common["types"] != FLOAT32
            or not len(common["data"]) == len(common["weights"]) == 2
        ):
            return call
        return self._emit(Dense(**common), *call.args)

    def _nchw(self, data: relax.Expr) -> relax.Expr | None:
        """The NCHW tensor that a value in NHWC was transposed from."""
        transpose = self.bound_value(data)
        if not is_call(transpose, "relax.permute_dims") or not transpose.attrs.axes:
            return None
        return transpose.args[0] if [int(axis) for axis in transpose.attrs.axes] == NHWC_OF_NCHW else None

    def _emit(self, layer: AnyAnchorOp, data: relax.Expr, weights: relax.Expr) -> relax.Expr:
        form = layer.canonical()
        return self.builder_.call_te(
            lambda *tensors: form(*tensors),
            data,
            weights,
            primfunc_name_hint=layer.name,
            primfunc_attrs={LAYER_ATTRIBUTE: layer.model_dump_json()},
        )


def _common(call: relax.Call) -> dict[str, Any]:
    data, weights = call.args
    return {
        "data": tuple(shape_of(data)),
        "weights": tuple(shape_of(weights)),
        "types": types_of(call),
        "constant": constant_value(weights) is not None,
    }


def _window(call: relax.Call) -> Window:
    kernel_height, kernel_width, _, _ = shape_of(call.args[1])
    down, across = (int(step) for step in call.attrs.strides)
    apart_down, apart_across = (int(step) for step in call.attrs.dilation)
    top, left, bottom, right = (int(width) for width in call.attrs.padding)
    return Window((kernel_height, kernel_width), (down, across), (apart_down, apart_across), (top, left, bottom, right))

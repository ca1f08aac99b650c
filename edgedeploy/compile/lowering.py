"""Which form each convolution takes (direct, on a first layer's planes, or Winograd's), and each dense layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import tvm
from tvm import relax, te

from edgedeploy.board import Board
from edgedeploy.compile.channels import padded_count
from edgedeploy.compile.expressions import bound_value, constant_value, is_call, rewritten
from edgedeploy.compile.operators import direct, winograd
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.operators.prefetch import vector_to_prefetch
from edgedeploy.compile.operators.product import MATMUL, product
from edgedeploy.compile.tiles import (
    choose_depthwise_tile,
    choose_order,
    choose_product_tile,
    choose_tile,
    lanes_for,
    whole_columns,
)

NHWC_OF_NCHW = [0, 2, 3, 1]


def lower_layers(module: tvm.IRModule, board: Board) -> tvm.IRModule:
    """Replace each `conv2d`, and each product with a matrix of constants, by a function of ours.

    Expects convolutions in NHWC, HWIO, as `ConvertLayout` leaves them. Where a first layer's input is transposed
    for it, it reads the NCHW planes instead: its input values are broadcast one by one, from wherever they lie.
    """
    return rewritten(_Lowerer(module, board), module)


@relax.expr_functor.mutator
class _Lowerer(relax.PyExprMutator):
    def __init__(self, module: tvm.IRModule, board: Board) -> None:
        super().__init__(module)
        self._board = board
        self._prefetch = vector_to_prefetch(board)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if is_call(call, "relax.matmul"):
            return self._product(call)
        if is_call(call, "relax.nn.conv2d") and call.attrs.data_layout == "NHWC":
            return self._convolution(call)
        return call

    def _convolution(self, call: relax.Call) -> relax.Expr:
        data, weights = call.args
        groups = int(call.attrs.groups)
        sizes = [int(size) for size in weights.ty.shape]
        window = _window(call)
        _, rows, columns, outputs = (int(size) for size in call.ty.shape)
        if sizes[2] == 1 and groups == outputs > 1:
            tile = choose_depthwise_tile(rows, columns, outputs, window.kernel, window.strides[1], self._board)
            form = partial(direct.convolution, window=window, groups=groups, tile=tile)
            return self._emit(direct.DEPTHWISE, form, data, weights)
        if groups == 1:
            winograds = self._winograd(call, window)
            if winograds is not None:
                return winograds
        tile = choose_tile(rows, columns, outputs // groups, window.kernel, sizes[2], self._board)
        planes = self._planes(data)
        if groups == 1 and planes is not None:
            form = partial(direct.convolution_of_planes, window=window, tile=tile, lanes=lanes_for(self._board))
            return self._emit(f"{direct.DENSE}_planes", form, planes, weights)
        order = choose_order(rows, columns, outputs // groups, window.kernel, sizes[2], tile, self._board)
        form = partial(
            direct.convolution, window=window, groups=groups, tile=tile, order=order, prefetch=self._prefetch
        )
        return self._emit(direct.DENSE, form, data, weights)

    def _product(self, call: relax.Call) -> relax.Expr:
        """A dense layer: its columns are padded to whole vectors by zeros, which are cropped from the result."""
        weights = constant_value(call.args[1])
        rows = [int(size) for size in call.args[0].ty.shape]
        if weights is None or weights.dtype != "float32" or not weights.ndim == len(rows) == 2:
            return call
        columns = weights.shape[1]
        whole = whole_columns(rows[0], columns, padded_count(columns, lanes_for(self._board)), self._board)
        tile_rows, _ = choose_product_tile(rows[0], whole, self._board)
        form = partial(product, columns=columns, tile_rows=tile_rows, prefetch=self._prefetch)
        padded = relax.const(np.pad(weights, ((0, 0), (0, whole - columns))))
        return self._emit(MATMUL, form, call.args[0], padded)

    def _winograd(self, call: relax.Call, window: Window) -> relax.Expr | None:
        """Winograd's form of a convolution, if it has one that costs less than a direct one."""
        data, weights = call.args[0], constant_value(call.args[1])
        batch, rows, columns, outputs = (int(size) for size in call.ty.shape)
        fits = window.kernel == (winograd.TAPS, winograd.TAPS) and window.strides == window.dilation == (1, 1)
        if weights is None or weights.dtype != "float32" or batch != 1 or not fits:
            return None
        plan = winograd.choose_plan(rows, columns, weights.shape[2], outputs, self._board)
        if plan is None:
            return None
        transformed = relax.const(winograd.transform_weights(weights, plan.size))
        form = partial(winograd.convolution, padding=window.padding, plan=plan, prefetch=self._prefetch)
        return self._emit(f"{direct.DENSE}_{winograd.PRODUCT}", form, data, transformed)

    def _planes(self, data: relax.Expr) -> relax.Expr | None:
        """The NCHW tensor that a value in NHWC was transposed from."""
        transpose = bound_value(self, data)
        if not is_call(transpose, "relax.permute_dims") or not transpose.attrs.axes:
            return None
        return transpose.args[0] if [int(axis) for axis in transpose.attrs.axes] == NHWC_OF_NCHW else None

    def _emit(self, name: str, form: Callable[..., te.Tensor], data: relax.Expr, weights: relax.Expr) -> relax.Expr:
        """A call of a new function that is written in tensor expressions."""
        return self.builder_.call_te(lambda *tensors: form(*tensors), data, weights, primfunc_name_hint=name)


def _window(call: relax.Call) -> Window:
    kernel_height, kernel_width, _, _ = (int(size) for size in call.args[1].ty.shape)
    down, across = (int(step) for step in call.attrs.strides)
    apart_down, apart_across = (int(step) for step in call.attrs.dilation)
    top, left, bottom, right = (int(width) for width in call.attrs.padding)
    return Window((kernel_height, kernel_width), (down, across), (apart_down, apart_across), (top, left, bottom, right))

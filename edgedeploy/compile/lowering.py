"""Which form each convolution takes: direct, on a first layer's planes, or Winograd's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tvm
from tvm import relax, te

from edgedeploy.board import Board
from edgedeploy.compile.folding import constant_value, is_call
from edgedeploy.compile.operators import direct, winograd
from edgedeploy.compile.operators.direct import Window
from edgedeploy.compile.tiles import choose_depthwise_tile, choose_tile, lanes_for

NHWC_OF_NCHW = [0, 2, 3, 1]


def lower_convolutions(module: tvm.IRModule, board: Board) -> tvm.IRModule:
    """Replace each `conv2d` by a function of ours that a template knows.

    Expects convolutions in NHWC, HWIO, as `ConvertLayout` leaves them. Where a first layer's input is transposed
    for it, it reads the NCHW planes instead: its input values are broadcast one by one, from wherever they lie.
    """
    lowerer = _Lowerer(module, board)
    lowerer.builder_.update_func(module.get_global_var("main"), lowerer.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(lowerer.builder_.get())


@relax.expr_functor.mutator
class _Lowerer(relax.PyExprMutator):
    def __init__(self, module: tvm.IRModule, board: Board) -> None:
        super().__init__(module)
        self._board = board

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.nn.conv2d") or call.attrs.data_layout != "NHWC":
            return call
        data, weights = call.args
        groups = int(call.attrs.groups)
        sizes = [int(size) for size in weights.ty.shape]
        window = Window(
            kernel=(sizes[0], sizes[1]),
            strides=tuple(int(step) for step in call.attrs.strides),
            dilation=tuple(int(step) for step in call.attrs.dilation),
            padding=tuple(int(width) for width in call.attrs.padding),
        )
        board = self._board
        _, rows, columns, outputs = (int(size) for size in call.ty.shape)
        if sizes[2] == 1 and groups == outputs > 1:
            tile = choose_depthwise_tile(rows, columns, outputs, board)
            return self._emit(
                direct.DEPTHWISE, partial(direct.convolution, window=window, groups=groups, tile=tile), data, weights
            )
        tile = choose_tile(rows, columns, outputs // groups, board)
        transpose = self.lookup_binding(data) if isinstance(data, relax.Var) else data
        if groups == 1 and is_call(transpose, "relax.permute_dims") and _axes(transpose) == NHWC_OF_NCHW:
            form = partial(direct.convolution_of_planes, window=window, tile=tile, lanes=lanes_for(board))
            return self._emit(f"{direct.DENSE}_planes", form, transpose.args[0], weights)
        plan = self._winograd_plan(call, window) if groups == 1 else None
        if plan is not None:
            transformed = relax.const(winograd.transform_weights(constant_value(weights), plan.size))
            form = partial(winograd.convolution, padding=window.padding, plan=plan)
            return self._emit(f"{direct.DENSE}_{winograd.PRODUCT}", form, data, transformed)
        return self._emit(
            direct.DENSE, partial(direct.convolution, window=window, groups=groups, tile=tile), data, weights
        )

    def _emit(
        self, name: str, form: Callable[[te.Tensor, te.Tensor], te.Tensor], data: relax.Expr, weights: relax.Expr
    ) -> relax.Expr:
        return self.builder_.call_te(lambda *tensors: form(*tensors), data, weights, primfunc_name_hint=name)

    def _winograd_plan(self, call: relax.Call, window: Window) -> winograd.Plan | None:
        weights = constant_value(call.args[1])
        batch, rows, columns, outputs = (int(size) for size in call.ty.shape)
        fits = window.kernel == (winograd.TAPS, winograd.TAPS) and window.strides == window.dilation == (1, 1)
        if weights is None or weights.dtype != "float32" or batch != 1 or not fits:
            return None
        return winograd.choose_plan(rows, columns, weights.shape[2], outputs, self._board)


def _axes(transpose: relax.Call) -> list[int]:
    return [int(axis) for axis in transpose.attrs.axes] if transpose.attrs.axes else []

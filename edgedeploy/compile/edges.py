"""First layers: convolutions that read the network's planar input as it comes.

Between the network's inputs and outputs everything is NHWC. A convolution of a picture's three planes gains
nothing from that: its input values are broadcast one by one, from wherever they lie. So the transpose before
it is left out, and the planes are padded row by row with full vectors.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, te

from edgedeploy.compile.folding import is_call

NHWC_OF_NCHW = [0, 2, 3, 1]

# Tiles of these widths keep the multiply-add units busy on every board.
TILE_WIDTHS = range(8, 15)


def read_planes(module: tvm.IRModule, lanes: int) -> tvm.IRModule:
    """Replace `conv2d(transpose(x))` by one function that reads the NCHW tensor `x`.

    Expects convolutions in NHWC, HWIO, as `ConvertLayout` leaves them, without groups.
    """
    reader = _PlaneReader(module, lanes)
    reader.builder_.update_func(module.get_global_var("main"), reader.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(reader.builder_.get())


def whole_width(columns: int) -> int:
    """The least number of columns, at least as many, that whole tiles cover.

    Those beyond the picture are computed and cropped: a row of 113 pixels, a prime, could not be tiled otherwise.
    """
    return min(-(-columns // width) * width for width in TILE_WIDTHS)


@relax.expr_functor.mutator
class _PlaneReader(relax.PyExprMutator):
    def __init__(self, module: tvm.IRModule, lanes: int) -> None:
        super().__init__(module)
        self._lanes = lanes

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.nn.conv2d") or call.attrs.data_layout != "NHWC" or int(call.attrs.groups) != 1:
            return call
        data = call.args[0]
        transpose = self.lookup_binding(data) if isinstance(data, relax.Var) else data
        if not is_call(transpose, "relax.permute_dims") or not transpose.attrs.axes:
            return call
        if [int(axis) for axis in transpose.attrs.axes] != NHWC_OF_NCHW:
            return call
        return self.builder_.call_te(
            convolution_of_planes,
            transpose.args[0],
            call.args[1],
            padding=[int(width) for width in call.attrs.padding],
            strides=[int(step) for step in call.attrs.strides],
            dilation=[int(step) for step in call.attrs.dilation],
            lanes=self._lanes,
            primfunc_name_hint="conv2d_planes",
        )


def convolution_of_planes(
    planes: te.Tensor, weights: te.Tensor, padding: list[int], strides: list[int], dilation: list[int], lanes: int
) -> te.Tensor:
    """A convolution from NCHW to NHWC, with HWIO weights.

    Args:
        planes: 1 x inputs x height x width, float32.
        weights: kernel height x kernel width x inputs x outputs.
        padding: rows and columns of zeros at top, left, bottom, right.
        strides, dilation: in rows and columns.
        lanes: the padded rows begin and end on multiples of this many values, so that each vector of them is
            either all picture or all padding where the picture's width is a multiple of it.
    """
    batch, inputs, height, width = (int(size) for size in planes.shape)
    kernel_height, kernel_width, _, outputs = (int(size) for size in weights.shape)
    top, left, bottom, right = padding
    rows = (height + top + bottom - dilation[0] * (kernel_height - 1) - 1) // strides[0] + 1
    columns = (width + left + right - dilation[1] * (kernel_width - 1) - 1) // strides[1] + 1
    whole_columns = whole_width(columns)
    margin = -(-left // lanes) * lanes
    last = (whole_columns - 1) * strides[1] + (kernel_width - 1) * dilation[1] + (margin - left)
    padded_width = -(-max(margin + width + right, last + 1) // lanes) * lanes
    padded = te.compute(
        (batch, inputs, height + top + bottom, padded_width),
        lambda n, c, y, x: tvm.tirx.if_then_else(
            tvm.tirx.all(y >= top, y < top + height, x >= margin, x < margin + width),
            planes[n, c, y - top, x - margin],
            tvm.tirx.const(0, planes.dtype),
        ),
        name="pad_temp",
    )
    ky, kx = te.reduce_axis((0, kernel_height), "ry"), te.reduce_axis((0, kernel_width), "rx")
    ic = te.reduce_axis((0, inputs), "rc")

    def sum_of_products(n: Any, y: Any, x: Any, f: Any) -> Any:
        row = y * strides[0] + ky * dilation[0]
        column = x * strides[1] + kx * dilation[1] + (margin - left)
        return te.sum(padded[n, ic, row, column] * weights[ky, kx, ic, f], axis=[ky, kx, ic])

    whole = te.compute((batch, rows, whole_columns, outputs), sum_of_products, name="conv2d_nhwc")
    return te.compute((batch, rows, columns, outputs), lambda n, y, x, f: whole[n, y, x, f], name="crop")

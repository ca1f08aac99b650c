"""Enlarged feature maps at the end of a network: columns first, then rows, in the layout of the output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, te

from edgedeploy.compile.expressions import Rewriter, axes_of, constant, is_call, rewritten, shape_of
from edgedeploy.compile.fusion import OPAQUE
from edgedeploy.compile.layouts import NCHW_OF_NHWC

# From a result's index, the place that it is taken from, by the numbers of values before and after.
_PLACES = {
    "half_pixel": lambda index, before, after: (index + 0.5) * before / after - 0.5,
    "pytorch_half_pixel": lambda index, before, after: (index + 0.5) * before / after - 0.5 if after > 1 else 0 * index,
    "align_corners": lambda index, before, after: index * (before - 1) / max(after - 1, 1),
    "asymmetric": lambda index, before, after: index * before / after,
}


def separate_resizes(module: tvm.IRModule) -> tvm.IRModule:
    """Move the transpose, and a slice of channels, behind a bilinear enlargement before it, which becomes two steps.

    Rows of the result are then sums of two whole rows, in vectors, where each value was gathered from four pixels.
    Expects NHWC.
    """
    return rewritten(_Separator, module)


class _Separator(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if axes_of(call) != NCHW_OF_NHWC or self.uses[original.args[0]] != 1:
            return None
        resize, sliced = self.bound_value(call.args[0]), None
        if is_call(resize, "relax.strided_slice") and _of_channels(resize):
            sliced, resize = resize, self.bound_value(resize.args[0])
        if not _enlarges(resize) or any(self.uses[each] > 1 for each in self._originals(original)):
            return None
        data, mode = resize.args[0], str(resize.attrs.coordinate_transformation_mode)
        if sliced is not None:
            data = self.emit(relax.Call(sliced.op, [data, *sliced.args[1:]], sliced.attrs))
        image = self.emit(relax.op.permute_dims(data, NCHW_OF_NHWC))
        (height, width), (rows, columns) = shape_of(image)[2:], shape_of(call)[2:]
        wide = self._along(3, image, *_sources(mode, width, columns))
        return self._along(2, self.emit(wide), *_sources(mode, height, rows))

    def _originals(self, transpose: relax.Call) -> Sequence[relax.Var]:
        """The variables between a resize and a transpose, as the network has them."""
        bound = {each.var: each.value for block in self.module["main"].body.blocks for each in block.bindings}
        value = bound.get(transpose.args[0])
        between = [value.args[0]] if value is not None and is_call(value, "relax.strided_slice") else []
        return [each for each in between if isinstance(each, relax.Var)]

    def _along(self, axis: int, image: relax.Expr, first: np.ndarray, weight: np.ndarray) -> relax.Expr:
        """One axis of an image in NCHW, interpolated between a value and the next one."""
        shape = shape_of(image)
        last = shape[axis] - 1
        shape[axis] = len(first)

        def interpolate(image: te.Tensor, first: te.Tensor, second: te.Tensor, weight: te.Tensor) -> te.Tensor:
            def value(*index: tvm.tirx.Var) -> tvm.tirx.PrimExpr:
                def at(places: te.Tensor) -> tvm.tirx.PrimExpr:
                    return image(*index[:axis], places[index[axis]], *index[axis + 1 :])

                return at(first) + (at(second) - at(first)) * weight[index[axis]]

            return te.compute(shape, value, name="interpolate")

        tables = [constant(first), constant(np.minimum(first + 1, last).astype(np.int32)), constant(weight)]
        return self.builder_.call_te(
            interpolate, image, *tables, primfunc_name_hint="interpolate", primfunc_attrs={"op_pattern": OPAQUE}
        )


def _of_channels(call: relax.Call) -> bool:
    """Whether a slice leaves all pixels."""
    return shape_of(call)[:3] == shape_of(call.args[0])[:3] and len(call.args[1].fields) == 1


def _enlarges(call: relax.Expr) -> bool:
    if not is_call(call, "relax.image.resize2d") or call.attrs.layout != "NHWC" or call.attrs.method != "linear":
        return False
    (height, width), (rows, columns) = shape_of(call.args[0])[1:3], shape_of(call)[1:3]
    known = call.attrs.coordinate_transformation_mode in _PLACES and str(call.ty.dtype) == "float32"
    return known and rows >= 2 * height and columns >= width


def _sources(mode: str, before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """For each value along an axis, the first of the two that it lies between, and the weight of the second."""
    places = np.clip(_PLACES[mode](np.arange(after, dtype=np.float64), before, after), 0, before - 1)
    first = np.floor(places)
    return first.astype(np.int32), (places - first).astype(np.float32)

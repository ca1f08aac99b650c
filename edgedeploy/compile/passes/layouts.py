"""Converts layouts by TVM's `ConvertLayout`, and removes transposes that it leaves.

Bilinear enlargement at the end of a network is separated into columns, then rows, in the layout of the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relax, te

from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import slow_operators, teach_layout_conversion
from edgedeploy.compile.passes.constants import fold_constants

# The attribute of a network: by name, its operators that are slow or may be, and why.
SLOW_OPERATORS = "edgedeploy.slow_operators"

# Convolutions and operators between them work on pixels whose channels are neighbours in memory.
_LAYOUTS = {"relax.nn.conv2d": ["NHWC", "HWIO"], "relax.image.resize2d": ["NHWC"]}

# The source of a result's index, by the numbers of values before and after.
_PLACES = {
    "half_pixel": lambda index, before, after: (index + 0.5) * before / after - 0.5,
    "pytorch_half_pixel": lambda index, before, after: (index + 0.5) * before / after - 0.5 if after > 1 else 0 * index,
    "align_corners": lambda index, before, after: index * (before - 1) / max(after - 1, 1),
    "asymmetric": lambda index, before, after: index * before / after,
}


def convert_layout(module: tvm.IRModule, layouts: Mapping[str, Sequence[str]]) -> tvm.IRModule:
    """Give operators other layouts, by TVM's names of both; operators between them follow."""
    if not any(ir.is_call(part, name) for part in ir.parts_of(module["main"]) for name in layouts):
        return module  # the time that TVM's pass takes grows with the square of the operators
    teach_layout_conversion()
    return relax.transform.ConvertLayout(layouts)(_SameRanks.rewritten(module))


class _SameRanks(ir.Rewriter):
    """Gives the operands of `where` the rank of its result: its layout becomes that of all of them."""

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not ir.is_call(call, "relax.where"):
            return None
        return relax.Call(call.op, [self._of_rank(len(ir.shape_of(call)), each) for each in call.args])

    def _of_rank(self, rank: int, operand: relax.Expr) -> relax.Expr:
        shape, value = ir.shape_of(operand), ir.constant_value(operand)
        if len(shape) == rank:
            return operand
        shape = [1] * (rank - len(shape)) + shape
        return self.emit.reshape(operand, shape) if value is None else ir.constant(value.reshape(shape))


def convert_to_nhwc(module: tvm.IRModule) -> tvm.IRModule:
    """Move feature maps to NHWC, and weights to HWIO; note slow operators."""
    module = fold_constants(convert_layout(module, _LAYOUTS))
    return module.with_attr(SLOW_OPERATORS, slow_operators(module))


def remove_transposes(module: tvm.IRModule) -> tvm.IRModule:
    """Replace transposes that cost nothing to avoid.

    One before a pad moves behind it. One that undoes the one before it vanishes with it. One that moves only axes of
    length one becomes a reshape. One before a product of flattened feature maps with a constant matrix goes into the
    order of the matrix's rows, also if several feature maps are concatenated; the products are summed in another order
    then.
    """
    return _TransposeRemover.canonicalised(module)


class _TransposeRemover(ir.Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr:
        axes = ir.axes_of(call)
        if axes:
            source = self.bound_value(call.args[0])
            before = ir.axes_of(source)
            if before and [before[axis] for axis in axes] == sorted(axes):
                return source.args[0]
            # `lower-anchors` looks for transposes to NHWC at the network's inputs.
            long = [axis for axis in axes if ir.shape_of(call.args[0])[axis] > 1]
            if axes != ir.NHWC_OF_NCHW and long == sorted(long):
                call = relax.op.reshape(call.args[0], ir.shape_of(call))
        if ir.is_call(call, "relax.nn.pad"):
            return self._padded_before(call)
        if ir.is_call(call, "relax.reshape"):
            source = self.bound_value(call.args[0])
            # Two in a row would be a copy, and so would one that changes nothing.
            data = source.args[0] if ir.is_call(source, "relax.reshape") else call.args[0]
            return data if ir.shape_of(data) == ir.shape_of(original) else relax.op.reshape(data, call.args[1])
        if ir.is_call(call, "relax.matmul"):
            weights = ir.constant_value(call.args[1])
            if weights is not None and weights.ndim == 2 and len(ir.shape_of(call.args[0])) == 2:
                features, order = self._in_memory_order(call.args[0])
                if order is not None:
                    return relax.op.matmul(
                        features, ir.constant(weights[order]), out_dtype=call.attrs.out_dtype or None
                    )
        return call

    def _padded_before(self, pad: relax.Call) -> relax.Expr:
        """A pad before the transpose of its input instead of after it; layout conversion does not pass through pads."""
        transpose, attrs = self.bound_value(pad.args[0]), pad.attrs
        axes = ir.axes_of(transpose)
        if not axes:
            return pad
        widths = np.zeros((len(axes), 2), int)
        widths[axes] = np.reshape([int(each) for each in attrs.pad_width], (-1, 2))
        padded = relax.op.nn.pad(transpose.args[0], widths.ravel().tolist(), attrs.pad_mode, float(attrs.pad_value))
        return relax.op.permute_dims(self.emit(padded), axes)

    def _in_memory_order(self, features: relax.Expr) -> tuple[relax.Expr, np.ndarray | None]:
        """Flattened feature maps in the order of memory, without the transposes before them.

        Also the index of each value in the original order; None if that is the same.
        """
        value = self.bound_value(features)
        if ir.is_call(value, "relax.reshape"):
            transpose = self.bound_value(value.args[0])
            if ir.axes_of(transpose) == ir.NCHW_OF_NHWC:
                batch, *pixels = ir.shape_of(transpose)
                if ir.shape_of(value) == [batch, int(np.prod(pixels))]:
                    order = np.arange(np.prod(pixels)).reshape(pixels).transpose(1, 2, 0).ravel()
                    return self.emit.reshape(transpose.args[0], ir.shape_of(value)), order
        if ir.is_call(value, "relax.concat") and isinstance(value.args[0], relax.Tuple) and int(value.attrs.axis) == 1:
            fields = list(value.args[0].fields)
            parts = [self._in_memory_order(field) for field in fields]
            if any(order is not None for _, order in parts):
                counts = [ir.shape_of(field)[1] for field in fields]
                starts = np.cumsum(counts) - counts
                orders = [
                    start + (np.arange(count) if order is None else order)
                    for (_, order), start, count in zip(parts, starts, counts, strict=True)
                ]
                return self.emit.concat([part for part, _ in parts], axis=1), np.concatenate(orders)
        return features, None


class _ResizeSeparator(ir.Rewriter):
    """Moves the transpose, and a slice of channels, behind a bilinear enlargement before it, which becomes two steps.

    Rows of the result are then sums of two whole rows, in vectors; before, each value was gathered from four pixels.
    Expects NHWC.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if ir.axes_of(call) != ir.NCHW_OF_NHWC or self.uses[original.args[0]] != 1:
            return None
        resize, sliced = self.bound_value(call.args[0]), None
        if ir.is_call(resize, "relax.strided_slice") and _is_channel_slice(resize):
            sliced, resize = resize, self.bound_value(resize.args[0])
            before = self.before[original.args[0]]
            if ir.is_call(before, "relax.strided_slice") and self.uses[before.args[0]] > 1:
                return None
        if not _enlarges(resize):
            return None
        data, mode = resize.args[0], str(resize.attrs.coordinate_transformation_mode)
        if sliced is not None:
            data = self.emit(relax.Call(sliced.op, [data, *sliced.args[1:]], sliced.attrs))
        image = self.emit.permute_dims(data, ir.NCHW_OF_NHWC)
        (height, width), (rows, columns) = ir.shape_of(image)[2:], ir.shape_of(call)[2:]
        wide = self._along(3, image, *_sources(mode, width, columns))
        return self._along(2, self.emit(wide), *_sources(mode, height, rows))

    def _along(self, axis: int, image: relax.Expr, first: np.ndarray, weight: np.ndarray) -> relax.Expr:
        """One axis of an image in NCHW, interpolated between a value and the next one."""
        shape = ir.shape_of(image)
        last = shape[axis] - 1
        shape[axis] = len(first)

        def interpolate(image: te.Tensor, first: te.Tensor, second: te.Tensor, weight: te.Tensor) -> te.Tensor:
            def value(*index: tvm.tirx.Var) -> tvm.tirx.PrimExpr:
                def at(places: te.Tensor) -> tvm.tirx.PrimExpr:
                    return image(*index[:axis], places[index[axis]], *index[axis + 1 :])

                return at(first) + (at(second) - at(first)) * weight[index[axis]]

            return te.compute(shape, value, name="interpolate")

        tables = [ir.constant(first), ir.constant(np.minimum(first + 1, last).astype(np.int32)), ir.constant(weight)]
        return self.builder_.call_te(
            interpolate, image, *tables, primfunc_name_hint="interpolate", primfunc_attrs={"op_pattern": ir.OPAQUE}
        )


def _is_channel_slice(call: relax.Call) -> bool:
    """Whether a slice leaves all pixels."""
    return ir.shape_of(call)[:3] == ir.shape_of(call.args[0])[:3] and len(call.args[1].fields) == 1


def _enlarges(call: relax.Expr) -> bool:
    if not ir.is_call(call, "relax.image.resize2d") or call.attrs.layout != "NHWC" or call.attrs.method != "linear":
        return False
    (height, width), (rows, columns) = ir.shape_of(call.args[0])[1:3], ir.shape_of(call)[1:3]
    known = call.attrs.coordinate_transformation_mode in _PLACES and str(call.ty.dtype) == "float32"
    return known and rows >= 2 * height and columns >= width


def _sources(mode: str, before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """For each value along an axis, the first of the two values around its source, and the weight of the second."""
    places = np.clip(_PLACES[mode](np.arange(after, dtype=np.float64), before, after), 0, before - 1)
    first = np.floor(places)
    return first.astype(np.int32), (places - first).astype(np.float32)


separate_resizes = _ResizeSeparator.rewritten

"""Conversion of layouts by TVM's `ConvertLayout`, and the transposes that it leaves although nothing needs to move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import (
    Rewriter,
    axes_of,
    constant,
    constant_value,
    is_call,
    parts_of,
    rewritten,
    shape_of,
)
from edgedeploy.compile.lowering import NHWC_OF_NCHW
from edgedeploy.compile.optraits import teach_layout_conversion

NCHW_OF_NHWC = [0, 3, 1, 2]


def convert_layout(module: tvm.IRModule, layouts: Mapping[str, Sequence[str]]) -> tvm.IRModule:
    """Give operators the layouts that are wished for, by TVM's names of both; what lies between them follows."""
    if not any(is_call(part, name) for part in parts_of(module["main"]) for name in layouts):
        return module  # the time that TVM's pass takes grows with the square of the operators
    teach_layout_conversion()
    return relax.transform.ConvertLayout(layouts)(rewritten(_SameRanks, module))


class _SameRanks(Rewriter):
    """Gives the operands of `where` the rank of its result: its layout becomes that of all of them."""

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.where"):
            return None
        return relax.Call(call.op, [self._of_rank(len(shape_of(call)), each) for each in call.args])

    def _of_rank(self, rank: int, operand: relax.Expr) -> relax.Expr:
        shape, value = shape_of(operand), constant_value(operand)
        if len(shape) == rank:
            return operand
        shape = [1] * (rank - len(shape)) + shape
        return self.emit(relax.op.reshape(operand, shape)) if value is None else constant(value.reshape(shape))


def remove_transposes(module: tvm.IRModule) -> tvm.IRModule:
    """Replace transposes that cost nothing to avoid.

    One before a pad moves behind it. One that undoes the one before it vanishes with it. One that moves only axes of
    length one becomes a reshape. One before a product of flattened feature maps with a constant matrix goes into the
    order of the matrix's rows, also where several such feature maps are concatenated; the products are summed in
    another order then.
    """
    return relax.transform.CanonicalizeBindings()(rewritten(_Remover, module))


class _Remover(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr:
        axes = axes_of(call)
        if axes:
            source = self.bound_value(call.args[0])
            before = axes_of(source)
            if before and [before[axis] for axis in axes] == sorted(axes):
                return source.args[0]
            if _moves_nothing(shape_of(call.args[0]), axes):
                call = relax.op.reshape(call.args[0], shape_of(call))
        if is_call(call, "relax.nn.pad"):
            return self._padded_before(call)
        if is_call(call, "relax.reshape"):
            source = self.bound_value(call.args[0])
            # Two in a row would be a copy, and so would one that changes nothing.
            data = source.args[0] if is_call(source, "relax.reshape") else call.args[0]
            return data if shape_of(data) == shape_of(original) else relax.op.reshape(data, call.args[1])
        if is_call(call, "relax.matmul"):
            weights = constant_value(call.args[1])
            if weights is not None and weights.ndim == 2 and len(shape_of(call.args[0])) == 2:
                features, order = self._as_they_lie(call.args[0])
                if order is not None:
                    return relax.op.matmul(features, constant(weights[order]), out_dtype=call.attrs.out_dtype or None)
        return call

    def _padded_before(self, pad: relax.Call) -> relax.Expr:
        """A pad before the transpose of its input instead of after it; layout conversion does not pass through pads."""
        transpose, attrs = self.bound_value(pad.args[0]), pad.attrs
        axes = axes_of(transpose)
        if not axes:
            return pad
        widths = np.zeros((len(axes), 2), int)
        widths[axes] = np.reshape([int(each) for each in attrs.pad_width], (-1, 2))
        padded = relax.op.nn.pad(transpose.args[0], widths.ravel().tolist(), attrs.pad_mode, float(attrs.pad_value))
        return relax.op.permute_dims(self.emit(padded), axes)

    def _as_they_lie(self, features: relax.Expr) -> tuple[relax.Expr, np.ndarray | None]:
        """Flattened feature maps, without the transposes before them.

        Returns:
            The features in the order of memory, and for each of them its index in the order that was asked for;
            None instead if that is the same.
        """
        value = self.bound_value(features)
        if is_call(value, "relax.reshape"):
            transpose = self.bound_value(value.args[0])
            if axes_of(transpose) == NCHW_OF_NHWC:
                batch, *pixels = shape_of(transpose)
                if shape_of(value) == [batch, int(np.prod(pixels))]:
                    order = np.arange(np.prod(pixels)).reshape(pixels).transpose(1, 2, 0).ravel()
                    return self.emit(relax.op.reshape(transpose.args[0], shape_of(value))), order
        if is_call(value, "relax.concat") and isinstance(value.args[0], relax.Tuple) and int(value.attrs.axis) == 1:
            fields = list(value.args[0].fields)
            parts = [self._as_they_lie(field) for field in fields]
            if any(order is not None for _, order in parts):
                counts = [shape_of(field)[1] for field in fields]
                starts = np.cumsum(counts) - counts
                orders = [
                    start + (np.arange(count) if order is None else order)
                    for (_, order), start, count in zip(parts, starts, counts, strict=True)
                ]
                return self.emit(relax.op.concat([part for part, _ in parts], 1)), np.concatenate(orders)
        return features, None


def _moves_nothing(shape: list[int], axes: list[int]) -> bool:
    """Whether a transpose keeps the order of the axes longer than one."""
    if axes == NHWC_OF_NCHW:
        return False  # it is looked for at the network's inputs
    long = [axis for axis in axes if shape[axis] > 1]
    return long == sorted(long)

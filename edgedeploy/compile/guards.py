"""Checks, at run time, of integers that a network computes and then divides by or takes for indices.

Zero as a divisor ends the process, and an index beyond its axis reads or writes the memory of others. Each such tensor
is copied by a function that ends the inference with an error where it finds one (`runtime/native/guards.c`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from edgedeploy.compile.arithmetic import DIVISIONS
from edgedeploy.compile.expressions import Rewriter, constant, constant_value, rewritten, shape_of
from edgedeploy.compile.optraits import operator_name
from edgedeploy.compile.types import bytes_of, is_floating

# The functions of `guards.c`.
_CHECK_DIVISORS, _CHECK_INDICES = "edgedeploy_check_divisors", "edgedeploy_check_indices"

_INDEX_TYPE = "int64"

_legalised = ir.Op.get("relax.take").get_attr("FLegalize")

# The operators as ONNX calls them, which users may know.
_NAMES = {
    "divide": "Div", "floor_divide": "Div", "floor_mod": "Mod", "gather_elements": "GatherElements",
    "gather_nd": "GatherND", "index_put": "index_put", "index_tensor": "indexing", "mod": "Mod",
    "scatter_elements": "ScatterElements", "scatter_nd": "ScatterND", "take": "Gather",
}  # fmt: skip


def guard(module: tvm.IRModule) -> tvm.IRModule:
    """Check divisors and indices that are known only at run time, before operators use them."""
    return rewritten(_Guard, module)


class _Guard(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name, arguments = operator_name(call), list(call.args)
        if name in DIVISIONS and not is_floating(str(call.ty.dtype)):
            divisor = constant_value(arguments[1])
            if divisor is not None and divisor.all():
                return None
            arguments[1] = self._checked(_CHECK_DIVISORS, name, arguments[1], [])
        elif name == "take" and str(call.attrs.mode) != "fast":
            return None  # it keeps within its axis by itself
        elif sizes := indexed_axes(call):
            if isinstance(arguments[1], relax.Tuple):
                given = zip(arguments[1].fields, sizes, strict=False)
                arguments[1] = relax.Tuple([self._index(name, index, [size]) for index, size in given])
            else:
                arguments[1] = self._index(name, arguments[1], sizes)
        if arguments == list(call.args):
            return None
        return relax.Call(call.op, arguments, call.attrs, call.ty_args)

    def _index(self, name: str, index: relax.Expr, sizes: list[int]) -> relax.Expr:
        """Indices that are checked: constants now, others at run time."""
        if str(index.ty.dtype) == "bool":
            return index
        if (values := constant_value(index)) is not None:
            if ((values < -np.asarray(sizes)) | (values >= sizes)).any():
                raise ValueError(f"an index in {_NAMES[name]} is out of bounds for axes of sizes {sizes}")
            return constant(np.where(values < 0, values + sizes, values), _INDEX_TYPE) if (values < 0).any() else index
        if str(index.ty.dtype) != _INDEX_TYPE:
            index = self.emit(relax.op.astype(index, _INDEX_TYPE))
        return self._checked(_CHECK_INDICES, name, index, sizes)

    def _checked(self, check: str, name: str, tensor: relax.Expr, sizes: list[int]) -> relax.Expr:
        shape, dtype = shape_of(tensor), str(tensor.ty.dtype)
        function = _checking(check, shape, dtype, _NAMES[name], sizes)
        variable = self.builder_.add_func(function, f"check_{name}")
        return self.emit(relax.call_tir(variable, relax.Tuple([tensor]), relax.TensorType(shape, dtype)))


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """A gathering by indices that are known to be good. TVM's own function of it warns that it does not check them."""
    if str(call.attrs.mode) != "fast" or call.attrs.axis is None:
        return _legalised(builder, call)
    axis = int(call.attrs.axis) % len(shape_of(call.args[0]))

    def compute(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        end = axis + len(indices.shape)
        return te.compute(
            [*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]],
            lambda *place: data(*place[:axis], indices(*place[axis:end]), *place[end:]),
            name="taken",
            tag="injective",
        )

    return builder.call_te(compute, *call.args, primfunc_name_hint="take")


LEGALISATIONS = {"relax.take": _take}


def indexed_axes(call: Any) -> list[int]:
    """The sizes of the axes that a call's second argument holds indices of: its last axis goes through them."""
    name = operator_name(call)
    if name in ("take", "gather_elements", "scatter_elements"):
        shape, axis = shape_of(call.args[0]), call.attrs.axis
        return [math.prod(shape) if axis is None else shape[int(axis)]]
    if name in ("gather_nd", "scatter_nd"):
        begin = int(call.attrs.batch_dims) if name == "gather_nd" else 0
        return shape_of(call.args[0])[begin : begin + shape_of(call.args[1])[-1]]
    return shape_of(call.args[0]) if name in ("index_tensor", "index_put") else []


def _checking(check: str, shape: list[int], dtype: str, name: str, sizes: list[int]) -> tirx.PrimFunc:
    """A function that copies a tensor, or fails."""
    with IRBuilder() as builder, T.prim_func(private=True, s_tir=True):
        given, checked = (T.arg(each, T.buffer(shape, dtype)) for each in ("given", "checked"))
        with T.sblock("check"):
            T.reads(_whole(given))
            T.writes(_whole(checked))
            numbers = math.prod(shape), bytes_of(dtype), *sizes
            T.evaluate(
                tirx.call_cpacked(
                    check, name, given.data, checked.data, *(tirx.const(each, "int64") for each in numbers)
                )
            )
    return builder.get()


def _whole(buffer: Any) -> Any:
    return buffer[tuple(slice(0, int(size)) for size in buffer.shape)]

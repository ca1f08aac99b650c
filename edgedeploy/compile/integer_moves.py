"""Operators that only move quantised values, or choose among them: they work on the integers as they are."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, is_call, rewritten
from edgedeploy.compile.optraits import Kind, is_kind, operator_name, tensors_of
from edgedeploy.compile.quantisation import Steps, dequantize, quantize, shift_between, steps_of

# Besides reshapes; of those that take a list, all parts must have the same steps.
_MOVES = {"broadcast_to", "concat", "flip", "max", "nn.max_pool2d", "permute_dims", "repeat", "split", "strided_slice"}


def move_integers(module: tvm.IRModule, dtype: str) -> tvm.IRModule:
    """Move each `dequantize` behind operators that move values, as far as that goes, and store all bytes as one type.

    A `quantize` by the steps that its operand was dequantised from vanishes. Values stay the same, all of them.

    Args:
        module: the network.
        dtype: in which quantised feature maps are stored.
    """
    return relax.transform.CanonicalizeBindings()(rewritten(_Mover, module, dtype))


def shifted(build: relax.BlockBuilder, integers: relax.Expr, dtype: str) -> relax.Expr:
    """Bytes as another type, their zero point moved with them."""
    wide = build.emit(relax.op.astype(integers, "int16"))
    shift = shift_between(str(integers.ty.dtype), dtype)
    return relax.op.astype(build.emit(relax.op.add(wide, relax.const(shift, "int16"))), dtype)


class _Mover(Rewriter):
    def __init__(self, module: tvm.IRModule, dtype: str) -> None:
        super().__init__(module)
        self._dtype = dtype
        # By variables of another type, the variables of the integers in the type that all are stored as.
        self._stored: dict[relax.Var, relax.Expr] = {}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = steps_of(call)
        if steps and is_call(call, "relax.dequantize"):
            return self._dequantised(call.args[0], steps)
        if steps:
            return self._quantised(call.args[0], steps)
        return self._moved(call)

    def _resolved(self, expression: relax.Expr) -> relax.Expr:
        """What an expression is in the end, parts of tuples as well."""
        while isinstance(expression, relax.Var | relax.TupleGetItem):
            if isinstance(expression, relax.TupleGetItem):
                whole = self._resolved(expression.tuple_value)
                if not isinstance(whole, relax.Tuple):
                    return expression
                expression = whole.fields[int(expression.index)]
                continue
            value = self.lookup_binding(expression)
            if value is None:
                return expression
            expression = value
        return expression

    def _dequantised(self, integers: relax.Expr, steps: Steps) -> relax.Expr | None:
        if steps.dtype == self._dtype:
            return None
        variable = integers
        while isinstance(variable, relax.Var) and variable not in self._stored:
            variable = self.lookup_binding(variable)
        if isinstance(variable, relax.Var):
            return dequantize(self._stored[variable], steps.stored_as(self._dtype))
        if isinstance(integers, relax.Var):
            integers = self.emit(shifted(self.builder_, integers, self._dtype))
            return dequantize(integers, steps.stored_as(self._dtype))
        return None

    def _quantised(self, value: relax.Expr, steps: Steps) -> relax.Expr:
        stored, before = steps.stored_as(self._dtype), self._resolved(value)
        if is_call(before, "relax.dequantize") and steps_of(before) == stored:
            integers = before.args[0]
        else:
            integers = self.emit(quantize(value, stored))
        if steps.dtype == self._dtype:
            return integers
        declared = self.emit(shifted(self.builder_, integers, steps.dtype))
        self._stored[declared] = integers
        return declared

    def _moved(self, call: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        pads_or_resizes = name in ("nn.pad", "image.resize2d", "nn.relu")
        if name not in _MOVES and not pads_or_resizes and not is_kind(call, Kind.RESHAPE):
            return None
        several = name == "concat"
        operands = self._fields(call.args[0]) if several else tensors_of(call)
        sources = [self._resolved(each) for each in operands]
        found = {steps_of(each) if is_call(each, "relax.dequantize") else None for each in sources}
        steps = found.pop() if len(found) == 1 else None
        if steps is None:
            return None
        integers = [each.args[0] for each in sources]
        if pads_or_resizes:
            moved = _adapted(call, integers[0], steps)
        else:
            first = relax.Tuple(integers) if several else integers[0]
            moved = relax.Call(call.op, [first, *call.args[1:]], call.attrs)
        if moved is None:
            return None
        variable = self.emit(moved)
        if not isinstance(variable.ty, relax.TupleType):
            return dequantize(variable, steps)
        parts = [self.emit(relax.TupleGetItem(variable, index)) for index in range(len(variable.ty.fields))]
        return relax.Tuple([self.emit(dequantize(part, steps)) for part in parts])

    def _fields(self, expression: relax.Expr) -> list[relax.Expr]:
        whole = self._resolved(expression)
        return list(whole.fields) if isinstance(whole, relax.Tuple) else [expression]


def _adapted(call: relax.Call, integers: relax.Expr, steps: Steps) -> relax.Call | None:
    """An operator that holds a value or a type of its own, on integers; None where it computes new values."""
    attrs = call.attrs
    if is_call(call, "relax.nn.relu"):
        return relax.op.maximum(integers, relax.const(steps.zero_point, steps.dtype))
    if is_call(call, "relax.nn.pad"):
        value = int(steps.quantised(float(attrs.pad_value)))
        exact = steps.dequantised(np.asarray(value)) == float(attrs.pad_value) or attrs.pad_mode != "constant"
        return relax.op.nn.pad(integers, attrs.pad_width, attrs.pad_mode, float(value)) if exact else None
    if attrs.method != "nearest_neighbor":
        return None
    return relax.op.image.resize2d(
        integers,
        call.args[1],
        attrs.roi,
        attrs.layout,
        attrs.method,
        attrs.coordinate_transformation_mode,
        attrs.rounding_method,
        attrs.cubic_alpha,
        attrs.cubic_exclude,
        attrs.extrapolation_value,
        steps.dtype,
    )

"""Passes over quantised tensors: networks run in 8-bit integers between their layers, or round in float.

Pairs of `quantize` and `dequantize` mark the quantised tensors of a network. Known operators between a `dequantize` and
the next `quantize` work on bytes; all others stay in float, between the two.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.backends.cpu import CpuBackend
from edgedeploy.compile.integers import quantisation
from edgedeploy.compile.integers.layers import is_half_away
from edgedeploy.compile.integers.operators import IntegerWriter, Summary
from edgedeploy.compile.ir.expressions import Emitter, Rewriter, bindings_of, constant, constant_value, is_call
from edgedeploy.compile.ir.optraits import Kind, is_kind, moves_values, operator_name, tensors_of
from edgedeploy.compile.ir.types import bits_of, is_floating, limits_of
from edgedeploy.compile.passes.constants import fold_constants

# The attribute of a network that is computed in integers from its inputs to its outputs: its values are exact if its
# layers' sums are.
THROUGHOUT = "edgedeploy.integers_throughout"

# Besides reshapes; of operators that take a list, all parts must have the same steps.
_MOVES = {"broadcast_to", "concat", "flip", "max", "nn.max_pool2d", "permute_dims", "repeat", "split", "strided_slice"}


def compute_in_integers(module: tvm.IRModule, cpu: CpuBackend) -> tvm.IRModule:
    """Compute quantised tensors in bytes, and fold the constants that are left.

    A network stays as it was if none of its layers can be computed in integers. One with nothing in float but
    conversions at its inputs and outputs, all of whose values are rounded as onnxruntime's, gets the attribute
    `THROUGHOUT`.

    Expects NCHW; weights may be `dequantize` of constants.
    """
    summary = Summary()
    moved = _Mover.canonicalised(module, cpu.activation_type)
    types = Counter(steps.dtype for steps in map(quantisation.steps_of, _calls(module)) if steps)
    type_in_file = max(quantisation.BYTES, key=lambda dtype: types[dtype])
    written = IntegerWriter.rewritten(moved, cpu, type_in_file, summary)
    if summary.layers:
        # First dead code of floats is removed, then the conversions at the borders are written out.
        written = relax.transform.CanonicalizeBindings()(written)
        module = _Border.rewritten(written)
        if summary.exact and _is_throughout(written) and not any(map(is_half_away, _calls(moved))):
            module = module.with_attr(THROUGHOUT, True)
    return fold_constants(module)


def _is_throughout(module: tvm.IRModule) -> bool:
    """Whether only inputs are quantised, all outputs are integers or were, and nothing between is rounded in float."""
    function = module["main"]
    values = {each.var: each.value for each in bindings_of(function)}

    def before_moves(expression: relax.Expr) -> list[relax.Expr]:
        call = values.get(expression, expression)
        if isinstance(call, relax.Tuple):
            return [each for field in call.fields for each in before_moves(field)]
        return before_moves(call.args[0]) if moves_values(call) else [call]

    calls = _calls(module)
    if any(is_call(call, "relax.nn.avg_pool2d") for call in calls):
        return False  # averages are computed in float, where the order of a sum decides on which side of a half it is
    read = [each for call in calls if is_call(call, "relax.quantize") for each in before_moves(call.args[0])]
    results = before_moves(function.body.body)
    return all(each in list(function.params) for each in read) and all(
        is_call(each, "relax.dequantize") or not is_floating(str(each.ty.dtype)) for each in results
    )


def _calls(module: tvm.IRModule) -> list[relax.Expr]:
    return [binding.value for binding in bindings_of(module["main"])]


class _Border(Rewriter):
    """Writes out the conversions between integers and floats."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._readers: dict[relax.Var, list[relax.VarBinding]] = {}
        for binding in bindings_of(module["main"]):
            for each in relax.analysis.free_vars(binding.value):
                self._readers.setdefault(each, []).append(binding)
        self._in_float = {
            var: call
            for var, call in self.before.items()
            if is_call(call, "relax.quantize") and self._is_rounded_in_float(var)
        }
        self._dequantised = {
            var: call
            for var, call in self.before.items()
            if is_call(call, "relax.dequantize")
            and call.args[0] not in self._in_float
            and constant_value(call.args[0]) is None
            and quantisation.steps_of(call)
        }

    def _is_rounded_in_float(self, integers: relax.Var) -> bool:
        """Whether only `dequantize` reads integers, but not for several loops alone: in bytes these read a fourth."""
        floats = [each.var for each in self._readers.get(integers, []) if is_call(each.value, "relax.dequantize")]
        if self.uses[integers] != len(floats):
            return False
        first = [reader for each in floats for reader in self._readers.get(each, [])]
        if len(first) < 2 or not all(is_kind(reader.value, Kind.ELEMENTWISE) for reader in first):
            return True
        loops = [self._loop(reader.var) for reader in first]
        return len(set().union(*loops)) < sum(map(len, loops))

    def _loop(self, variable: relax.Var) -> set[relax.Var]:
        """A tensor, and the results of elementwise operators on it, one after the other."""
        found, left = {variable}, [variable]
        while left:
            for reader in self._readers.get(left.pop(), []):
                quantises = is_call(reader.value, "relax.quantize", "relax.dequantize")
                if reader.var not in found and (quantises or is_kind(reader.value, Kind.ELEMENTWISE)):
                    found.add(reader.var)
                    left.append(reader.var)
        return found

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = quantisation.steps_of(call)
        if is_call(call, "relax.quantize") and steps:
            in_float = any(original.same_as(each) for each in self._in_float.values())
            return None if in_float else quantisation.to_integers(self.emit, self._own(call, original).args[0], steps)
        if any(original.same_as(each) for each in self._dequantised.values()):
            return self._floats(original)
        return self._own(call, original) if is_kind(call, Kind.ELEMENTWISE) else None

    def _floats(self, original: relax.Call) -> relax.Expr:
        steps = quantisation.steps_of(original)
        assert steps is not None
        return quantisation.to_floats(self.emit, self.visit_expr(original.args[0]), steps)

    def _own(self, call: relax.Call, original: relax.Call) -> relax.Call:
        """An elementwise operator with its own conversions of its operands: they become one function with it."""
        arguments = [
            self.emit(self._floats(self._dequantised[before])) if before in self._dequantised else now
            for before, now in zip(original.args, call.args, strict=True)
        ]
        return relax.Call(call.op, arguments, call.attrs)


def _shifted(emit: Emitter, integers: relax.Expr, dtype: str) -> relax.Var:
    """Bytes as another type, their zero point moved with them."""
    wide, shift = emit.astype(integers, "int16"), quantisation.shift_between(str(integers.ty.dtype), dtype)
    return emit.astype(emit.add(wide, shift), dtype)


class _Mover(Rewriter):
    """Moves each `dequantize` behind operators that move values, if possible, and stores all bytes as one type.

    A `quantize` by the steps that its operand was dequantised from vanishes. All values stay the same.
    """

    def __init__(self, module: tvm.IRModule, dtype: str) -> None:
        super().__init__(module)
        self._dtype = dtype
        # By variables of another type, the variables of the integers in the type that all are stored as.
        self._stored: dict[relax.Var, relax.Expr] = {}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        steps = quantisation.steps_of(call)
        if steps and is_call(call, "relax.dequantize"):
            return self._dequantised(call.args[0], steps)
        return self._quantised(call.args[0], steps) if steps else self._moved(call)

    def _resolved(self, expression: relax.Expr) -> relax.Expr:
        """The value of an expression, through variables and parts of tuples."""
        if isinstance(expression, relax.TupleGetItem):
            whole = self._resolved(expression.tuple_value)
            return self._resolved(whole.fields[int(expression.index)]) if isinstance(whole, relax.Tuple) else expression
        value = self.lookup_binding(expression) if isinstance(expression, relax.Var) else None
        return expression if value is None else self._resolved(value)

    def _dequantised(self, integers: relax.Expr, steps: quantisation.Steps) -> relax.Expr | None:
        if steps.dtype == self._dtype or not isinstance(integers, relax.Var):
            return None
        variable = integers
        while isinstance(variable, relax.Var) and variable not in self._stored:
            variable = self.lookup_binding(variable)
        known = isinstance(variable, relax.Var)
        stored = self._stored[variable] if known else _shifted(self.emit, integers, self._dtype)
        return quantisation.dequantize(stored, steps.stored_as(self._dtype))

    def _quantised(self, value: relax.Expr, steps: quantisation.Steps) -> relax.Expr:
        stored, before = steps.stored_as(self._dtype), self._resolved(value)
        if is_call(before, "relax.dequantize") and quantisation.steps_of(before) == stored:
            integers = before.args[0]
        else:
            integers = self.emit(quantisation.quantize(value, stored))
        if steps.dtype == self._dtype:
            return integers
        declared = _shifted(self.emit, integers, steps.dtype)
        self._stored[declared] = integers
        return declared

    def _moved(self, call: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        pads_or_resizes = name in ("nn.pad", "image.resize2d", "nn.relu")
        if name not in _MOVES and not pads_or_resizes and not is_kind(call, Kind.RESHAPE):
            return None
        parts = self._resolved(call.args[0]) if name == "concat" else None
        operands = list(parts.fields) if isinstance(parts, relax.Tuple) else tensors_of(call)
        sources = [self._resolved(each) for each in operands]
        found = {quantisation.steps_of(each) if is_call(each, "relax.dequantize") else None for each in sources}
        steps = found.pop() if len(found) == 1 else None
        if steps is None:
            return None
        integers = [each.args[0] for each in sources]
        if pads_or_resizes:
            moved = _adapted(call, integers[0], steps)
        else:
            first = relax.Tuple(integers) if name == "concat" else integers[0]
            moved = relax.Call(call.op, [first, *call.args[1:]], call.attrs)
        if moved is None:
            return None
        variable = self.emit(moved)
        if not isinstance(variable.ty, relax.TupleType):
            return quantisation.dequantize(variable, steps)
        fields = [self.emit(relax.TupleGetItem(variable, index)) for index in range(len(variable.ty.fields))]
        return relax.Tuple([self.emit(quantisation.dequantize(each, steps)) for each in fields])


def _adapted(call: relax.Call, integers: relax.Expr, steps: quantisation.Steps) -> relax.Call | None:
    """An operator with a value or a type of its own, on integers; None if it computes new values."""
    attrs = call.attrs
    if is_call(call, "relax.nn.relu"):
        return relax.op.maximum(integers, relax.const(steps.zero_point, steps.dtype))
    if is_call(call, "relax.nn.pad"):
        value = int(steps.quantised(float(attrs.pad_value)))
        exact = steps.dequantised(np.asarray(value)) == float(attrs.pad_value) or attrs.pad_mode != "constant"
        return relax.op.nn.pad(integers, attrs.pad_width, attrs.pad_mode, float(value)) if exact else None
    if attrs.method != "nearest_neighbor":
        return None
    names = "layout method coordinate_transformation_mode rounding_method cubic_alpha cubic_exclude extrapolation_value"
    same = {name: getattr(attrs, name) for name in names.split()}
    roi = tuple(float(each) for each in attrs.roi)
    return relax.op.image.resize2d(integers, call.args[1], roi, **same, out_dtype=steps.dtype)


class _Rounder(Rewriter):
    """Rewrites `dequantize(quantize(x))` with constant scales to elementwise operators on float32.

    With the integers' range [low, high], z their zero point and s the scale, ONNX's
    `(saturate(round(x / s) + z) - z) * s` is computed as `round(min(max(x / s, low - z), high - z)) * s`; halves are
    rounded to even in both.
    """

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if not is_call(call, "relax.dequantize") or str(call.ty.dtype) != "float32":
            return None
        quantised = self.bound_value(call.args[0])
        if not is_call(quantised, "relax.quantize") or str(quantised.args[0].ty.dtype) != "float32":
            return None
        first, second = quantisation.parameters_of(quantised), quantisation.parameters_of(call)
        if first is None or second is None or not all(map(np.array_equal, first, second)):
            return None
        scale, zero_point = first
        dtype = str(quantised.ty.dtype)
        if bits_of(dtype) > 16:  # float32 does not hold all of their values
            return None
        low, high = (np.asarray(limit - zero_point, np.float32) for limit in limits_of(dtype))
        value = quantisation.bounded(self.emit, self.emit.divide(quantised.args[0], scale), low, high)
        return relax.op.multiply(self.emit.round(value), constant(scale, "float32"))


def round_in_float(module: tvm.IRModule) -> tvm.IRModule:
    """Round pairs of `quantize` and `dequantize` in float, and fold the constants that are left."""
    return fold_constants(_Rounder.rewritten(module))

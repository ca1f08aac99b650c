"""Gives operators that importers write in several ways one form, so that all formats get the same passes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.ir import expressions as ir
from edgedeploy.compile.ir.optraits import Kind, is_kind, operator_name, tensors_of

# Operators whose results jump where real numbers barely change.
_JUMPING = {
    "ceil", "equal", "floor", "floor_divide", "floor_mod", "greater", "greater_equal", "less", "less_equal", "mod",
    "not_equal", "quantize", "round", "sign", "trunc",
}  # fmt: skip


def decompose(module: tvm.IRModule) -> tvm.IRModule:
    """Write batch normalisation by constants as one product and one sum, and splits into many parts in groups.

    TVM decomposes other operators of training.
    """
    module = _Decomposer.canonicalised(module)
    return relax.transform.DecomposeOpsForInference()(module)


class _Decomposer(ir.Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if ir.is_call(call, "relax.split"):
            return _split_in_groups(self.emit, self.builder_.normalize(call))
        return self._normalisation(call)

    def _normalisation(self, call: relax.Call) -> relax.Expr | None:
        """x * (gamma / sqrt(variance + epsilon)) + (beta - mean * that); statistics stay as they are."""
        if not ir.is_call(call, "relax.nn.batch_norm") or call.attrs.training or int(call.attrs.axis) != 1:
            return None
        values = [ir.constant_value(self.bound_value(argument)) for argument in call.args[1:5]]
        known = [value for value in values if value is not None]
        dtype = str(call.args[0].ty.dtype)
        if dtype not in ("float32", "float64") or len(known) < len(values):
            return None
        gamma, beta, mean, variance = known
        scale = 1 / np.sqrt(variance + np.asarray(call.attrs.epsilon, dtype))
        scale = scale * gamma if call.attrs.scale else scale
        offset = (beta if call.attrs.center else 0) - mean * scale
        column = [1, -1, *[1] * (len(ir.shape_of(call.args[0])) - 2)]
        shifted = self.emit.add(self.emit.multiply(call.args[0], scale.reshape(column)), offset.reshape(column))
        return relax.Tuple([shifted, call.args[3], call.args[4]])


def _split_in_groups(emit: ir.Emitter, call: relax.Call) -> relax.Expr | None:
    """A split into many parts as slices that are split themselves; None for a few parts.

    Equal parts share one function. TVM writes parts as nested buffers, through which its passes recurse.
    """
    axis, parts = int(call.attrs.axis), list(call.ty.fields)
    if len(parts) <= ir.MOST_PARTS:
        return None
    ends = np.cumsum([int(each.shape[axis]) for each in parts])
    begin, found = 0, list[relax.Expr]()
    for group in np.split(ends, range(ir.MOST_PARTS, len(ends), ir.MOST_PARTS)):
        whole = emit.strided_slice(call.args[0], [axis], [begin], [int(group[-1])])
        split = emit.split(whole, [int(end) - begin for end in group[:-1]], axis=axis)
        found += [emit(relax.TupleGetItem(split, place)) for place in range(len(group))]
        begin = int(group[-1])
    return relax.Tuple(found)


def unify(module: tvm.IRModule) -> tvm.IRModule:
    """Write differences from constants as sums, quotients by them as products, and pools and squeezes as what they are.

    Leaves out what changes nothing. Expects constants in the place of their variables. Products with the inverse of a
    constant differ from quotients by rounding, so quotients stay if the next operator would jump: the row
    `floor(41 * 7 / 41)` of a pixel would be another one.
    """
    return _Unifier.canonicalised(module)


class _Unifier(ir.Rewriter):
    @cached_property
    def _exact(self) -> set[relax.Call]:
        """The calls whose results are read by operators that jump: their last bit counts."""
        bindings = ir.bindings_of(self.module["main"])
        read = {argument for binding in bindings if _jumps(binding.value) for argument in binding.value.args}
        return {binding.value for binding in bindings if binding.var in read}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        if name in ("squeeze", "expand_dims", "flatten"):
            return relax.op.reshape(call.args[0], ir.shape_of(call))
        if name in ("broadcast_to", "reshape") and ir.shape_of(call.args[0]) == ir.shape_of(call):
            return call.args[0]
        if name == "astype" and call.args[0].ty.dtype == call.ty.dtype:
            return call.args[0]
        if name.startswith("nn.adaptive_avg_pool") and str(call.attrs.layout).startswith("NC"):
            axes = list(range(2, len(ir.shape_of(call))))
            whole = all(ir.shape_of(call)[axis] == 1 for axis in axes)
            return relax.op.mean(call.args[0], axes, keepdims=True) if whole else None
        if name == "subtract" or (name == "divide" and original not in self._exact):
            return _by_constant(name, call)
        if name == "matmul":
            return _of_matrix(call)
        if name == "permute_dims":
            return self._in_one_order(call)
        if name == "nn.conv2d" and str(call.attrs.data_layout) == "NCHW":
            return self._padded(call)
        return None

    def _padded(self, call: relax.Call) -> relax.Expr | None:
        """A convolution that pads by itself, as some TensorFlow Lite files pad by an operator before."""
        source, attrs = self.bound_value(call.args[0]), call.attrs
        rim = [int(each) for each in source.attrs.pad_width] if ir.is_call(source, "relax.nn.pad") else []
        if len(rim) != 8 or any(rim[:4]) or min(rim) < 0:
            return None
        if str(source.attrs.pad_mode) != "constant" or float(source.attrs.pad_value) != 0:
            return None
        top, bottom, left, right = rim[4:]
        padding = [int(had) + more for had, more in zip(attrs.padding, (top, left, bottom, right), strict=True)]
        return ir.conv2d_like(call, source.args[0], call.args[1], padding=padding)

    def _in_one_order(self, call: relax.Call) -> relax.Expr | None:
        """Two transposes in a row as one, or none."""
        after, source = ir.axes_of(call), self.bound_value(call.args[0])
        before = ir.axes_of(source)
        if not after or not before:
            return None
        axes = [before[axis] for axis in after]
        return source.args[0] if axes == sorted(axes) else relax.op.permute_dims(source.args[0], axes)


def _jumps(value: relax.Expr) -> bool:
    name = operator_name(value)
    return name in _JUMPING or (name == "astype" and str(value.ty.dtype).startswith(("int", "uint")))


def _of_matrix(call: relax.Call) -> relax.Expr | None:
    """A product with a constant stack of one matrix as one with the matrix."""
    value, rank = ir.constant_value(call.args[1]), len(ir.shape_of(call.args[0]))
    if value is None or not 2 < value.ndim <= rank or value.size != value.shape[-2] * value.shape[-1]:
        return None
    return relax.op.matmul(call.args[0], ir.constant(value.reshape(value.shape[-2:])), str(call.ty.dtype))


def _by_constant(name: str, call: relax.Call) -> relax.Expr | None:
    """x - c as x + (-c), x / c as x * (1/c) if floats hold that."""
    value = ir.constant_value(call.args[1])
    if value is None or value.dtype not in (np.float32, np.float64) or ir.constant_value(call.args[0]) is not None:
        return None
    if name == "subtract":
        return relax.op.add(call.args[0], ir.constant(-value))
    with np.errstate(all="ignore"):
        inverse = 1 / value
    tiny = np.finfo(value.dtype).tiny
    usual = np.isfinite(inverse).all() and (np.abs(inverse) >= tiny).all() and (np.abs(value) >= tiny).all()
    return relax.op.multiply(call.args[0], ir.constant(inverse)) if usual else None


def canonicalise(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite bounds and leaky ReLUs as maximum, minimum and products, and give constants whole shapes.

    Values stay the same. Expects constants in the place of their variables.
    """
    return _Canonicaliser.canonicalised(module)


class _Canonicaliser(ir.Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr:
        if is_kind(call, Kind.ELEMENTWISE) and not ir.is_call(call, "relax.nn.prelu"):
            call = _with_whole_constants(call)
        if ir.is_call(call, "relax.clip") and "float" in str(call.args[0].ty.dtype):
            return _clip(self.builder_, call)
        if ir.is_call(call, "relax.nn.leakyrelu"):
            return _sloped(self.emit, call.args[0], float(call.attrs.alpha))
        slope = ir.constant_value(call.args[1]) if ir.is_call(call, "relax.nn.prelu") else None
        return call if slope is None or slope.size > 1 else _sloped(self.emit, call.args[0], slope.item())


def _with_whole_constants(call: relax.Call) -> relax.Call:
    """A call on feature maps with constants as scalars or of all dimensions: others stop layout conversion."""
    rank = max((len(each.ty.shape) for each in tensors_of(call) if ir.constant_value(each) is None), default=0)
    arguments = list(call.args)
    for index, argument in enumerate(arguments):
        value = ir.constant_value(argument)
        if value is not None and 0 < value.ndim < rank and rank in (4, 5):
            shape = () if value.size == 1 else (1,) * (rank - value.ndim) + value.shape
            arguments[index] = ir.constant(value.reshape(shape))
    return call if arguments == list(call.args) else relax.Call(call.op, arguments, call.attrs)


def _clip(build: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    value, dtype = call.args[0], str(call.args[0].ty.dtype)
    lowest, highest = (float(bound.value) for bound in call.args[1:3])
    if np.isfinite(lowest):
        above = relax.op.nn.relu(value) if lowest == 0 else relax.op.maximum(value, ir.constant(lowest, dtype))
        value = build.normalize(above)
    return relax.op.minimum(value, ir.constant(highest, dtype)) if np.isfinite(highest) else value


def _sloped(emit: ir.Emitter, value: relax.Expr, slope: float) -> relax.Expr:
    """x if it is positive, else `slope` x."""
    if slope < 0:
        below = emit.multiply(emit.minimum(0, value), slope)  # in this order NaN stays NaN
        return relax.op.add(emit(relax.op.nn.relu(value)), below)
    scaled = emit.multiply(value, slope)
    return relax.op.maximum(value, scaled) if slope <= 1 else relax.op.minimum(value, scaled)

"""What importers write in several ways, written in one: so that passes and templates do the same for every format."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.concatenations import split_in_groups
from edgedeploy.compile.expressions import Rewriter, axes_of, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.optraits import operator_name

# Of real numbers that barely change.
_JUMPING = {
    "ceil", "equal", "floor", "floor_divide", "floor_mod", "greater", "greater_equal", "less", "less_equal", "mod",
    "not_equal", "quantize", "round", "sign", "trunc",
}  # fmt: skip


def decompose(module: tvm.IRModule) -> tvm.IRModule:
    """Write batch normalisation by constants as one product and one sum, and splits into many parts in groups.

    Other operators of training become what TVM makes of them.
    """
    module = relax.transform.CanonicalizeBindings()(rewritten(_Decomposer, module))
    return relax.transform.DecomposeOpsForInference()(module)


def unify(module: tvm.IRModule) -> tvm.IRModule:
    """Write differences from constants as sums, quotients by them as products, and means and reshapes as such.

    Leaves out what changes nothing. Expects constants in the place of their variables. Products with the inverse of a
    constant differ from quotients by rounding, so quotients stay where the next operator would jump: the row
    `floor(41 * 7 / 41)` of a pixel would be another one.
    """
    return relax.transform.CanonicalizeBindings()(rewritten(_Unifier, module))


class _Decomposer(Rewriter):
    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(call, "relax.split"):
            return split_in_groups(self.builder_, self.builder_.normalize(call))
        return self._normalisation(call)

    def _normalisation(self, call: relax.Call) -> relax.Expr | None:
        """x * (gamma / sqrt(variance + epsilon)) + (beta - mean * that); statistics stay as they are."""
        if not is_call(call, "relax.nn.batch_norm") or call.attrs.training or int(call.attrs.axis) != 1:
            return None
        values = [constant_value(self.bound_value(argument)) for argument in call.args[1:5]]
        known = [value for value in values if value is not None]
        dtype = str(call.args[0].ty.dtype)
        if dtype not in ("float32", "float64") or len(known) < len(values):
            return None
        gamma, beta, mean, variance = known
        scale = 1 / np.sqrt(variance + np.asarray(call.attrs.epsilon, dtype))
        scale = scale * gamma if call.attrs.scale else scale
        offset = (beta if call.attrs.center else 0) - mean * scale
        column = [1, -1, *[1] * (len(shape_of(call.args[0])) - 2)]
        scaled = self.emit(relax.op.multiply(call.args[0], constant(scale.reshape(column), dtype)))
        shifted = self.emit(relax.op.add(scaled, constant(offset.reshape(column), dtype)))
        return relax.Tuple([shifted, call.args[3], call.args[4]])


class _Unifier(Rewriter):
    @cached_property
    def _exact(self) -> set[relax.Call]:
        """The calls whose results are read by operators that jump: their last bit counts."""
        bindings = [binding for block in self.module["main"].body.blocks for binding in block.bindings]
        read = {argument for binding in bindings if _jumps(binding.value) for argument in binding.value.args}
        return {binding.value for binding in bindings if binding.var in read}

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        name = operator_name(call)
        if name in ("squeeze", "expand_dims", "flatten"):
            return relax.op.reshape(call.args[0], shape_of(call))
        if name in ("broadcast_to", "reshape") and shape_of(call.args[0]) == shape_of(call):
            return call.args[0]
        if name == "astype" and call.args[0].ty.dtype == call.ty.dtype:
            return call.args[0]
        if name.startswith("nn.adaptive_avg_pool") and str(call.attrs.layout).startswith("NC"):
            return _mean(call)
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
        """A convolution of an image with a rim of zeros, as TensorFlow Lite's files write some, with that padding."""
        source, attrs = self.bound_value(call.args[0]), call.attrs
        rim = [int(each) for each in source.attrs.pad_width] if is_call(source, "relax.nn.pad") else []
        if len(rim) != 8 or any(rim[:4]) or min(rim) < 0:
            return None
        if str(source.attrs.pad_mode) != "constant" or float(source.attrs.pad_value) != 0:
            return None
        top, bottom, left, right = rim[4:]
        padding = [int(had) + more for had, more in zip(attrs.padding, (top, left, bottom, right), strict=True)]
        return relax.op.nn.conv2d(
            source.args[0],
            call.args[1],
            [int(each) for each in attrs.strides],
            padding,
            [int(each) for each in attrs.dilation],
            int(attrs.groups),
            kernel_layout=str(attrs.kernel_layout),
            out_dtype=str(call.ty.dtype),
        )

    def _in_one_order(self, call: relax.Call) -> relax.Expr | None:
        """Two transposes in a row as one, or none."""
        after, source = axes_of(call), self.bound_value(call.args[0])
        before = axes_of(source)
        if not after or not before:
            return None
        axes = [before[axis] for axis in after]
        return source.args[0] if axes == sorted(axes) else relax.op.permute_dims(source.args[0], axes)


def _jumps(value: relax.Expr) -> bool:
    """Whether a call's results jump where its operands barely change."""
    name = operator_name(value)
    return name in _JUMPING or (name == "astype" and str(value.ty.dtype).startswith(("int", "uint")))


def _of_matrix(call: relax.Call) -> relax.Expr | None:
    """A product with a constant stack of one matrix as one with the matrix."""
    value, rank = constant_value(call.args[1]), len(shape_of(call.args[0]))
    if value is None or not 2 < value.ndim <= rank or value.size != value.shape[-2] * value.shape[-1]:
        return None
    return relax.op.matmul(call.args[0], constant(value.reshape(value.shape[-2:])), str(call.ty.dtype))


def _mean(call: relax.Call) -> relax.Expr | None:
    """An adaptive pool over whole feature maps."""
    axes = list(range(2, len(shape_of(call))))
    whole = all(shape_of(call)[axis] == 1 for axis in axes)
    return relax.op.mean(call.args[0], axes, keepdims=True) if whole else None


def _by_constant(name: str, call: relax.Call) -> relax.Expr | None:
    """x - c as x + (-c), x / c as x * (1/c) where floats hold that."""
    value = constant_value(call.args[1])
    if value is None or value.dtype not in (np.float32, np.float64) or constant_value(call.args[0]) is not None:
        return None
    if name == "subtract":
        return relax.op.add(call.args[0], constant(-value))
    with np.errstate(all="ignore"):
        inverse = 1 / value
    tiny = np.finfo(value.dtype).tiny
    usual = np.isfinite(inverse).all() and (np.abs(inverse) >= tiny).all() and (np.abs(value) >= tiny).all()
    return relax.op.multiply(call.args[0], constant(inverse)) if usual else None

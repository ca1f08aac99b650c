"""Norms of groups of channels as sums of feature maps, so that these need not be flattened."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from edgedeploy.compile.expressions import Rewriter, constant, constant_value, is_call, rewritten, shape_of
from edgedeploy.compile.optraits import Kind, is_kind, operator_name, tensors_of


def lift_groups(module: tvm.IRModule) -> tvm.IRModule:
    """Write group norms, and what is computed of flattened groups of channels, as operators on feature maps.

    Exporters write group norm as an instance norm of n x groups x values, between two reshapes. Those need the channels
    of a group in one place of memory, where layers have the channels of a pixel; means of channels first, and of them
    over their group, need not. Expects NCHW.
    """
    return relax.transform.CanonicalizeBindings()(rewritten(_Lifter, module))


class _Lifter(Rewriter):
    """Keeps, of variables that hold n x groups x values or n x groups x 1, the same on n x channels x rows x columns.

    Statistics are n x channels x 1 x 1 there, where each channel has its group's.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self._lifted: dict[Any, relax.Var] = {}

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Rewrite a binding, and note what its variable is on the feature map."""
        super().visit_var_binding_(binding)
        if isinstance(binding.value, relax.Call) and (lifted := self._on_feature_map(binding.value)) is not None:
            self._lifted[binding.var] = lifted

    def replacement(self, call: relax.Call, original: relax.Call) -> relax.Expr | None:
        if is_call(call, "relax.reshape"):
            lifted = self._lifted.get(original.args[0])
            return lifted if lifted is not None and shape_of(lifted) == shape_of(call) else None
        if is_call(call, "relax.nn.group_norm"):
            return self._group_norm(call)
        return None

    def _on_feature_map(self, original: relax.Call) -> relax.Var | None:
        name, shape = operator_name(original), shape_of(original) if isinstance(original.ty, relax.TensorType) else []
        if name == "reshape":
            source = shape_of(original.args[0])
            grouped = len(source) == 4 and len(shape) == 3 and shape[0] == source[0] and source[1] % shape[1] == 0
            return self.visit_expr(original.args[0]) if grouped and shape[2] > 1 else None
        operands = tensors_of(original)
        if len(shape) != 3 or not operands or not any(each in self._lifted for each in operands):
            return None
        if name in ("mean", "variance"):
            along = original.attrs.axis is not None and [int(axis) % 3 for axis in original.attrs.axis] == [2]
            return getattr(self, f"_{name}")(self._lifted[operands[0]], shape[1]) if along and shape[2] == 1 else None
        if not is_kind(original, Kind.ELEMENTWISE) or len(operands) != len(original.args):
            return None
        shapes = [shape_of(self._lifted[each]) for each in operands if each in self._lifted]
        channels, sizes = shapes[0][1], {tuple(each[2:]) for each in shapes}
        if any(each[1] != channels for each in shapes) or len(sizes - {(1, 1)}) > 1:
            return None  # feature maps of other sizes, which are the same only flattened
        lifted = [
            self._lifted[each] if each in self._lifted else _of_channels(constant_value(each), shape[1], channels)
            for each in operands
        ]
        if any(each is None for each in lifted):
            return None
        return self.emit(relax.Call(original.op, lifted, original.attrs))

    def _mean(self, image: relax.Expr, groups: int) -> relax.Var:
        """The mean of each group, for each of its channels."""
        batch, channels, *pixels = shape_of(image)
        mean = image if pixels == [1, 1] else self.emit(relax.op.mean(image, [2, 3], keepdims=True))
        parts = self.emit(relax.op.reshape(mean, [batch, groups, channels // groups]))
        whole = self.emit(relax.op.mean(parts, [2], keepdims=True))
        spread = self.emit(relax.op.broadcast_to(whole, [batch, groups, channels // groups]))
        return self.emit(relax.op.reshape(spread, [batch, channels, 1, 1]))

    def _variance(self, image: relax.Expr, groups: int) -> relax.Var:
        centred = self.emit(relax.op.subtract(image, self._mean(image, groups)))
        return self._mean(self.emit(relax.op.multiply(centred, centred)), groups)

    def _group_norm(self, call: relax.Call) -> relax.Expr | None:
        image, gamma, beta = call.args
        attrs, factor, offset = call.attrs, constant_value(gamma), constant_value(beta)
        if len(shape_of(image)) != 4 or int(attrs.channel_axis) % 4 != 1 or str(image.ty.dtype) != "float32":
            return None
        if sorted(int(axis) % 4 for axis in attrs.axes) != [2, 3] or factor is None or offset is None:
            return None
        groups = int(attrs.num_groups)
        variance = self.emit(relax.op.add(self._variance(image, groups), constant(attrs.epsilon, "float32")))
        result = self.emit(relax.op.subtract(image, self._mean(image, groups)))
        result = self.emit(relax.op.divide(result, self.emit(relax.op.sqrt(variance))))
        if attrs.scale:
            result = self.emit(relax.op.multiply(result, constant(factor.reshape(1, -1, 1, 1))))
        return relax.op.add(result, constant(offset.reshape(1, -1, 1, 1))) if attrs.center else result


def _of_channels(value: np.ndarray | None, groups: int, channels: int) -> relax.Expr | None:
    """A constant of n x groups x values, one for each group, as one of each channel; None if it is no such constant."""
    if value is None:
        return None
    if value.size == 1:
        return constant(value.reshape(()))
    if value.size != groups or value.shape[-2:] != (groups, 1):
        return None
    return constant(np.repeat(value.reshape(-1), channels // groups).reshape(1, channels, 1, 1))
